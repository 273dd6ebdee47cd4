"""Whose word is enough for a broker to know that it is not wanted."""

from __future__ import annotations

from odradek.controller.quorum_reading import refusal_of
from odradek.controller.transport import RefusedError
from odradek.raft.messages import NO_NODE
from odradek.wire.errors import ErrorCode, PeerError

STRANGER = RefusedError(401, "the secret is wrong")
OTHER_CLUSTER = RefusedError(409, "another cluster")
BUSY = RefusedError(429, "too many requests")
UNREADABLE = PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "what is this")


def test_the_leaders_word_is_enough_because_a_follower_asks_nobody_else() -> None:
    assert refusal_of({1: STRANGER}, {1, 2}, leader_id=1) == "the secret is wrong"
    assert refusal_of({2: OTHER_CLUSTER}, {1, 2}, leader_id=2) == "another cluster"


def test_without_a_leader_all_the_others_must_say_so() -> None:
    assert refusal_of({1: STRANGER}, {1, 2}, NO_NODE) is None
    assert refusal_of({1: STRANGER}, {1, 2}, leader_id=2) is None
    assert refusal_of({1: STRANGER, 2: OTHER_CLUSTER}, {1, 2}, NO_NODE) == "the secret is wrong"


def test_other_complaints_and_no_others_are_no_refusal() -> None:
    assert refusal_of({1: BUSY, 2: UNREADABLE}, {1, 2}, leader_id=1) is None
    assert refusal_of({1: STRANGER, 2: BUSY}, {1, 2}, leader_id=2) is None
    assert refusal_of({}, set(), NO_NODE) is None
