"""A member gives up before it gets: each step of one member towards a target, with others holding what they hold."""

from __future__ import annotations

from odradek.groups.assignors import Partitions, TopicIdPartition
from odradek.groups.consumer_types import Current, MemberState
from odradek.groups.reconcile import Target, reconcile

TOPIC = bytes(16)


def some(*partitions: int) -> Partitions:
    return frozenset(TopicIdPartition(TOPIC, partition) for partition in partitions)


def step(current: Current, target: Target, owned: Partitions | None = None, held: Partitions = frozenset()) -> Current:
    """Reconcile while others hold some partitions."""
    return reconcile(current, target, owned, lambda partition: partition not in held)


def stable(epoch: int, *partitions: int) -> Current:
    return Current(epoch=epoch, previous_epoch=epoch - 1, assigned=some(*partitions))


def test_a_stable_member_at_the_targets_epoch_stays_as_it_is() -> None:
    current = stable(5, 1, 2)
    assert step(current, Target(5, some(1, 2)), owned=some(1)) is current


def test_a_newcomer_gets_what_is_free_and_waits_for_the_rest() -> None:
    after = step(Current(), Target(3, some(1, 2, 3)), some(), held=some(2))
    assert after == Current(epoch=3, state=MemberState.UNRELEASED_PARTITIONS, assigned=some(1, 3))
    assert step(after, Target(3, some(1, 2, 3))) == Current(epoch=3, assigned=some(1, 2, 3))


def test_a_member_keeps_waiting_while_others_hold_on() -> None:
    waiting = Current(epoch=3, state=MemberState.UNRELEASED_PARTITIONS, assigned=some(1))
    assert step(waiting, Target(3, some(1, 2)), held=some(2)) == waiting


def test_what_must_be_given_up_keeps_a_member_in_its_epoch_and_brings_nothing_new() -> None:
    after = step(stable(5, 1, 2), Target(6, some(2, 3)))
    assert after == Current(
        epoch=5, previous_epoch=4, state=MemberState.UNREVOKED_PARTITIONS, assigned=some(2), revoking=some(1)
    )


def test_only_a_heartbeat_without_the_partition_confirms_that_it_was_given_up() -> None:
    target = Target(6, some(2, 3))
    revoking = step(stable(5, 1, 2), target)
    assert step(revoking, target) is revoking
    assert step(revoking, target, some(1, 2)) is revoking
    assert step(revoking, target, some(2)) == Current(epoch=6, previous_epoch=5, assigned=some(2, 3))


def test_a_target_that_moved_on_meanwhile_may_ask_for_more_in_the_epoch_after() -> None:
    revoking = step(stable(5, 1, 2), Target(6, some(2)))
    after = step(revoking, Target(9, some(4)), some(2))
    assert after == Current(epoch=6, previous_epoch=5, state=MemberState.UNREVOKED_PARTITIONS, revoking=some(2))
    assert step(after, Target(9, some(4)), some()) == Current(epoch=9, previous_epoch=6, assigned=some(4))


def test_what_the_member_says_it_does_not_own_need_not_be_given_up() -> None:
    assert step(stable(5, 1, 2), Target(6, some(2)), some(2)) == Current(epoch=6, previous_epoch=5, assigned=some(2))


def test_a_partition_that_comes_back_before_it_was_given_up_is_given_again_after_that() -> None:
    revoking = step(stable(5, 1, 2), Target(6, some(2)))
    assert step(revoking, Target(7, some(1, 2)), some(2)).assigned == some(1, 2)
