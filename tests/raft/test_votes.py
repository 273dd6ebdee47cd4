"""Votes and pre-votes: whom a voter says yes to, and what it remembers."""

from __future__ import annotations

import pytest

from odradek.raft.machine import Raft, RaftConfig
from odradek.raft.messages import (
    Answered,
    PeerLost,
    QuorumState,
    Requested,
    SaveQuorumState,
    Tick,
    VoteRequest,
    VoteResponse,
)
from tests.raft.machines import VOTERS, answer, elect, follow, make, of_type, vote, yes


def test_a_vote_is_saved_before_it_is_told() -> None:
    machine = make()
    effects = machine.step(Requested(1, VoteRequest(2, 4, -1, 0, False)), 0)
    assert of_type(effects.persist, SaveQuorumState) == [SaveQuorumState(QuorumState(4, 2, -1, 0))]
    assert effects.replies[0].response == VoteResponse(True, 4, -1, 0)


def test_one_vote_an_epoch_also_after_a_restart() -> None:
    machine = make()
    assert vote(machine, 2, 4).granted
    again = make(state=QuorumState(4, 2, -1, 0))
    for one in (machine, again):
        assert vote(one, 2, 4).granted
        assert vote(one, 3, 4) == VoteResponse(False, 4, -1, 0)
        assert not vote(one, 2, 3).granted
        assert vote(one, 3, 5).granted


@pytest.mark.parametrize(("log", "granted"), [((2, 3), True), ((3, 1), True), ((2, 2), False), ((1, 9), False)])
def test_logs_compare_by_epoch_then_by_offset(log: tuple[int, int], granted: bool) -> None:
    for pre_vote in (False, True):
        machine = make(epochs=(1, 2, 2))
        assert vote(machine, 2, 7, log, pre_vote=pre_vote).granted is granted


def test_a_refused_candidate_still_tells_the_new_epoch() -> None:
    machine = make(epochs=(1, 2, 2))
    assert vote(machine, 2, 7, (1, 9)) == VoteResponse(False, 7, -1, 0)
    assert (machine.epoch, machine.voted_id) == (7, -1)


def test_strangers_and_observers_have_no_say() -> None:
    machine = make()
    assert not vote(machine, 9, 4).granted
    assert not vote(machine, 1, 4).granted  # a request in our own name
    assert machine.epoch == 0
    assert not vote(make(node_id=9), 2, 4).granted


def test_a_plain_vote_is_granted_even_by_a_follower_that_has_a_leader() -> None:
    machine = make()
    follow(machine, 2, 4)
    assert vote(machine, 3, 5).granted
    assert (machine.role, machine.epoch, machine.leader_id) == ("unattached", 5, -1)


def test_a_pre_vote_changes_nothing() -> None:
    machine = make()
    effects = machine.step(Requested(1, VoteRequest(2, 4, -1, 0, True)), 0)
    assert effects.replies[0].response == VoteResponse(True, 0, -1, 0)
    assert effects.persist == []
    assert (machine.epoch, machine.voted_id) == (0, -1)


def test_a_pre_vote_is_refused_while_the_leader_is_heard() -> None:
    machine = make()
    follow(machine, 2, 4)
    assert vote(machine, 3, 4, pre_vote=True, now=1_999) == VoteResponse(False, 4, 2, 4)
    assert vote(machine, 3, 9, pre_vote=True, now=1_999) == VoteResponse(False, 4, 2, 4)
    assert not vote(machine, 3, 3, pre_vote=True, now=2_000).granted  # of an earlier epoch
    assert vote(machine, 3, 4, pre_vote=True, now=2_000).granted


def test_a_broken_connection_ends_the_loyalty_and_the_wait() -> None:
    machine = make()
    send = follow(machine, 2, 4)
    machine.step(PeerLost(3), 10)
    assert not vote(machine, 3, 4, pre_vote=True, now=10).granted
    machine.step(PeerLost(2), 10)
    assert machine.next_deadline() <= 10 + 1 + 1000 // 4
    assert vote(machine, 3, 4, pre_vote=True, now=10).granted
    answer(machine, send, now=11)  # it lives after all
    assert not vote(machine, 3, 4, pre_vote=True, now=12).granted


def test_a_leader_that_asks_for_votes_leads_no_longer() -> None:
    machine = make()
    follow(machine, 2, 4)
    assert vote(machine, 2, 4, pre_vote=True, now=5).granted


def test_a_leader_refuses_pre_votes_and_yields_to_votes() -> None:
    machine = make()
    elect(machine)
    assert vote(machine, 2, 99, pre_vote=True) == VoteResponse(False, 1, 1, 1)
    assert not vote(machine, 2, 1).granted
    assert vote(machine, 2, 2).granted
    assert machine.role == "unattached"


def test_votes_count_once_a_node_and_only_in_their_round() -> None:
    machine = make(voters=(1, 2, 3, 4, 5))
    first = machine.step(Tick(), 10_000).send
    for _ in range(3):
        machine.step(Answered(2, first[0].request, yes(machine)), 10_000)
    assert machine.role == "prospective"
    second = machine.step(Tick(), 20_000).send
    machine.step(Answered(3, first[0].request, yes(machine)), 20_000)
    machine.step(Answered(2, second[0].request, yes(machine)), 20_000)
    assert machine.role == "prospective"
    third = machine.step(Answered(3, second[0].request, yes(machine)), 20_000).send
    assert (machine.role, machine.epoch) == ("candidate", 1)
    for node in (4, 5):
        machine.step(Answered(node, second[0].request, yes(machine)), 20_000)  # late pre-votes are no votes
    machine.step(Answered(9, third[0].request, yes(machine)), 20_000)  # nor is a stranger's
    machine.step(Answered(4, third[0].request, VoteResponse(False, 1, -1, 0)), 20_000)
    machine.step(Answered(2, third[0].request, yes(machine)), 20_000)
    assert machine.role == "candidate"
    machine.step(Answered(3, third[0].request, yes(machine)), 20_000)
    assert machine.role == "leader"


def test_a_refusal_names_the_leader_to_follow() -> None:
    machine = make()
    sends = machine.step(Tick(), 10_000).send
    machine.step(Answered(2, sends[0].request, VoteResponse(False, 6, 3, 6)), 10_000)
    assert (machine.role, machine.leader_id, machine.epoch) == ("follower", 3, 6)


def test_a_log_without_quorum_state_gives_the_epoch() -> None:
    machine = make(voters=(1,), epochs=(1, 1), state=QuorumState())
    assert machine.epoch == 1
    machine.step(Tick(), 0)
    assert (machine.role, machine.epoch, machine.high_watermark) == ("leader", 2, 3)


@pytest.mark.parametrize(
    "numbers", [(1, (), 1, 2, 1, 1), (1, VOTERS, 0, 2, 1, 1), (1, VOTERS, 1, 2, 2, 1), (1, VOTERS, 1, 2, 1, 0)]
)
def test_settings_that_cannot_work_are_refused(numbers: tuple[int, tuple[int, ...], int, int, int, int]) -> None:
    node_id, voters, *times = numbers
    with pytest.raises(ValueError, match=r"must be|at least"):
        RaftConfig(node_id, frozenset(voters), *times)


def test_no_other_role_can_follow_than_the_table_says() -> None:
    machine = make()
    with pytest.raises(Exception, match="cannot become"):
        machine._become("leader", epoch=1, leader_id=1, deadline=0)
    elect(machine)
    with pytest.raises(Exception, match="cannot become"):
        machine._become("unattached", epoch=machine.epoch, deadline=0)
    assert isinstance(machine, Raft)
