"""Static members (KIP-345): they keep their place over a restart of their process; an old process is fenced."""

from __future__ import annotations

import pytest

from odradek.groups.classic_types import Leaving, Proposal, State
from odradek.wire.errors import ErrorCode
from tests.groups.classics import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver, subscription


def static_pair(driver: Driver) -> tuple[str, str]:
    """A stable group of two static members, `one` (which leads) and `two`."""
    driver.join(instance_id="one", fresh_member_id="one-1")
    driver.join(instance_id="two", fresh_member_id="two-1")
    driver.advance(3 * DELAY_MS)
    driver.sync_all(["one-1", "two-1"])
    return "one-1", "two-1"


def test_a_static_member_needs_no_id_first() -> None:
    driver = Driver()
    ticket = driver.join(instance_id="one", fresh_member_id="one-1")
    driver.advance(DELAY_MS)
    answer = driver.joined(ticket)
    assert (answer.error, answer.member_id) == (ErrorCode.NONE, "one-1")
    assert answer.members[0].instance_id == "one"


def test_a_static_member_that_comes_back_to_a_stable_group_starts_no_rebalance() -> None:
    driver = Driver()
    static_pair(driver)
    ticket = driver.join(instance_id="two", fresh_member_id="two-2")
    assert driver.waits(ticket), "its new id is not durable yet"
    driver.store()
    answer = driver.joined(ticket)
    assert (answer.error, answer.generation, answer.member_id) == (ErrorCode.NONE, 1, "two-2")
    assert (answer.leader, answer.skip_assignment, answer.members) == ("one-1", False, ())
    assert driver.is_in(State.STABLE)
    assert driver.synced(driver.sync("two-2", instance_id="two")).assignment == b"two-1"
    assert driver.stored is not None
    assert [member.member_id for member in driver.stored.members] == ["one-1", "two-2"]


def test_a_static_leader_that_comes_back_learns_that_it_need_not_assign() -> None:
    driver = Driver()
    static_pair(driver)
    ticket = driver.join(instance_id="one", fresh_member_id="one-2")
    driver.store()
    answer = driver.joined(ticket)
    assert (answer.leader, answer.skip_assignment) == ("one-2", True)
    assert [member.member_id for member in answer.members] == ["one-2", "two-1"]


def test_a_static_leader_of_an_old_version_is_told_that_another_leads() -> None:
    driver = Driver()
    static_pair(driver)
    ticket = driver.join(instance_id="one", fresh_member_id="one-2", can_skip_assignment=False)
    driver.store()
    answer = driver.joined(ticket)
    assert (answer.leader, answer.skip_assignment, answer.members) == ("one-1", False, ())


def test_a_static_member_whose_return_could_not_be_stored_is_told_so() -> None:
    driver = Driver()
    static_pair(driver)
    ticket = driver.join(instance_id="two", fresh_member_id="two-2")
    driver.store(ErrorCode.NOT_COORDINATOR)
    assert driver.joined(ticket).error is ErrorCode.NOT_COORDINATOR
    again = driver.join(instance_id="two", fresh_member_id="two-3")
    driver.store()
    assert driver.joined(again).error is ErrorCode.NONE


def test_the_old_process_of_a_static_member_is_fenced_everywhere() -> None:
    driver = Driver()
    _, old = static_pair(driver)
    driver.join(instance_id="two", fresh_member_id="two-2")
    driver.store()
    assert driver.heartbeat(old, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.synced(driver.sync(old, instance_id="two")).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.joined(driver.join(old, instance_id="two")).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.leave(old, instance_id="two")[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat("two-2", instance_id="two") is ErrorCode.NONE


def test_fencing_comes_before_an_illegal_generation() -> None:
    driver = Driver()
    _, old = static_pair(driver)
    driver.join(instance_id="two", fresh_member_id="two-2")
    assert driver.heartbeat(old, 99, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(old, 99, instance_id="three") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("waits_for", ["join", "sync"])
def test_a_request_of_the_old_process_that_waits_is_answered_as_fenced(waits_for: str) -> None:
    driver = Driver()
    ticket = driver.join(instance_id="one", fresh_member_id="one-1")
    driver.join(instance_id="two", fresh_member_id="two-1")
    if waits_for == "sync":
        driver.advance(3 * DELAY_MS)
        ticket = driver.sync("one-1", {}, instance_id="one")
    driver.join(instance_id="one", fresh_member_id="one-2")
    answer = driver.joined(ticket) if waits_for == "join" else driver.synced(ticket)
    assert answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.is_in(State.PREPARING)


def test_a_static_member_that_comes_back_while_others_sync_starts_a_rebalance() -> None:
    driver = Driver()
    driver.join(instance_id="one", fresh_member_id="one-1")
    driver.join(instance_id="two", fresh_member_id="two-1")
    driver.advance(3 * DELAY_MS)
    waiting = driver.sync("one-1", {"one-1": b"", "two-1": b""}, instance_id="one")
    driver.join(instance_id="two", fresh_member_id="two-2")
    assert driver.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.store()
    assert driver.is_in(State.PREPARING)


def test_a_static_member_that_comes_back_with_other_protocols_starts_a_rebalance() -> None:
    driver = Driver()
    both = (Proposal("range", subscription("t")), Proposal("sticky", subscription("t")))
    driver.join(instance_id="one", fresh_member_id="one-1", proposals=both)
    driver.advance(DELAY_MS)
    driver.sync_all(["one-1"])
    ticket = driver.join(instance_id="one", fresh_member_id="one-2", proposals=both[1:])
    assert driver.joined(ticket).protocol_name == "sticky"
    assert driver.joined(ticket).generation == 2


def test_a_rebalance_that_begins_while_a_return_is_being_stored_takes_the_member_along() -> None:
    driver = Driver()
    static_pair(driver)
    ticket = driver.join(instance_id="two", fresh_member_id="two-2")
    driver.join("one-1", instance_id="one")
    answer = driver.joined(ticket)
    assert (answer.error, answer.generation) == (ErrorCode.NONE, 2)
    driver.store()
    assert driver.is_in(State.COMPLETING)


def test_static_members_are_not_removed_for_not_rejoining_but_for_silence() -> None:
    driver = Driver()
    driver.join(instance_id="one", fresh_member_id="one-1", session_timeout_ms=5 * REBALANCE_MS)
    dynamic, _ = driver.enter()
    driver.advance(3 * DELAY_MS)
    driver.sync_all(["one-1", dynamic])
    ticket = driver.join(dynamic, proposals=(Proposal("range", subscription("new")),))
    driver.advance(REBALANCE_MS)
    answer = driver.joined(ticket)
    assert answer.leader == dynamic
    assert [member.member_id for member in answer.members] == ["one-1", dynamic]
    driver.sync_all([dynamic])
    driver.advance(SESSION_MS)
    assert list(driver.group.members.by_id) == ["one-1"]
    driver.advance(5 * REBALANCE_MS)
    assert driver.is_in(State.EMPTY)


def test_an_administrator_removes_a_static_member_by_its_instance_id_alone() -> None:
    driver = Driver()
    static_pair(driver)
    results, _ = driver.group.leave([Leaving("", "two"), Leaving("", "three"), Leaving("", None)], driver.now_ms)
    assert [left.error for left in results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert driver.heartbeat("one-1") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_may_come_back_to_a_full_group() -> None:
    driver = Driver(group_max_size=2)
    static_pair(driver)
    ticket = driver.join(instance_id="two", fresh_member_id="two-2")
    driver.store()
    assert driver.joined(ticket).error is ErrorCode.NONE


def test_a_restored_group_knows_its_static_members() -> None:
    driver = Driver()
    static_pair(driver)
    again = driver.restarted()
    ticket = again.join(instance_id="one", fresh_member_id="one-2")
    again.store()
    assert (again.joined(ticket).generation, again.joined(ticket).skip_assignment) == (1, True)
