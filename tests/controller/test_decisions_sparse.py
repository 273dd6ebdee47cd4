"""Partitions that are made and deleted one by one: which may be, what their records say, and what a topic remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.controller.decisions_sparse import GAPS_MAX
from odradek.controller.image import MetadataRecord, PartitionImage, PartitionLimits
from odradek.model import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode, PeerError
from tests.controller.worlds import Result, World

LIMITS = {"segment_bytes": 40, "partition_bytes": 80, "ttl_seconds": 3}


def make(world: World, index: int, name: str = "t", **changed: Any) -> Result:
    return world.do("create-partition", name=name, partition=index, **{"limits": LIMITS, **changed})


def delete(world: World, index: int, name: str = "t") -> Result:
    return world.do("delete-partition", name=name, partition=index)


def refused(world: World, command: str, **args: Any) -> PeerError:
    with pytest.raises(PeerError) as raised:
        world.do(command, **args)
    return raised.value


def test_the_first_partition_makes_the_topic_whatever_its_number_is() -> None:
    world = World((1, 2, 3))
    make(world, 7)
    topic = world.image.topics["t"]
    assert list(topic.partitions) == [7]
    assert (topic.partition_count, topic.number) == (8, 1)
    assert topic.partitions[7].limits == PartitionLimits(40, 80, 3)
    assert len(topic.partitions[7].replicas) == 3


def test_a_further_partition_has_as_many_replicas_as_the_first_and_limits_of_its_own() -> None:
    world = World((1, 2, 3))
    world.topic(partitions=1, factor=2)
    make(world, 4)
    assert world.partition("t", 0).limits is None
    assert len(world.partition("t", 4).replicas) == 2


def test_a_partition_that_is_there_is_not_made_again() -> None:
    world = World((1,))
    make(world, 2)
    assert refused(world, "create-partition", name="t", partition=2, limits=LIMITS).code is (
        ErrorCode.TOPIC_ALREADY_EXISTS
    )


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"partition": -1}, ErrorCode.INVALID_PARTITIONS),
        ({"partition": 20_000}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": OFFSETS_TOPIC}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a.b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"partition": "1"}, ErrorCode.INVALID_REQUEST),
        ({"limits": None}, ErrorCode.INVALID_REQUEST),
        ({"limits": {**LIMITS, "segment_bytes": 0}}, ErrorCode.INVALID_REQUEST),
        ({"limits": {**LIMITS, "ttl_seconds": -1}}, ErrorCode.INVALID_REQUEST),
        ({"limits": {**LIMITS, "partition_bytes": 2**63}}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_partition_that_cannot_be_is_refused(args: dict[str, Any], code: ErrorCode) -> None:
    world = World((1,))
    world.topic("a_b")
    asked = {"name": "t", "partition": 0, "limits": LIMITS, **args}
    assert refused(world, "create-partition", **asked).code is code
    assert list(world.image.topics) == ["a_b"]


def test_only_partitions_that_are_there_count_against_the_most_that_may_be() -> None:
    world = World((1,))
    world.facts = replace(world.facts, partitions_max=3)
    for index in (2, 0):
        make(world, index)
    delete(world, 0)
    make(world, 1)
    make(world, 0)
    assert refused(world, "create-partition", name="u", partition=0, limits=LIMITS).code is ErrorCode.INVALID_PARTITIONS


def test_numbers_without_a_partition_are_bounded() -> None:
    world = World((1,))
    world.facts = replace(world.facts, partitions_max=GAPS_MAX + 10)
    make(world, GAPS_MAX)
    error = refused(world, "create-partition", name="u", partition=1, limits=LIMITS)
    assert (error.code, "lower number" in error.message) == (ErrorCode.INVALID_PARTITIONS, True)
    make(world, 0, "u")


def test_a_partition_that_is_made_again_is_another_one() -> None:
    world = World((1, 2))
    make(world, 0)
    make(world, 1)
    world.fence(world.partition("t", 1).leader)
    old = world.partition("t", 1)
    assert old.leader_epoch == 1
    delete(world, 1)
    assert world.image.topics["t"].gone == {1: (0, 1)}
    make(world, 1)
    new = world.partition("t", 1)
    assert (new.generation, new.leader_epoch, world.image.topics["t"].gone) == (1, 2, {})
    delete(world, 1)
    make(world, 1)
    assert (world.partition("t", 1).generation, world.partition("t", 1).leader_epoch) == (2, 3)


def test_a_leader_of_the_old_partition_cannot_change_the_new_one() -> None:
    world = World((1, 2))
    make(world, 0)
    make(world, 1)
    old = world.partition("t", 1)
    delete(world, 1)
    make(world, 1)
    before = world.partition("t", 1)
    answer = world.alter_as(
        old.leader, [old.leader], "t", 1, leader_epoch=old.leader_epoch, partition_epoch=old.partition_epoch
    )
    assert answer["error"] == ErrorCode.FENCED_LEADER_EPOCH
    assert world.partition("t", 1) == before


def test_more_partitions_are_added_behind_the_highest_and_are_others_than_those_that_were_there() -> None:
    world = World((1,))
    for index in (1, 3):
        make(world, index)
    delete(world, 3)
    world.do("add-partitions", name="t", total=5)
    topic = world.image.topics["t"]
    assert sorted(topic.partitions) == [1, 2, 3, 4]
    assert {index: each.generation for index, each in topic.partitions.items()} == {1: 0, 2: 0, 3: 1, 4: 0}
    assert topic.partitions[3].leader_epoch == 1


def test_the_last_partition_takes_the_topic_with_it_in_one_record() -> None:
    world = World((1,))
    make(world, 5)
    assert world.decide("delete-partition", name="t", partition=5).records == [
        MetadataRecord("delete-topic", {"topic_name": "t"})
    ]
    delete(world, 5)
    assert world.image.topics == {}
    make(world, 5)
    assert world.image.topics["t"].number == 2, "a number is never used again"


def test_what_is_not_there_cannot_be_deleted() -> None:
    world = World((1,))
    make(world, 1)
    for name, index in (("t", 0), ("t", 2), ("t", -1), ("u", 0)):
        code = refused(world, "delete-partition", name=name, partition=index).code
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_brokers_own_topic_keeps_its_partitions() -> None:
    world = World((1,))
    world.topic(OFFSETS_TOPIC, partitions=2)
    assert world.image.topics[OFFSETS_TOPIC].number == 0
    error = refused(world, "delete-partition", name=OFFSETS_TOPIC, partition=0)
    assert error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("configs", [{"channel.store": "memory://x"}, {"remote.storage.enable": "true"}])
@pytest.mark.parametrize("defaults", [False, True])
def test_topics_in_an_object_store_are_left_whole(configs: dict[str, str], defaults: bool) -> None:
    world = World((1,))
    world.do("create-topic", name="t", partitions=2, configs={} if defaults else configs)
    if defaults:
        world.do("set-broker-configs", configs=configs)
    for command in ("create-partition", "delete-partition"):
        index = 1 if command == "delete-partition" else 2
        error = refused(world, command, name="t", partition=index, limits=LIMITS)
        assert (error.code, "one by one" in error.message) == (ErrorCode.INVALID_REQUEST, True)
    assert list(world.image.topics["t"].partitions) == [0, 1]


def test_topics_count_from_one_and_the_brokers_own_does_not_count() -> None:
    world = World((1,))
    for name in ("b", OFFSETS_TOPIC, "a"):
        world.topic(name)
    world.do("delete-topic", name="b")
    world.topic("c")
    numbers = {topic.name: topic.number for topic in world.image.topics.values()}
    assert numbers == {OFFSETS_TOPIC: 0, "a": 2, "c": 3}
    found = world.image.topic_by_number(3)
    assert found is not None and found.name == "c"
    assert world.image.topic_by_number(1) is world.image.topic_by_number(0) is None


def test_topics_of_an_earlier_version_get_numbers_in_the_order_of_their_names_when_a_term_begins() -> None:
    world = World((1,))
    for place, name in enumerate(("z", "a", OFFSETS_TOPIC)):
        partition = {"partition": 0, "replica_brokers": ["1"], "isr": [1], "leader": 1, "leader_epoch": 0}
        body = {"topic_name": name, "topic_id": f"{place + 1:032x}", "configs": {}, "partitions": [partition]}
        world.write(MetadataRecord("create-topic", body))
    world.do("adopt", broker_id=1)
    assert {topic.name: topic.number for topic in world.image.topics.values()} == {"a": 1, "z": 2, OFFSETS_TOPIC: 0}
    assert world.image.next_topic_number == 3
    assert world.decide("adopt", broker_id=1).records == []


def test_a_partition_that_nobody_limits_is_written_as_before() -> None:
    world = World((1,))
    world.topic()
    assert set(world.log[-1].body["partitions"][0]) == {
        "id",
        "partition",
        "replica_brokers",
        "isr",
        "leader",
        "leader_epoch",
    }
    assert world.partition() == PartitionImage((1,), (1,), 1)
