"""A leader: proposals, fetches, the high watermark, the long poll, and check-quorum."""

from __future__ import annotations

import json

import pytest

from odradek.raft.machine import Raft
from odradek.raft.messages import (
    Append,
    BeginQuorumEpoch,
    Committed,
    Deposed,
    Elected,
    EndQuorumEpoch,
    FetchRequest,
    FetchResponse,
    Lost,
    Propose,
    Proposed,
    Refused,
    Requested,
    Resign,
    SnapshotId,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    Tick,
)
from tests.raft.machines import ask, elect, fetch, make, of_type, vote

NOW = 10_000


def leader(epochs: tuple[int, ...] = (), voters: tuple[int, ...] = (1, 2, 3)) -> Raft:
    machine = make(epochs=epochs, voters=voters)
    elect(machine, NOW)
    return machine


def test_a_term_begins_with_an_entry_of_its_own() -> None:
    machine = make(epochs=(1, 1))
    effects = elect(machine, NOW)
    append = of_type(effects.persist, Append)[0]
    assert (append.start_offset, append.entries[0].epoch, append.entries[0].type) == (2, 2, "leader-change")
    assert json.loads(append.entries[0].body) == {"leader_id": 1, "voters": [1, 2, 3]}
    assert [(send.node, send.request) for send in effects.send] == [
        (2, BeginQuorumEpoch(1, 2)),
        (3, BeginQuorumEpoch(1, 2)),
    ]


def test_nothing_is_committed_before_the_own_entry_is() -> None:
    machine = leader(epochs=(1, 1))
    fetch(machine, 2, 1, 2, NOW)
    assert machine.high_watermark == 0
    effects = machine.step(Requested(1, FetchRequest(3, 2, 2, 3, 100)), NOW)
    assert machine.high_watermark == 3
    committed, elected = effects.apply
    assert isinstance(committed, Committed)
    assert (committed.start_offset, len(committed.entries)) == (0, 3)
    assert elected == Elected(2, 2)
    response = effects.replies[0].response
    assert isinstance(response, FetchResponse)
    assert response.high_watermark == 3  # whoever completes the majority learns of it at once


def test_observers_and_logs_that_differ_do_not_count() -> None:
    machine = leader(epochs=(1, 1))
    fetch(machine, 9, 2, 3, NOW)
    response = fetch(machine, 2, 1, 3, NOW)
    assert response is not None
    assert response.diverging == (1, 2)
    fetch(machine, 1, 2, 3, NOW)  # in our own name
    assert machine.high_watermark == 0
    assert [(one.id, one.end_offset, one.is_voter) for one in machine.replicas()] == [
        (2, 0, True),
        (3, 0, True),
        (9, 3, False),
    ]


@pytest.mark.parametrize(
    ("log", "diverging"), [((1, 9), (1, 2)), ((2, 3), (1, 2)), ((3, 5), (3, 4)), ((4, 4), (3, 4)), ((0, 1), (-1, 0))]
)
def test_the_place_where_logs_part_is_named(log: tuple[int, int], diverging: tuple[int, int]) -> None:
    machine = make(epochs=(1, 1, 3, 3))
    elect(machine, NOW)  # its own entry is of epoch 4, at 4
    response = fetch(machine, 2, *log, NOW)
    assert response is not None
    assert (response.diverging, response.entries) == (diverging, ())


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (FetchRequest(2, 0, -1, 0, 9), "fenced-epoch"),
        (FetchRequest(2, 2, -1, 0, 9), "unknown-epoch"),
        (FetchRequest(2, 1, 1, 99, 9), "future"),
        (FetchRequest(2, 1, 5, 1, 9), "future"),
        (FetchRequest(2, 1, -1, -5, 9), "future"),
        (FetchRequest(2, 1, -7, 0, 9), "future"),
    ],
)
def test_a_fetch_that_cannot_be_served_gets_an_error(request_: FetchRequest, error: str) -> None:
    machine = leader()
    response = ask(machine, request_, NOW)
    assert isinstance(response, FetchResponse)
    assert (response.error, response.epoch, response.leader_id, response.entries) == (error, 1, 1, ())
    assert machine.role == "leader"
    follower = make()
    response = ask(follower, request_, NOW)
    assert isinstance(response, FetchResponse)
    assert (response.error, response.leader_id) == ("not-leader", -1)


def test_a_fetch_without_news_waits_until_there_is_some() -> None:
    machine = leader()
    assert fetch(machine, 2, 1, 1, NOW) is not None  # the high watermark is news
    assert ask(machine, FetchRequest(2, 1, 1, 1, 9), NOW + 1, ticket=20) is None
    assert ask(machine, FetchRequest(2, 1, 1, 1, 9), NOW + 2, ticket=21) is None
    effects = machine.step(Propose((("set", "a"), ("set", "b")), 5), NOW + 3)
    assert [reply.ticket for reply in effects.replies] == [21]  # the one before was answered when it was replaced
    assert effects.apply == [Proposed(5, 3)]
    assert ask(machine, FetchRequest(2, 1, 1, 3, 9), NOW + 4, ticket=22) is not None
    assert machine.high_watermark == 3
    assert ask(machine, FetchRequest(2, 1, 1, 3, 9), NOW + 5, ticket=23) is None
    assert not machine.step(Tick(), NOW + 504).replies
    assert [reply.ticket for reply in machine.step(Tick(), NOW + 505).replies] == [23]


def test_an_old_fetch_does_not_take_back_what_was_flushed() -> None:
    machine = leader()
    machine.step(Propose((("set", "a"),), 5), NOW)
    fetch(machine, 2, 1, 2, NOW)
    fetch(machine, 2, 1, 1, NOW)
    assert machine.high_watermark == 2
    assert machine.replicas()[0].end_offset == 2


def test_a_deposed_leader_tells_what_is_lost() -> None:
    machine = leader()
    fetch(machine, 2, 1, 1, NOW)
    machine.step(Propose((("set", "a"),), 5), NOW)
    assert ask(machine, FetchRequest(2, 1, 1, 2, 9), NOW, ticket=20) is not None
    machine.step(Propose((("set", "b"),), 6), NOW)
    assert ask(machine, FetchRequest(3, 1, 1, 3, 9), NOW, ticket=21) is not None
    machine.step(Propose((("set", "c"),), 7), NOW)
    effects = machine.step(Requested(30, BeginQuorumEpoch(3, 4)), NOW)
    assert effects.apply[:2] == [Deposed(1), Lost(7)]
    assert machine.step(Propose((("set", "d"),), 8), NOW).apply == [Refused(8)]
    assert machine.replicas() == []


def test_a_waiting_fetch_is_answered_when_the_leader_goes() -> None:
    machine = leader()
    fetch(machine, 2, 1, 1, NOW)
    assert ask(machine, FetchRequest(2, 1, 1, 1, 9), NOW, ticket=20) is None
    reply = machine.step(Resign(), NOW).replies[0]
    assert reply.ticket == 20
    assert isinstance(reply.response, FetchResponse)
    assert reply.response.error == "not-leader"


def test_a_leader_without_a_majority_resigns() -> None:
    machine = leader(voters=(1, 2, 3, 4, 5))
    for node in (2, 3, 4):
        fetch(machine, node, -1, 0, NOW + 1_000)
    fetch(machine, 2, -1, 0, NOW + 3_000)
    machine.step(Tick(), NOW + 3_999)
    assert machine.role == "leader"
    effects = machine.step(Tick(), NOW + 4_000)
    assert machine.role == "resigned"
    assert effects.send[0].request == EndQuorumEpoch(1, 1, (2, 3, 4, 5))
    assert not vote(machine, 2, 1).granted  # its vote of this epoch is its own
    machine.step(Tick(), NOW + 9_000)
    assert (machine.role, machine.epoch) == ("prospective", 1)


def test_begin_is_repeated_to_a_voter_that_does_not_fetch() -> None:
    machine = leader()
    told = []
    for now in range(NOW, NOW + 8_000, 100):
        fetch(machine, 2, 1, 1, now)
        told += [send.node for send in machine.step(Tick(), now).send if isinstance(send.request, BeginQuorumEpoch)]
    assert set(told) == {3}
    assert 4 <= len(told) <= 8


def test_a_snapshot_is_served_if_it_is_the_one_at_the_start() -> None:
    machine = leader(voters=(1,))
    machine.step(Propose((("set", "a"), ("set", "b")), 5), NOW)
    machine.step(SnapshotTaken(SnapshotId(2, 1)), NOW)
    response = fetch(machine, 9, 1, 1, NOW)
    assert response is not None
    assert (response.snapshot, response.entries, response.diverging) == (SnapshotId(2, 1), (), None)
    good = ask(machine, SnapshotRequest(9, 1, SnapshotId(2, 1)), NOW)
    assert good == SnapshotResponse("", 1, 1, SnapshotId(2, 1), None)
    bad = ask(machine, SnapshotRequest(9, 1, SnapshotId(1, 1)), NOW)
    assert bad == SnapshotResponse("unknown-snapshot", 1, 1, SnapshotId(1, 1), None)
    late = ask(machine, SnapshotRequest(9, 0, SnapshotId(2, 1)), NOW)
    assert late == SnapshotResponse("fenced-epoch", 1, 1, SnapshotId(2, 1), None)


def test_observers_are_bounded() -> None:
    machine = leader()
    for node in range(10, 1_200):
        fetch(machine, node, 1, 1, NOW + node)
    assert len(machine.replicas()) <= 1_003
    assert {2, 3, 1_199} <= {one.id for one in machine.replicas()}
