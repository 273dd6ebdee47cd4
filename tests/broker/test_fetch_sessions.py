"""Incremental fetch sessions (KIP-227), without a door: who gets one, whose turn it is, who is let go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.fetch_sessions import FetchSession, FetchSessions, PartitionKey, Wanted
from odradek.wire.errors import ErrorCode, PeerError

IDLE_MS = 120_000
LAST_EPOCH = 2**31 - 1


def wanted(*keys: PartitionKey, offset: int = 0) -> dict[PartitionKey, Wanted]:
    return {key: Wanted(offset, 1000, -1, -1) for key in keys}


A, B, C = ("a", 0), ("a", 1), ("c", 0)


def begun(sessions: FetchSessions, *keys: PartitionKey, now_ms: int = 0) -> FetchSession:
    session = sessions.begin(now_ms, wanted(*keys))
    assert session is not None
    return session


def code(sessions: FetchSessions, session_id: int, epoch: int) -> ErrorCode:
    with pytest.raises(PeerError) as refused:
        sessions.go_on(session_id, epoch, 0, {}, [])
    return refused.value.code


def test_a_session_begins_at_epoch_1_with_an_id_that_is_not_0() -> None:
    sessions = FetchSessions(10)
    first, second = begun(sessions, A), begun(sessions, A)
    assert (first.epoch, second.epoch) == (1, 1)
    assert len({first.id, second.id, 0}) == 3
    assert len(sessions) == 2


def test_the_next_request_adds_changes_and_forgets() -> None:
    sessions = FetchSessions(10)
    session = begun(sessions, A, B)
    session.told[B] = (5, 0)
    moved = wanted(A, offset=7) | wanted(C)
    assert sessions.go_on(session.id, 1, 5, moved, [B, ("unknown", 3)]) is session
    assert list(session.wanted) == [A, C]
    assert session.wanted[A].offset == 7
    assert session.told == {}, "if it comes back, all of it is news"
    assert (session.epoch, session.used_ms) == (2, 5)


def test_a_partition_that_is_forgotten_and_named_in_one_request_is_wanted() -> None:
    sessions = FetchSessions(10)
    session = begun(sessions, A)
    sessions.go_on(session.id, 1, 0, wanted(A, offset=3), [A])
    assert session.wanted[A].offset == 3


@pytest.mark.parametrize("epoch", [0, 2, 3, LAST_EPOCH, -2])
def test_a_wrong_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = FetchSessions(10)
    session = begun(sessions, A)
    assert code(sessions, session.id, epoch) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.go_on(session.id, 1, 0, {}, []) is session


def test_an_unknown_or_ended_session_is_not_found() -> None:
    sessions = FetchSessions(10)
    session = begun(sessions, A)
    assert code(sessions, session.id + 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.end(session.id)
    sessions.end(session.id)
    assert code(sessions, session.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def test_epochs_begin_again_at_1_after_the_last() -> None:
    sessions = FetchSessions(10)
    session = begun(sessions, A)
    session.epoch = LAST_EPOCH
    sessions.go_on(session.id, LAST_EPOCH, 0, {}, [])
    assert session.epoch == 1


def test_without_slots_nobody_gets_a_session() -> None:
    assert FetchSessions(0).begin(0, wanted(A)) is None


def test_a_full_cache_lets_go_of_the_one_that_was_silent_longest_if_it_was_silent_long_enough() -> None:
    sessions = FetchSessions(2)
    first, second = begun(sessions, A, now_ms=0), begun(sessions, A, now_ms=1)
    sessions.go_on(first.id, 1, 50, {}, [])  # from now on the second is the oldest
    assert sessions.begin(IDLE_MS, wanted(A)) is None
    third = begun(sessions, A, now_ms=IDLE_MS + 1)
    assert len(sessions) == 2
    assert code(sessions, second.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.go_on(first.id, 2, IDLE_MS + 2, {}, []) is first
    assert sessions.go_on(third.id, 1, IDLE_MS + 2, {}, []) is third


def test_what_was_read_goes_to_the_end_of_the_line() -> None:
    session = begun(FetchSessions(1), A, B, C)
    session.read_last([A, ("forgotten", 0)])
    assert list(session.wanted) == [B, C, A]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 200_000)), max_size=60))
def test_there_are_never_more_sessions_than_slots_and_ids_are_not_used_twice(steps: list[tuple[int, int, int]]) -> None:
    sessions, now, ids, alive = FetchSessions(3), 0, set(), []
    for what, which, later in steps:
        now += later
        if what < 3:
            session = sessions.begin(now, wanted(A))
            if session is not None:
                assert session.id not in ids
                ids.add(session.id)
                alive.append(session)
        elif alive and what < 5:
            chosen = alive[which % len(alive)]
            try:
                sessions.go_on(chosen.id, chosen.epoch, now, {}, [])
            except PeerError as error:
                assert error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                alive.remove(chosen)
        elif alive:
            sessions.end(alive.pop(which % len(alive)).id)
        assert len(sessions) <= 3
