"""A follower: what it takes from its leader, and what late, doubled or senseless answers do to it: nothing."""

from __future__ import annotations

import pytest

from odradek.raft.machine import Raft, RaftError
from odradek.raft.messages import (
    Answered,
    Append,
    BeginQuorumEpoch,
    BeginResponse,
    Committed,
    CutBefore,
    EndQuorumEpoch,
    Entry,
    Failed,
    FetchRequest,
    InstallSnapshot,
    LoadSnapshot,
    QuorumState,
    Requested,
    Send,
    SnapshotId,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    Tick,
    Truncate,
)
from tests.raft.machines import answer, ask, follow, make, of_type

A, B, C = (Entry(4, "set", body) for body in "abc")


def test_entries_are_stored_before_the_next_fetch_says_so() -> None:
    machine = make()
    effects = answer(machine, follow(machine, 2, 4), (A, B), high_watermark=1)
    assert effects.persist == [Append(0, (A, B))]
    assert effects.apply == [Committed(0, (A,))]
    assert [send.request for send in effects.send] == [FetchRequest(1, 4, 4, 2, 100)]


def test_the_leaders_high_watermark_counts_up_to_our_own_end_only() -> None:
    machine = make()
    effects = answer(machine, follow(machine, 2, 4), (A,), high_watermark=9)
    assert machine.high_watermark == 1
    answer(machine, effects.send[0], (), high_watermark=0)
    assert machine.high_watermark == 1


def test_a_doubled_answer_does_nothing() -> None:
    machine = make()
    first = follow(machine, 2, 4)
    second = answer(machine, first, (A,), high_watermark=1).send[0]
    again = answer(machine, first, (A,), high_watermark=1)
    assert (again.persist, again.send, again.apply) == ([], [], [])
    assert answer(machine, second, (B,)).persist == [Append(1, (B,))]


def test_an_answer_of_another_epoch_does_nothing() -> None:
    machine = make()
    first = follow(machine, 2, 4)
    follow(machine, 3, 5)
    effects = answer(machine, first, (A,), high_watermark=1)
    assert (effects.persist, effects.apply, machine.end_offset) == ([], [], 0)


def test_an_answer_to_a_request_before_a_restart_fits_or_does_nothing() -> None:
    first = follow(make(), 2, 4)
    machine = make(epochs=(4,))
    follow(machine, 2, 4)
    assert answer(machine, first, (A, B)).persist == []


def test_entries_that_make_no_sense_are_not_taken() -> None:
    for entries in ((Entry(1, "set", "x"),), (Entry(5, "set", "x"),), (A, Entry(3, "set", "x"))):
        machine = make(epochs=(2,))
        assert answer(machine, follow(machine, 2, 4), entries, high_watermark=9).persist == []
        assert (machine.end_offset, machine.high_watermark) == (1, 0)
        assert machine.next_deadline() == 100  # a pause, then it asks again


@pytest.mark.parametrize(
    ("diverging", "target"), [((1, 1), 1), ((1, 9), 2), ((2, 3), 2), ((3, 3), 3), ((4, 9), None), ((0, 0), 0)]
)
def test_a_log_that_parts_is_cut_where_both_still_agree(diverging: tuple[int, int], target: int | None) -> None:
    machine = make(epochs=(1, 1, 3, 3))
    effects = answer(machine, follow(machine, 2, 9), diverging=diverging)
    assert effects.persist == ([] if target is None else [Truncate(target)])
    assert machine.end_offset == (4 if target is None else target)


def test_what_is_committed_is_never_cut() -> None:
    machine = make()
    send = answer(machine, follow(machine, 2, 4), (A, B), high_watermark=2).send[0]
    with pytest.raises(RaftError, match="committed"):
        answer(machine, send, diverging=(4, 1))
    assert machine.end_offset == 2


def load(machine: Raft, snapshot: SnapshotId) -> tuple[Send, SnapshotResponse]:
    send = answer(machine, follow(machine, 2, 4), snapshot=snapshot).send[0]
    assert isinstance(send.request, SnapshotRequest)
    return send, SnapshotResponse("", 4, 2, snapshot, b"state")


def test_a_snapshot_takes_the_place_of_the_log() -> None:
    machine = make(epochs=(1, 1))
    send, response = load(machine, SnapshotId(5, 3))
    effects = machine.step(Answered(2, send.request, response), 0)
    assert effects.persist == [InstallSnapshot(SnapshotId(5, 3), b"state")]
    assert effects.apply == [LoadSnapshot(SnapshotId(5, 3), b"state")]
    assert effects.send[0].request == FetchRequest(1, 4, 3, 5, 100)
    assert (machine.log_start, machine.end_offset, machine.high_watermark) == (SnapshotId(5, 3), 5, 5)
    again = machine.step(Answered(2, send.request, response), 0)
    assert (again.persist, again.apply, again.send) == ([], [], [])


def test_a_late_snapshot_does_not_drop_what_was_acknowledged_since() -> None:
    machine = make()
    first = follow(machine, 2, 4)
    send = answer(machine, first, snapshot=SnapshotId(2, 4)).send[0]
    answer(machine, first, (A, B, C))  # an earlier answer overtakes the snapshot
    assert machine.end_offset == 3
    effects = machine.step(Answered(2, send.request, SnapshotResponse("", 4, 2, SnapshotId(2, 4), b"s")), 0)
    assert (effects.persist, machine.end_offset) == ([], 3)


def test_a_snapshot_without_data_or_of_another_name_is_asked_for_again() -> None:
    for response in (
        SnapshotResponse("unknown-snapshot", 4, 2, SnapshotId(5, 3), None),
        SnapshotResponse("", 4, 2, SnapshotId(5, 3), None),
        SnapshotResponse("", 4, 2, SnapshotId(6, 3), b"state"),
    ):
        machine = make()
        send, _ = load(machine, SnapshotId(5, 3))
        assert machine.step(Answered(2, send.request, response), 0).persist == []
        again = machine.step(Tick(), machine.next_deadline()).send
        assert isinstance(again[0].request, FetchRequest)


def test_our_own_snapshot_cuts_the_log_once() -> None:
    machine = make()
    answer(machine, follow(machine, 2, 4), (A, B, C), high_watermark=2)
    with pytest.raises(RaftError, match="committed"):
        machine.step(SnapshotTaken(SnapshotId(3, 4)), 0)
    assert machine.step(SnapshotTaken(SnapshotId(2, 4)), 0).persist == [CutBefore(2)]
    assert machine.step(SnapshotTaken(SnapshotId(1, 4)), 0).persist == []
    assert (machine.log_start, machine.entry(2), machine.epoch_at(1)) == (SnapshotId(2, 4), C, 4)


def test_a_fenced_or_conflicting_leader_is_refused() -> None:
    machine = make()
    follow(machine, 2, 4)
    assert ask(machine, BeginQuorumEpoch(3, 3)) == BeginResponse(False, 4, 2)
    assert ask(machine, BeginQuorumEpoch(3, 4)) == BeginResponse(False, 4, 2)
    assert ask(machine, BeginQuorumEpoch(9, 5)) == BeginResponse(False, 4, 2)
    assert ask(machine, BeginQuorumEpoch(1, 5)) == BeginResponse(False, 4, 2)
    assert ask(machine, BeginQuorumEpoch(2, 4)) == BeginResponse(True, 4, 2)
    again = make(state=QuorumState(4, -1, 2, 4))
    assert ask(again, BeginQuorumEpoch(3, 4)) == BeginResponse(False, 4, -1)
    assert ask(again, BeginQuorumEpoch(2, 4)) == BeginResponse(True, 4, 2)


def test_a_failed_fetch_is_tried_again_and_only_the_one_under_way() -> None:
    machine = make()
    first = follow(machine, 2, 4)
    assert machine.step(Failed(2, first.request), 0).send == []
    assert machine.next_deadline() == 100
    second = machine.step(Tick(), 100).send[0]
    machine.step(Failed(2, first.request), 101)
    assert machine.next_deadline() > 1_000
    assert second.request == first.request


def test_a_fetch_that_is_never_answered_is_tried_again() -> None:
    machine = make()
    follow(machine, 2, 4)
    send = machine.step(Tick(), machine.next_deadline()).send[0]
    assert (send.node, machine.role) == (2, "follower")


def test_the_preferred_successor_stands_at_once() -> None:
    machine = make()
    follow(machine, 2, 4)
    machine.step(Requested(1, EndQuorumEpoch(3, 4, (1,))), 0)  # not the leader
    assert machine.role == "follower"
    machine.step(Requested(1, EndQuorumEpoch(2, 4, (1, 3))), 0)
    assert (machine.role, machine.epoch) == ("candidate", 5)
    other = make(3)
    follow(other, 2, 4)
    other.step(Requested(1, EndQuorumEpoch(2, 4, (1, 3))), 0)
    assert (other.role, other.epoch) == ("unattached", 4)
    assert of_type(other.step(Tick(), other.next_deadline()).persist, Append) == []
    assert other.role == "prospective"


def test_a_leader_that_says_it_is_none_is_left() -> None:
    machine = make()
    answer(machine, follow(machine, 2, 4), error="not-leader")
    assert (machine.role, machine.leader_id) == ("unattached", -1)
    assert machine.next_deadline() <= 251


def test_an_observer_looks_for_the_leader_and_never_stands() -> None:
    machine = make(9)
    for _ in range(50):
        effects = machine.step(Tick(), machine.next_deadline())
        assert all(isinstance(send.request, FetchRequest) for send in effects.send)
    assert machine.role == "observer"
    send = machine.step(Tick(), machine.next_deadline()).send[0]
    effects = answer(machine, send, ())
    assert (machine.leader_id, machine.role) == (send.node, "observer")
    assert of_type(answer(machine, effects.send[0], (Entry(0, "set", "x"),), 1).apply, Committed)
