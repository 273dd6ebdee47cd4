"""Requests of classic members against the machine: who is let in, what they are told, which error comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.groups.classic import NEW_MEMBER_JOIN_TIMEOUT_MS
from odradek.groups.classic_types import Proposal, State
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.classics import DELAY_MS, SESSION_MS, Driver, subscription

A, B = Proposal("a", b"a"), Proposal("b", b"b")


def commit_error(driver: Driver, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
    try:
        driver.group.check_commit(member_id, instance_id, generation, driver.now_ms)
    except PeerError as refused:
        return refused.code
    return ErrorCode.NONE


def test_a_new_member_is_told_its_id_and_joins_again_with_it() -> None:
    driver = Driver()
    first = driver.joined(driver.join())
    assert (first.error, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
    assert driver.is_in(State.EMPTY)
    ticket = driver.join("m1")
    assert driver.is_in(State.PREPARING)
    driver.advance(DELAY_MS)
    answer = driver.joined(ticket)
    assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, 1, "m1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in answer.members] == ["m1"]


def test_a_client_of_an_old_version_joins_at_once() -> None:
    driver = Driver()
    ticket = driver.join(must_know_its_id=False)
    driver.advance(DELAY_MS)
    assert driver.joined(ticket).error is ErrorCode.NONE


def test_an_id_that_was_given_out_lapses_when_nobody_comes_with_it() -> None:
    driver = Driver()
    driver.join()
    driver.advance(SESSION_MS)
    assert driver.joined(driver.join("m1")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.next_deadline() is None


def test_an_id_that_was_given_out_cannot_be_used_for_a_static_member() -> None:
    driver = Driver()
    driver.join()
    assert driver.joined(driver.join("m1", instance_id="i")).error is ErrorCode.INVALID_REQUEST


def test_only_the_leader_is_told_who_the_members_are() -> None:
    driver = Driver()
    (leader, first), (follower, second) = driver.enter(), driver.enter()
    driver.advance(3 * DELAY_MS)
    assert [member.member_id for member in driver.joined(first).members] == [leader, follower]
    assert driver.joined(second).members == ()
    assert driver.joined(second).leader == leader


def test_followers_that_sync_first_wait_for_the_leader_and_for_the_log() -> None:
    driver = Driver()
    members = [driver.enter()[0] for _ in range(3)]
    driver.advance(4 * DELAY_MS)
    early = driver.sync(members[1])
    lead = driver.sync(members[0], {members[1]: b"for 1"})
    assert driver.waits(early)
    assert driver.waits(lead)
    assert driver.is_in(State.COMPLETING)
    late = driver.sync(members[2])
    assert driver.waits(late), "the assignment is not durable yet"
    driver.store()
    assert driver.is_in(State.STABLE)
    assert driver.synced(early).assignment == b"for 1"
    assert driver.synced(late).assignment == b"", "the leader had nothing for it"
    assert driver.synced(lead).protocol_name == "range"


def test_what_is_stored_is_what_was_assigned() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    assert driver.stored is not None
    assert (driver.stored.generation, driver.stored.leader) == (1, leader)
    assert {each.member_id: each.assignment for each in driver.stored.members} == {
        leader: leader.encode(),
        follower: follower.encode(),
    }


def test_a_leader_that_syncs_again_while_its_assignment_is_being_stored_does_not_store_another() -> None:
    driver = Driver()
    leader, _ = driver.enter()
    driver.advance(DELAY_MS)
    first = driver.sync(leader, {leader: b"one"})
    second = driver.sync(leader, {leader: b"two"})
    assert driver.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS, "nobody is left without an answer"
    assert len(driver.storing) == 1
    driver.store()
    assert driver.synced(second).assignment == b"one"


def test_an_assignment_that_could_not_be_stored_is_given_to_nobody() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.enter(), driver.enter()
    driver.advance(3 * DELAY_MS)
    tickets = [driver.sync(follower), driver.sync(leader, {follower: b"x"})]
    driver.store(ErrorCode.NOT_COORDINATOR)
    assert [driver.synced(ticket).error for ticket in tickets] == [ErrorCode.NOT_COORDINATOR] * 2
    assert driver.is_in(State.PREPARING)


def test_a_rebalance_during_the_storing_of_an_assignment_makes_it_void() -> None:
    driver = Driver()
    leader, _ = driver.enter()
    driver.advance(DELAY_MS)
    sync = driver.sync(leader, {leader: b"void"})
    newcomer, _ = driver.enter()
    assert driver.synced(sync).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(leader)
    assert driver.group.generation == 2
    driver.store()
    assert driver.is_in(State.COMPLETING), "the record was of generation 1"
    driver.sync_all([leader, newcomer])
    assert driver.is_in(State.STABLE)


def test_a_member_that_joins_again_while_its_join_waits_gets_one_good_answer() -> None:
    driver = Driver()
    member_id, first = driver.enter()
    second = driver.join(member_id)
    assert driver.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(DELAY_MS)
    assert driver.joined(second).error is ErrorCode.NONE
    assert driver.group.members.awaiting_join == 0


def test_a_member_that_missed_the_answer_to_its_join_gets_it_again() -> None:
    driver = Driver()
    member_id, first = driver.enter()
    driver.advance(DELAY_MS)
    assert driver.joined(driver.join(member_id)) == driver.joined(first)


def test_a_follower_that_rejoins_a_stable_group_unchanged_starts_no_rebalance() -> None:
    driver = Driver()
    _, follower = driver.stable(2)
    answer = driver.joined(driver.join(follower))
    assert (answer.error, answer.generation) == (ErrorCode.NONE, 1)
    assert driver.is_in(State.STABLE)


def test_a_leader_that_rejoins_a_stable_group_starts_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    ticket = driver.join(leader)
    assert driver.is_in(State.PREPARING)
    assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert driver.joined(ticket).generation == 2


@pytest.mark.parametrize("state", [State.COMPLETING, State.STABLE])
def test_a_member_that_changes_its_subscription_starts_a_rebalance(state: State) -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.enter(), driver.enter()
    driver.advance(3 * DELAY_MS)
    if state is State.STABLE:
        driver.sync_all([leader, follower])
    waiting = driver.sync(follower) if state is State.COMPLETING else None
    driver.join(follower, proposals=(Proposal("range", subscription("other")),))
    assert driver.is_in(State.PREPARING)
    if waiting is not None:
        assert driver.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_protocol_with_the_most_votes_among_those_that_all_support_is_chosen() -> None:
    driver = Driver()
    c = Proposal("c", b"")
    for proposals in ((c, A, B), (B, A), (B, A)):
        driver.enter(proposals=proposals, protocol_type="x")
    driver.advance(5 * DELAY_MS)
    assert driver.group.protocol_name == "b"


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": "connect"}, {"proposals": (B,)}, {"proposals": ()}, {"protocol_type": ""}],
)
def test_a_member_with_nothing_in_common_with_the_group_is_refused(changes: dict[str, Any]) -> None:
    driver = Driver()
    driver.enter(proposals=(A,))
    assert driver.joined(driver.join(**changes)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("changes", [{"proposals": ()}, {"protocol_type": ""}])
def test_an_empty_group_refuses_a_member_without_a_protocol(changes: dict[str, Any]) -> None:
    driver = Driver()
    assert driver.joined(driver.join(**changes)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    driver = Driver(group_max_size=2)
    leader, follower = driver.stable(2)
    assert driver.joined(driver.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    waiting = driver.join(leader)
    driver.join(follower)
    assert driver.joined(waiting).error is ErrorCode.NONE


def test_no_more_ids_are_given_out_than_a_group_has_places() -> None:
    driver = Driver(group_max_size=2)
    answers = [driver.joined(driver.join()).error for _ in range(3)]
    assert answers == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_group_over_its_bound_turns_away_the_last_to_rejoin() -> None:
    driver = Driver()
    members = driver.stable(3)
    driver.group.config = replace(driver.config, group_max_size=2)
    tickets = [driver.join(member_id) for member_id in members]
    assert [driver.joined(ticket).error for ticket in tickets] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert sorted(driver.group.members.by_id) == sorted(members[:2])


def test_the_order_of_a_syncs_checks_is_member_generation_protocol_state() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    wrong = {"generation": 9, "protocol_type": "other"}
    assert driver.synced(driver.sync("nobody", **wrong)).error is ErrorCode.UNKNOWN_MEMBER_ID  # type: ignore[arg-type]
    assert driver.synced(driver.sync(leader, **wrong)).error is ErrorCode.ILLEGAL_GENERATION  # type: ignore[arg-type]
    assert driver.synced(driver.sync(leader, protocol_type="other")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.synced(driver.sync(leader, protocol_name="other")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.join(leader)
    assert driver.synced(driver.sync(follower)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_order_of_a_heartbeats_checks_is_member_generation_state() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    assert driver.heartbeat("nobody", 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(follower, 9) is ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_are_good_while_the_assignment_is_awaited() -> None:
    driver = Driver()
    member_id, _ = driver.enter()
    driver.advance(DELAY_MS)
    assert driver.is_in(State.COMPLETING)
    assert driver.heartbeat(member_id) is ErrorCode.NONE


def test_who_may_commit_depends_on_membership_generation_and_state() -> None:
    driver = Driver()
    assert commit_error(driver, "", -1) is ErrorCode.NONE, "an empty group: an administrator may"
    assert commit_error(driver, "nobody", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    member_id, _ = driver.enter()
    driver.advance(DELAY_MS)
    assert commit_error(driver, member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync_all([member_id])
    assert commit_error(driver, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(driver, member_id, -1) is ErrorCode.ILLEGAL_GENERATION
    assert commit_error(driver, member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit_error(driver, "nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(driver, member_id, 1, "instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(driver, member_id, 1) is ErrorCode.NONE
    driver.join(member_id, proposals=(Proposal("range", subscription("new")),))
    driver.enter()
    driver.join(member_id)
    assert driver.is_in(State.COMPLETING)


def test_a_member_may_commit_for_its_generation_while_the_next_is_prepared() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    assert driver.is_in(State.PREPARING)
    assert commit_error(driver, follower, 1) is ErrorCode.NONE


def test_a_commit_is_a_sign_of_life() -> None:
    driver = Driver()
    (member_id,) = driver.stable()
    driver.advance(SESSION_MS - 1)
    assert commit_error(driver, member_id, 1) is ErrorCode.NONE
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(member_id) is ErrorCode.NONE


def test_members_that_leave_in_one_request_cause_one_rebalance() -> None:
    driver = Driver()
    members = driver.stable(3)
    results = driver.leave(members[0], "nobody", members[1])
    assert [left.error for left in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert driver.is_in(State.PREPARING)
    assert driver.group.members.leader == members[2]
    ticket = driver.join(members[2])
    assert driver.joined(ticket).generation == 2
    assert driver.joined(ticket).leader == members[2]


def test_the_last_to_leave_leaves_an_empty_group_that_is_stored() -> None:
    driver = Driver()
    (member_id,) = driver.stable()
    driver.leave(member_id)
    assert (driver.group.state, driver.group.generation) == (State.EMPTY, 2)
    driver.store()
    assert driver.stored is not None
    assert (driver.stored.protocol_type, driver.stored.protocol_name, driver.stored.leader) == ("consumer", None, None)
    assert driver.stored.members == []


def test_a_member_that_leaves_while_its_requests_wait_has_them_answered() -> None:
    driver = Driver()
    member_id, join = driver.enter()
    driver.leave(member_id)
    assert driver.joined(join).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.is_in(State.EMPTY)
    (leader, _), (follower, _) = driver.enter(), driver.enter()
    driver.advance(3 * DELAY_MS)
    sync = driver.sync(follower)
    driver.leave(follower)
    assert driver.synced(sync).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_phase_ends_early_when_the_one_it_waits_for_leaves() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    ticket = driver.join(leader)
    driver.leave(follower)
    assert driver.joined(ticket).generation == 2


def test_a_deleted_group_turns_everybody_away() -> None:
    driver = Driver()
    driver.group.delete(driver.now_ms)
    assert driver.joined(driver.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.synced(driver.sync("m")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat("m") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit_error(driver, "", -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(PeerError):
        driver.leave("m")


def test_a_group_with_members_cannot_be_deleted() -> None:
    driver = Driver()
    driver.stable()
    with pytest.raises(PeerError, match="NON_EMPTY_GROUP"):
        driver.group.delete(driver.now_ms)


def test_a_first_join_is_given_up_after_its_own_long_time() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    _, ticket = driver.enter()
    driver.advance(SESSION_MS * 2)
    assert driver.waits(ticket), "a session does not run before its member knows of it"
    driver.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert driver.joined(ticket).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.is_in(State.EMPTY)


def test_a_restored_group_is_the_group_that_was_stored() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    again = driver.restarted()
    assert (again.group.state, again.group.generation) == (State.STABLE, 1)
    assert again.heartbeat(follower) is ErrorCode.NONE
    assert again.synced(again.sync(follower)).assignment == follower.encode()
    assert again.group.members.leader == leader
    assert again.group.is_subscribed("orders")


def test_members_of_a_restored_group_that_do_not_come_back_expire() -> None:
    driver = Driver()
    leader, _ = driver.stable(2)
    again = driver.restarted()
    again.advance(SESSION_MS - 1)
    assert again.heartbeat(leader) is ErrorCode.NONE
    again.advance(1)
    assert list(again.group.members.by_id) == [leader]
    assert again.is_in(State.PREPARING)
