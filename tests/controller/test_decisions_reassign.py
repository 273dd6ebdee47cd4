"""A partition moves: it keeps what it has until what it gets is in sync, and it can be called back."""

from __future__ import annotations

import pytest

from odradek.controller.image import NO_LEADER, PartitionImage
from odradek.wire.errors import ErrorCode, PeerError
from tests.controller.worlds import World


def moving() -> World:
    """Partition t-0 is on its way from brokers 1 and 2 to 3 and 4."""
    world = World((1, 2, 3, 4))
    world.topic("t", [1, 2])
    world.reassign([3, 4])
    return world


def test_a_partition_moves_when_all_new_replicas_are_in_sync() -> None:
    world = moving()
    assert world.partition() == PartitionImage((3, 4, 1, 2), (1, 2), 1, 0, 1, (3, 4), (1, 2))
    assert world.alter([1, 2, 3])["error"] == ErrorCode.NONE
    assert world.partition().adding == (3, 4)
    answer = world.alter([1, 2, 3, 4])
    assert (answer["error"], answer["leader"], answer["isr"]) == (ErrorCode.NEW_LEADER_ELECTED, 3, [3, 4])
    assert world.partition() == PartitionImage((3, 4), (3, 4), 3, 1, 3)


def test_a_leader_that_stays_goes_on_leading() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2])
    world.reassign([3, 1])
    assert world.alter([1, 2, 3])["error"] == ErrorCode.NONE
    assert world.partition() == PartitionImage((3, 1), (3, 1), 1, 0, 2)


def test_a_replica_that_is_only_taken_away_goes_at_once() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2, 3])
    world.reassign([3, 2])
    assert world.partition() == PartitionImage((3, 2), (2, 3), 3, 1, 1)


def test_the_last_in_sync_is_not_taken_away() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.alter([1])
    world.reassign([2])
    assert world.partition() == PartitionImage((2, 1), (1,), 1, 0, 2, (), (1,))
    assert world.alter([1, 2])["leader"] == 2
    assert world.partition() == PartitionImage((2,), (2,), 2, 1, 3)


def test_another_order_makes_another_first_replica() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.reassign([2, 1])
    assert world.partition() == PartitionImage((2, 1), (1, 2), 1, 0, 1)
    world.do("rebalance")
    assert world.partition().leader == 2
    assert world.decide("reassign", partitions=[{"topic": "t", "partition": 0, "replicas": [2, 1]}]).records == []


def test_a_move_is_called_back() -> None:
    world = moving()
    world.alter([1, 2, 3])
    world.reassign(None)
    assert world.partition() == PartitionImage((1, 2), (1, 2), 1, 0, 3)
    with pytest.raises(PeerError) as caught:
        world.reassign(None)
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_leader_that_was_only_being_added_gives_way_when_the_move_is_called_back() -> None:
    world = moving()
    world.alter([1, 2, 3])
    world.fence(1)
    assert world.partition().leader == 3
    world.reassign(None)
    assert world.partition().replicas == (1, 2)
    assert world.partition().leader == 2


def test_a_move_is_not_called_back_when_only_new_replicas_are_in_sync() -> None:
    world = moving()
    world.alter([1, 2, 3])
    world.fence(1, 2)
    assert world.partition().isr == (3,)
    with pytest.raises(PeerError, match="cannot go back") as caught:
        world.reassign(None)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_move_can_change_its_goal() -> None:
    world = moving()
    world.alter([1, 2, 3])
    world.reassign([2, 4])
    # Broker 3 is in sync and leaves in the end; 4 is still to come.
    assert world.partition() == PartitionImage((2, 4, 3, 1), (3, 1, 2), 1, 0, 3, (4,), (3, 1))
    world.reassign([1, 2])
    assert world.partition() == PartitionImage((1, 2), (1, 2), 1, 0, 4)


def test_a_new_replica_that_dies_holds_the_move_up_and_nothing_else() -> None:
    world = moving()
    world.alter([1, 2, 3])
    world.fence(4)
    assert world.partition().adding == (3, 4)
    world.fence(3)
    assert world.partition() == PartitionImage((3, 4, 1, 2), (1, 2), 1, 0, 3, (3, 4), (1, 2))
    world.beat(3)
    world.beat(4)
    world.alter([1, 2, 3, 4])
    assert world.partition().replicas == (3, 4)


def test_a_move_goes_on_when_the_leader_dies() -> None:
    world = moving()
    world.fence(1)
    assert world.partition().leader == 2
    world.alter([2, 3, 4])
    assert world.partition().replicas == (3, 4)
    assert world.partition().isr == (3, 4)


def test_a_broker_that_partitions_move_to_is_not_forgotten() -> None:
    world = moving()
    with pytest.raises(PeerError, match="broker 4 still has replicas of t-0;"):
        world.do("unregister-broker", broker_id=4)


def test_the_last_in_sync_of_those_that_stay_is_down() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2])
    world.alter([1])
    world.fence(1)
    world.reassign([1, 3])
    assert world.partition() == PartitionImage((1, 3, 2), (1,), NO_LEADER, 1, 3, (3,), (2,))
    world.beat(1)
    assert world.alter([1, 3])["error"] == ErrorCode.NONE
    assert world.partition() == PartitionImage((1, 3), (1, 3), 1, 2, 5)


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ([], "at least one replica"),
        ([1, 1], "named twice"),
        ([1, 9], "broker 9 is not registered"),
        ([1, 3], "broker 3 is down"),
        ([4], "broker 4 is down or about to stop"),
    ],
)
def test_a_goal_that_cannot_be_is_refused(replicas: list[int], problem: str) -> None:
    world = World((1, 2, 3, 4))
    world.topic("t", [1, 2])
    world.fence(3)
    world.beat(4, wants_shutdown=True)
    with pytest.raises(PeerError, match=problem) as caught:
        world.reassign(replicas)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_present_replica_that_is_down_may_stay() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2, 3])
    world.fence(2)
    world.reassign([1, 2])
    assert world.partition() == PartitionImage((1, 2), (1,), 1, 0, 2)


def test_a_request_with_one_bad_goal_moves_nothing() -> None:
    world = World((1, 2))
    world.topic("t", [1], [1])
    goals = [{"topic": "t", "partition": 0, "replicas": [2]}, {"topic": "t", "partition": 1, "replicas": [9]}]
    with pytest.raises(PeerError):
        world.do("reassign", partitions=goals)
    assert world.partition("t", 0).adding == ()


def test_a_partition_that_is_not_there_does_not_move() -> None:
    world = World((1,))
    with pytest.raises(PeerError) as caught:
        world.reassign([1])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
