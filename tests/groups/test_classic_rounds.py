"""What the clock does to a classic group: first rounds, sessions, members that do not join or do not sync."""

from __future__ import annotations

import pytest

from odradek.groups.classic_types import Proposal, State
from odradek.wire.errors import ErrorCode
from tests.groups.classics import DELAY_MS, REBALANCE_MS, SESSION_MS, START_MS, Driver, subscription


def test_the_first_round_waits_a_little_for_more_members() -> None:
    driver = Driver()
    _, ticket = driver.enter()
    driver.advance(DELAY_MS - 1)
    assert driver.waits(ticket)
    driver.advance(1)
    assert driver.joined(ticket).generation == 1


def test_every_newcomer_prolongs_the_first_round() -> None:
    driver = Driver()
    tickets = []
    for _ in range(4):
        tickets.append(driver.enter()[1])
        driver.advance(DELAY_MS // 2)
    assert all(map(driver.waits, tickets))
    driver.advance(2 * DELAY_MS)
    assert {driver.joined(ticket).generation for ticket in tickets} == {1}


def test_newcomers_cannot_prolong_the_first_round_beyond_the_rebalance_timeout() -> None:
    driver = Driver()
    tickets: list[int] = []
    while driver.group.generation == 0 and len(tickets) < 100:
        tickets.append(driver.enter(rebalance_timeout_ms=5 * DELAY_MS)[1])
        driver.advance(DELAY_MS // 2)
    assert driver.now_ms - START_MS <= 5 * DELAY_MS
    assert driver.is_in(State.COMPLETING)


def test_without_a_delay_the_first_member_begins_at_once() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=0)
    _, ticket = driver.enter()
    assert driver.joined(ticket).generation == 1


def test_a_group_that_was_emptied_begins_with_a_first_round_again() -> None:
    driver = Driver()
    driver.leave(*driver.stable())
    _, ticket = driver.enter()
    driver.advance(DELAY_MS - 1)
    assert driver.waits(ticket)
    driver.advance(1)
    assert driver.joined(ticket).generation == 3


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(follower) is ErrorCode.NONE
    driver.advance(1)
    assert driver.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_when_all_are_silent_the_group_becomes_empty() -> None:
    driver = Driver()
    driver.stable(3)
    driver.advance(SESSION_MS)
    assert driver.is_in(State.EMPTY)
    assert driver.group.next_deadline() is None
    driver.store()
    assert driver.stored is not None
    assert driver.stored.members == []


def test_heartbeats_keep_a_member_for_ever() -> None:
    driver = Driver()
    (member_id,) = driver.stable()
    for _ in range(10):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(member_id) is ErrorCode.NONE
    assert driver.group.generation == 1


def test_a_member_that_waits_for_us_does_not_expire() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    waiting = driver.join(leader)
    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.waits(waiting)
    driver.join(follower)
    assert driver.joined(waiting).error is ErrorCode.NONE
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(leader) is ErrorCode.NONE, "its session begins with our answer"


def test_a_member_that_was_told_of_a_rebalance_has_a_whole_session_to_rejoin() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.enter(), driver.enter()
    driver.advance(3 * DELAY_MS)
    waiting = driver.sync(follower)
    for _ in range(3):  # longer than a session: nothing counts against one that waits
        driver.heartbeat(leader)
        driver.advance(SESSION_MS - 1)
    driver.join(leader, proposals=(Proposal("range", subscription("more")),))
    assert driver.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(SESSION_MS - 1)
    assert follower in driver.group.members.by_id
    driver.advance(1)
    assert follower not in driver.group.members.by_id


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    waiting = driver.join(leader)
    while driver.waits(waiting):
        assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS, "alive, but busy"
        driver.advance(SESSION_MS // 2)
    assert REBALANCE_MS <= driver.now_ms - START_MS <= REBALANCE_MS + SESSION_MS
    assert [member.member_id for member in driver.joined(waiting).members] == [leader]
    assert driver.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_does_not_rejoin_another_leads() -> None:
    driver = Driver()
    leader, follower, third = driver.stable(3)
    driver.join(follower, proposals=(Proposal("range", subscription("new")),))
    ticket = driver.join(third)
    driver.advance(SESSION_MS)
    assert leader not in driver.group.members.by_id
    assert driver.joined(ticket).leader == follower


def test_the_most_patient_member_sets_the_rebalance_timeout() -> None:
    driver = Driver()
    first, _ = driver.enter(rebalance_timeout_ms=1_000)
    second, _ = driver.enter(rebalance_timeout_ms=4_000)
    driver.advance(3 * DELAY_MS)
    driver.sync_all([first, second])
    waiting = driver.join(first, rebalance_timeout_ms=1_000)
    driver.advance(3_999)
    assert driver.waits(waiting)
    driver.advance(1)
    assert driver.joined(waiting).generation == 2


def test_one_that_was_only_told_its_id_is_waited_for() -> None:
    driver = Driver()
    (leader,) = driver.stable()
    pending = driver.joined(driver.join()).member_id
    waiting = driver.join(leader)
    assert driver.waits(waiting)
    driver.join(pending)
    assert len(driver.joined(waiting).members) == 2


def test_one_that_was_only_told_its_id_is_not_waited_for_longer_than_its_session() -> None:
    driver = Driver()
    (leader,) = driver.stable()
    driver.join()
    waiting = driver.join(leader)
    driver.advance(SESSION_MS)
    assert len(driver.joined(waiting).members) == 1


@pytest.mark.parametrize("leader_syncs", [False, True])
def test_members_that_never_sync_are_removed(leader_syncs: bool) -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.enter(), driver.enter()
    driver.advance(3 * DELAY_MS)
    if leader_syncs:
        driver.sync(leader, {})
        driver.store()
    else:
        driver.sync(follower)
    lazy, diligent = (follower, leader) if leader_syncs else (leader, follower)
    while not driver.is_in(State.PREPARING):
        driver.advance(SESSION_MS // 2)
        for member_id in (leader, follower):
            driver.heartbeat(member_id)
    assert driver.heartbeat(lazy) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(diligent) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_stable_group_in_which_all_have_synced_waits_for_sessions_only() -> None:
    driver = Driver()
    members = driver.stable(2)
    for _ in range(2 * REBALANCE_MS // SESSION_MS):
        driver.advance(SESSION_MS - 1)
        assert [driver.heartbeat(member_id) for member_id in members] == [ErrorCode.NONE] * 2
    assert driver.group.generation == 1


def test_the_group_is_called_no_later_than_any_of_its_deadlines() -> None:
    driver = Driver()
    driver.stable(1, session_timeout_ms=30_000)
    short, _ = driver.enter(session_timeout_ms=6_000)
    deadline_ms = driver.group.next_deadline()
    assert deadline_ms is not None
    assert deadline_ms <= driver.now_ms + 30_000
    driver.leave(short)
    driver.group.on_timer(driver.now_ms)
    assert driver.group.next_deadline() is not None


def test_the_topics_of_all_consumers_count_as_subscribed() -> None:
    driver = Driver()
    driver.enter(proposals=(Proposal("range", subscription("a", "b")),))
    driver.enter(proposals=(Proposal("range", subscription("c")),))
    driver.advance(3 * DELAY_MS)
    assert driver.group.subscribed == frozenset({"a", "b", "c"})


def test_of_members_that_are_no_consumers_or_unreadable_no_topic_is_known() -> None:
    for changes in ({"protocol_type": "connect"}, {"proposals": (Proposal("range", b"\x00"),)}):
        driver = Driver()
        driver.enter(**changes)
        driver.advance(DELAY_MS)
        assert driver.group.subscribed is None
        assert not driver.group.is_subscribed("orders")
