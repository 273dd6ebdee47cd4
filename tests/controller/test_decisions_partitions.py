"""Only a leader changes its in-sync set, only one in sync is elected unless loss is accepted, and leaders go home."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.controller.decisions_partitions import REBALANCED_MAX
from odradek.controller.image import NO_LEADER, ClusterImage, MetadataRecord, PartitionImage
from odradek.wire.errors import ErrorCode, PeerError
from tests.controller.worlds import World


def refusal(world: World, command: str, **args: Any) -> PeerError:
    with pytest.raises(PeerError) as caught:
        world.do(command, **args)
    return caught.value


# In-sync sets.


def test_a_leader_shrinks_and_grows_its_in_sync_set() -> None:
    world = World((1, 2, 3))
    topic_id = world.topic("t", [1, 2, 3])["topic_id"]
    assert world.alter([1]) == {
        "topic_id": topic_id,
        "partition": 0,
        "error": 0,
        "isr": [1],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 1,
    }
    assert world.alter([3, 1])["isr"] == [1, 3]
    assert world.partition() == PartitionImage((1, 2, 3), (1, 3), 1, 0, 2)


def test_the_set_that_is_there_is_no_change() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    answer = world.alter([2, 1])
    assert (answer["error"], answer["partition_epoch"]) == (0, 0)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"isr": [[3, -1]]}, ErrorCode.INVALID_REQUEST),
        ({"isr": []}, ErrorCode.INVALID_REQUEST),
        ({"isr": [[2, -1], [4, -1]]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [[2, -1], [3, 12345]]}, ErrorCode.INELIGIBLE_REPLICA),
        ({"isr": [[2, -1], [1, -1]]}, ErrorCode.INELIGIBLE_REPLICA),
        ({"topic_id": "00" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_change_of_the_in_sync_set_that_cannot_be_is_refused(changed: dict[str, Any], code: ErrorCode) -> None:
    world = World((1, 2, 3, 4))
    world.topic("t", [1, 2, 3])
    world.fence(1)
    before = world.partition()
    assert world.alter_as(2, [2], **changed)["error"] == code
    assert world.partition() == before


def test_one_that_does_not_lead_cannot_change_the_set() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    assert world.alter([2], leader=2)["error"] == ErrorCode.INVALID_REQUEST
    assert world.partition().isr == (1, 2)


def test_what_an_earlier_start_of_a_follower_fetched_does_not_count() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    earlier = world.epoch(2)
    world.live.discard(2)
    world.register(2, "b")
    world.beat(2)
    stale = [[1, world.epoch(1)], [2, earlier]]
    assert world.alter_as(1, [], isr=stale)["error"] == ErrorCode.INELIGIBLE_REPLICA
    assert world.alter([1, 2])["error"] == ErrorCode.NONE


@pytest.mark.parametrize("isr", [None, [1], [[1]], [[1, 1, 1]], [["1", 1]], [[1, -1], [1, -1]]])
def test_an_in_sync_set_that_makes_no_sense_is_refused_as_such(isr: object) -> None:
    world = World((1,))
    world.topic()
    with pytest.raises(PeerError) as caught:
        world.alter_as(1, [], isr=isr)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_partition_that_is_named_twice_is_refused() -> None:
    world = World((1,))
    asked = {"topic_id": world.topic()["topic_id"], "partition": 0}
    asked |= {"leader_epoch": 0, "partition_epoch": 0, "isr": [[1, -1]]}
    args = {"broker_id": 1, "broker_epoch": world.epoch(1), "partitions": [asked, asked]}
    assert refusal(world, "alter-partition", **args).code is ErrorCode.INVALID_REQUEST


# Elections.


def test_the_first_replica_leads_again_when_it_is_asked_for() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.fence(1)
    world.beat(1)
    ask = {"topic": "t", "partition": 0, "unclean": False}
    assert refusal(world, "elect", **ask).code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.alter([1, 2])
    assert world.do("elect", **ask) == {"elected": [["t", 0, 1]]}
    assert world.partition() == PartitionImage((1, 2), (1, 2), 1, 2, 3)
    assert refusal(world, "elect", **ask).code is ErrorCode.ELECTION_NOT_NEEDED


def test_one_that_was_not_in_sync_is_elected_only_when_loss_is_accepted() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2])
    world.alter([1])
    world.fence(1)
    ask = {"topic": "t", "partition": 0}
    assert refusal(world, "elect", **ask).code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.do("rebalance")
    world.do("adopt")
    assert world.partition().leader == NO_LEADER
    assert world.do("elect", **ask, unclean=True) == {"elected": [["t", 0, 2]]}
    assert world.partition() == PartitionImage((1, 2), (2,), 2, 2, 3)
    assert refusal(world, "elect", **ask, unclean=True).code is ErrorCode.ELECTION_NOT_NEEDED
    world.beat(1)
    assert world.partition().leader == 2


def test_nobody_can_be_elected_where_all_are_down() -> None:
    world = World((1, 2))
    world.topic("t", [1])
    world.fence(1)
    error = refusal(world, "elect", topic="t", partition=0, unclean=True)
    assert error.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_one_that_is_only_being_added_comes_last_in_an_unclean_election() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2])
    world.alter([1])
    world.reassign([3, 1])
    world.fence(1)
    world.live = {3}  # broker 2 has not been heard of yet
    world.do("elect", topic="t", partition=0, unclean=True)
    assert world.partition().leader == 2
    world.fence(2)
    world.do("elect", topic="t", partition=0, unclean=True)
    assert world.partition().leader == 3


def test_an_election_for_all_passes_over_those_that_need_none() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2], [2, 1])
    world.topic("u", [1, 2])
    world.fence(1)
    world.beat(1)
    for topic, index in (("t", 0), ("u", 0)):
        world.alter([1, 2], topic, index)
    assert world.do("elect", topic="t", partition=None) == {"elected": [["t", 0, 1]]}
    assert world.do("elect", topic=None) == {"elected": [["u", 0, 1]]}
    assert world.do("elect", unclean=True) == {"elected": []}


@pytest.mark.parametrize(("topic", "partition"), [("none", 0), ("t", 7), ("none", None)])
def test_an_election_for_what_is_not_there_is_refused(topic: str, partition: int | None) -> None:
    world = World((1,))
    world.topic()
    error = refusal(world, "elect", topic=topic, partition=partition)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Balance, and the start of a term.


def test_leadership_goes_back_to_first_replicas_that_are_in_sync_and_alive() -> None:
    world = World((1, 2))
    world.topic("t", [1, 2], [1, 2])
    world.fence(1)
    world.beat(1)
    world.alter([1, 2], "t", 0)
    world.live.discard(1)
    assert world.do("rebalance") == {"moved": 0}
    world.live.add(1)
    assert world.do("rebalance") == {"moved": 1}
    assert [world.partition("t", index).leader for index in (0, 1)] == [1, 2]


def test_only_so_many_leaders_move_at_once() -> None:
    world = World((1, 2))
    world.topic("t", *[[1, 2]] * (REBALANCED_MAX + 1))
    partitions = world.image.topics["t"].partitions
    partitions.update({index: PartitionImage((1, 2), (1, 2), 2, 1, 1) for index in partitions})
    assert world.decide("rebalance").result == {"moved": REBALANCED_MAX}


def test_what_a_broker_made_alone_becomes_its_own() -> None:
    world = World((1,))
    body = {"topic_name": "t", "topic_id": "0a" * 16, "configs": {}, "partitions": 2}
    world.image.apply(MetadataRecord("create-topic", body))
    decision = world.decide("adopt")
    assert decision.result == {"adopted": 2}
    for record in decision.records:
        world.image.apply(record)
    assert world.partition("t", 1) == PartitionImage((1,), (1,), 1, 1, 1)
    assert world.decide("adopt").records == []


def test_what_a_broker_made_alone_waits_for_it_to_register() -> None:
    image = ClusterImage()
    image.apply(
        MetadataRecord("create-topic", {"topic_name": "t", "topic_id": "0a" * 16, "configs": {}, "partitions": 1})
    )
    world = World()
    world.image = image
    for record in world.decide("adopt", broker_id=4).records:
        image.apply(record)
    assert world.partition() == PartitionImage((4,), (4,), NO_LEADER, 0, 1)
    world.register(4)
    world.beat(4)
    assert world.partition() == PartitionImage((4,), (4,), 4, 1, 2)


def test_a_new_controller_finishes_what_an_unfencing_left_undone() -> None:
    world = World((1,))
    world.topic()
    world.fence(1)
    epoch = world.epoch(1)
    decision = world.decide("heartbeat", broker_id=1, broker_epoch=epoch, applied_offset=len(world.log))
    world.write(decision.records[0])
    assert world.partition().leader == NO_LEADER
    assert world.decide("rebalance").records == world.decide("adopt").records
    world.live.clear()
    assert world.decide("rebalance").records == world.decide("adopt").records
    world.do("adopt")
    assert world.partition().leader == 1
