"""Brokers come, are heard of, fall silent, stop in an orderly way and leave; partitions go where they are in sync."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.controller.image import NO_LEADER, PartitionImage
from odradek.wire.errors import ErrorCode, PeerError
from tests.controller.worlds import World


def refusal(world: World, command: str, **args: Any) -> PeerError:
    with pytest.raises(PeerError) as caught:
        world.do(command, **args)
    return caught.value


# Registration.


def test_a_broker_is_fenced_until_it_has_read_its_registration() -> None:
    world = World((2,))
    epoch = world.register(1)
    assert epoch == len(world.log) - 1 == world.epoch(1)
    assert world.beat(1, behind=True) == {"fenced": True, "may_stop": False}
    assert world.image.brokers[1].fenced
    assert world.beat(1) == {"fenced": False, "may_stop": False}
    assert not world.image.brokers[1].fenced


def test_a_heartbeat_usually_writes_nothing() -> None:
    world = World((1, 2))
    world.topic()
    before = len(world.log)
    world.beat(1)
    assert len(world.log) == before


def test_the_same_start_may_register_again_and_a_later_one_gets_a_higher_epoch() -> None:
    world = World((1,))
    epoch, end = world.epoch(1), len(world.log)
    assert world.register(1) == epoch
    assert len(world.log) == end
    world.live.clear()
    assert world.register(1, "b") > epoch
    assert world.image.brokers[1].fenced


def test_a_second_broker_of_the_same_id_is_refused_while_the_first_is_alive() -> None:
    world = World((1,))
    with pytest.raises(PeerError, match="another broker with id 1 is alive at h:9001") as caught:
        world.register(1, "b")
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.fence(1)
    world.register(1, "b")


def test_a_broker_with_a_new_directory_is_refused_where_only_its_old_one_had_all_records() -> None:
    world = World((1, 2))
    world.fence(1)
    world.register(1, "b", directory="old")
    world.beat(1)
    world.do("create-topic", name="t", partitions=1, replication_factor=-1, assignments={"0": [1, 2]}, configs={})
    world.fence(2)
    world.fence(1)
    with pytest.raises(PeerError, match="only its old one had all records of t-0") as caught:
        world.register(1, "c", directory="new")
    assert caught.value.code is ErrorCode.INVALID_REGISTRATION
    world.register(1, "c", directory="old")
    world.beat(1)
    assert world.image.topics["t"].partitions[0].leader == 1


def test_a_broker_with_a_new_directory_is_welcome_where_others_have_the_records() -> None:
    world = World((1, 2))
    world.fence(1)
    world.register(1, "b", directory="old")
    world.beat(1)
    world.do("create-topic", name="t", partitions=1, replication_factor=-1, assignments={"0": [1, 2]}, configs={})
    world.fence(1)
    world.register(1, "c", directory="new")
    world.beat(1)
    assert world.image.topics["t"].partitions[0].isr == (2,)


def test_a_broker_of_another_cluster_is_refused() -> None:
    world = World()
    with pytest.raises(PeerError, match="belongs to cluster x, and this is cluster c") as caught:
        world.register(1, cluster_id="x")
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    for cluster_id in ("c", "", None):
        world.register(1, cluster_id=cluster_id)


def test_what_an_earlier_start_led_goes_to_others_first() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.topic("alone", [1])
    world.live.discard(1)
    epoch = world.register(1, "b")
    assert epoch == len(world.log) - 1 == world.epoch(1)
    assert world.partition() == PartitionImage((1, 2), (2,), 2, 1, 1)
    assert world.partition("alone") == PartitionImage((1,), (1,), NO_LEADER, 1, 1)
    world.beat(1)
    assert world.partition("alone") == PartitionImage((1,), (1,), 1, 2, 2)


# Heartbeats.


def test_a_broker_of_an_earlier_registration_is_told_so() -> None:
    world = World((1,))
    args = {"broker_id": 1, "broker_epoch": 99, "applied_offset": 100}
    assert refusal(world, "heartbeat", **args).code is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(world, "heartbeat", **args | {"broker_id": 5}).code is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(world, "alter-partition", **args, partitions=[]).code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_can_ask_to_be_fenced_and_stay_so() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    assert world.beat(1, wants_fence=True)["fenced"]
    assert world.partition() == PartitionImage((1, 2), (2,), 2, 1, 1)
    assert world.beat(1, wants_fence=True)["fenced"]
    assert not world.beat(1)["fenced"]


def test_a_broker_that_was_fenced_is_counted_on_again_when_it_knows_of_it() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.fence(1)
    fenced_at = len(world.log) - 1
    assert world.image.brokers[1].fenced_at == fenced_at
    args = {"broker_id": 1, "broker_epoch": world.epoch(1)}
    assert world.do("heartbeat", **args, applied_offset=fenced_at - 1)["fenced"], "it takes itself for the leader still"
    assert not world.do("heartbeat", **args, applied_offset=fenced_at)["fenced"]


# Fencing.


def test_a_broker_that_falls_silent_leaves_the_in_sync_sets_and_others_lead() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2, 3], [2, 1, 3])
    world.fence(1)
    assert world.partition("t", 0) == PartitionImage((1, 2, 3), (2, 3), 2, 1, 1)
    assert world.partition("t", 1) == PartitionImage((2, 1, 3), (2, 3), 2, 0, 1)
    assert world.decide("fence-broker", broker_id=1).records == []
    assert world.decide("fence-broker", broker_id=9).records == []


def test_the_last_in_sync_stays_so_and_leads_again_when_it_is_back() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.fence(1, 2)
    assert world.partition() == PartitionImage((1, 2), (2,), NO_LEADER, 2, 2)
    world.beat(1)
    assert world.partition().leader == NO_LEADER, "broker 1 was not in sync"
    world.beat(2)
    assert world.partition() == PartitionImage((1, 2), (2,), 2, 3, 3)


def test_one_whose_session_is_alive_is_elected_before_one_that_may_be_dead_too() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2, 3])
    world.live -= {1, 2}
    world.do("fence-broker", broker_id=1)
    assert world.partition().leader == 3


def test_one_that_has_not_been_heard_of_yet_is_better_than_none() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.live.clear()
    world.do("fence-broker", broker_id=1)
    assert world.partition().leader == 2


# Controlled shutdown.


def test_a_broker_that_stops_hands_over_first() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2], [2, 1])
    assert world.beat(1, wants_shutdown=True) == {"fenced": False, "may_stop": False}
    assert world.partition("t", 0) == PartitionImage((1, 2), (2,), 2, 1, 1)
    assert world.partition("t", 1) == PartitionImage((2, 1), (2,), 2, 0, 1)
    assert world.beat(1, wants_shutdown=True) == {"fenced": False, "may_stop": True}
    world.fence(1)
    assert world.beat(1, wants_shutdown=True) == {"fenced": True, "may_stop": True}


def test_a_broker_that_stops_is_not_taken_into_sync_again() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.beat(1, wants_shutdown=True)
    assert world.alter([1, 2])["error"] == ErrorCode.INELIGIBLE_REPLICA
    world.live.clear()
    world.register(1, "b")
    world.beat(1)
    assert world.alter([1, 2])["error"] == ErrorCode.NONE


def test_a_broker_that_stands_alone_may_stop_at_once() -> None:
    world = World((1,))
    world.topic()
    assert world.beat(1, wants_shutdown=True)["may_stop"]
    assert world.partition() == PartitionImage((1,), (1,), 1)


def test_a_broker_that_stops_waits_for_a_follower_that_is_about_to_catch_up() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2])
    world.alter([1])
    assert not world.beat(1, wants_shutdown=True)["may_stop"]
    assert not world.beat(1, wants_shutdown=True)["may_stop"]
    answer = world.alter([1, 2])
    assert (answer["error"], answer["leader"]) == (ErrorCode.NEW_LEADER_ELECTED, 2)
    assert not world.beat(1, wants_shutdown=True)["may_stop"]
    assert world.partition().isr == (2,)
    assert world.beat(1, wants_shutdown=True)["may_stop"]


def test_a_broker_that_stops_does_not_wait_for_one_that_is_down_or_being_added() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2])
    world.fence(2)
    world.reassign([3])
    assert world.beat(1, wants_shutdown=True)["may_stop"]


def test_all_can_stop_together() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for broker_id in (1, 2, 3):
        world.beat(broker_id, wants_shutdown=True)
    assert all(world.beat(broker_id, wants_shutdown=True)["may_stop"] for broker_id in (1, 2, 3))
    assert {world.partition("t", index).leader for index in range(3)} == {3}


def test_one_that_stops_leads_when_nobody_else_in_sync_is_left() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.alter([1])
    world.beat(1, wants_shutdown=True)
    world.fence(2)
    assert world.partition().leader == 1
    assert world.beat(1, wants_shutdown=True)["may_stop"]


# Farewell.


def test_a_broker_that_still_has_replicas_is_not_forgotten() -> None:
    world = World((1, 2))
    world.topic("t", *[[1]] * 7)
    error = refusal(world, "unregister-broker", broker_id=1)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.message.startswith("broker 1 still has replicas of t-0, t-1, t-2, t-3, t-4 and 2 more;")
    world.do("unregister-broker", broker_id=2)
    assert set(world.image.brokers) == {1}
    assert refusal(world, "unregister-broker", broker_id=2).code is ErrorCode.BROKER_ID_NOT_REGISTERED
