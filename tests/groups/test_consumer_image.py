"""A group is what its changes made it, in whatever order and however often they were stored."""

from __future__ import annotations

import pytest

from odradek.groups.assignors import Partitions, TopicIdPartition
from odradek.groups.consumer_image import Image, key_of
from odradek.groups.consumer_types import (
    Change,
    Current,
    CurrentChange,
    EpochChange,
    MemberChange,
    Subscription,
    TargetChange,
    TargetEpochChange,
    TopicFacts,
    TopicsChange,
)

TOPIC = bytes(16)


def some(*partitions: int) -> Partitions:
    return frozenset(TopicIdPartition(TOPIC, partition) for partition in partitions)


def subscription(instance_id: str | None = None) -> Subscription:
    return Subscription(
        instance_id=instance_id,
        rack_id=None,
        client_id="c",
        client_host="/h",
        topic_names=("t",),
        topic_regex=None,
        rebalance_timeout_ms=1,
        server_assignor=None,
    )


CHANGES: list[Change] = [
    EpochChange(3),
    TopicsChange({"t": TopicFacts(TOPIC, 2)}),
    MemberChange("a", subscription("one")),
    TargetChange("a", some(0, 1)),
    TargetEpochChange(3),
    CurrentChange("a", Current(epoch=3, assigned=some(0), revoking=some(1))),
]


def image_of(*changes: Change) -> Image:
    image = Image()
    for change in changes:
        image.apply(change)
    return image


def test_changes_of_different_keys_may_come_in_any_order() -> None:
    image = image_of(*CHANGES)
    assert image == image_of(*reversed(CHANGES)) == image_of(*CHANGES, *CHANGES)
    assert image.owners == dict.fromkeys(some(0, 1), "a")
    assert image.static("one") is image.members["a"]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_every_change_makes_a_difference_and_can_be_written_down_again(change: Change) -> None:
    whole = image_of(*CHANGES)
    without = image_of(*(other for other in CHANGES if other != change))
    assert without != whole
    without.apply(whole.change_of(key_of(change)))
    assert without == whole


def test_what_is_removed_leaves_nothing() -> None:
    image = image_of(*CHANGES)
    removals = [*image.removals("a"), TargetEpochChange(None), TopicsChange(None), EpochChange(None)]
    for change in removals:
        image.apply(change)
        image.apply(change)
    assert image == Image()
    assert image.static("one") is None
    assert [image.change_of(key_of(change)) for change in removals[:3]] == removals[:3]


def test_a_member_that_lost_a_partition_unnoticed_does_not_take_it_from_its_new_owner() -> None:
    # The record of a's giving it up was lost, so the log names two owners; the later one counts.
    image = image_of(
        CurrentChange("a", Current(epoch=1, assigned=some(0))), CurrentChange("b", Current(epoch=2, assigned=some(0)))
    )
    image.apply(CurrentChange("a", Current(epoch=2)))
    assert image.owners == dict.fromkeys(some(0), "b")
    assert not image.is_free_for(TopicIdPartition(TOPIC, 0), "a")
    assert image.is_free_for(TopicIdPartition(TOPIC, 0), "b")
    assert image.is_free_for(TopicIdPartition(TOPIC, 9), "a")


def test_the_successor_of_a_static_member_keeps_the_instance_when_the_predecessor_goes() -> None:
    image = image_of(MemberChange("a", subscription("one")), MemberChange("b", subscription("one")))
    image.apply(MemberChange("a", None))
    assert image.static("one") is image.members["b"]


def test_only_a_member_with_a_subscription_is_known() -> None:
    image = image_of(CurrentChange("a", Current(epoch=1)), MemberChange("b", subscription()))
    assert [member.is_known for member in image.members.values()] == [False, True]
