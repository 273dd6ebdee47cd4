"""Topics are made where there is room, once, and with as many replicas as was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.controller.decisions import decide
from odradek.controller.image import MetadataRecord, PartitionImage
from odradek.wire.errors import ErrorCode, PeerError
from tests.controller.worlds import World


def refusal(world: World, command: str, **args: Any) -> PeerError:
    with pytest.raises(PeerError) as caught:
        world.do(command, **args)
    return caught.value


def test_a_topic_is_made_with_leaders_spread_over_the_brokers() -> None:
    world = World((1, 2, 3))
    result = world.topic(partitions=3)
    topic = world.image.topics["t"]
    assert result == {"topic_id": topic.id.hex(), "replication_factor": 3}
    assert [topic.partitions[index].leader for index in range(3)] == [1, 2, 3]
    assert topic.partitions[1] == PartitionImage((2, 3, 1), (2, 3, 1), 2)


def test_the_record_of_a_new_topic_is_the_one_that_sskafka_knows() -> None:
    world = World((1, 2))
    world.do("create-topic", name="t", partitions=1, replication_factor=2, configs={"retention.ms": "5"})
    assert world.log[-1] == MetadataRecord(
        "create-topic",
        {
            "topic_name": "t",
            "topic_id": world.image.topics["t"].id.hex(),
            "number": 1,
            "configs": {"retention.ms": "5"},
            "partitions": [
                {
                    "id": "t-1",
                    "partition": 0,
                    "replica_brokers": ["1", "2"],
                    "isr": [1, 2],
                    "leader": 1,
                    "leader_epoch": 0,
                }
            ],
        },
    )


def test_a_topic_that_is_only_tried_is_not_made() -> None:
    world = World((1,))
    decision = world.decide("create-topic", name="t", partitions=2, validate_only=True)
    assert decision.records == []
    assert decision.result["replication_factor"] == 1


@pytest.mark.parametrize(
    ("brokers", "default", "asked", "factor"),
    [(1, 0, -1, 1), (2, 0, -1, 2), (5, 0, -1, 3), (5, 2, -1, 2), (5, 0, 4, 4), (5, 0, "all", 5)],
)
def test_how_many_replicas_there_are(brokers: int, default: int, asked: object, factor: int) -> None:
    world = World(range(1, brokers + 1))
    world.facts = replace(world.facts, default_replication_factor=default)
    assert world.topic(factor=asked)["replication_factor"] == factor
    assert len(world.partition().replicas) == factor


@pytest.mark.parametrize("asked", [0, -2, 4, "some", None, 1.5])
def test_a_number_of_replicas_that_cannot_be_is_refused(asked: object) -> None:
    error = refusal(World((1, 2, 3)), "create-topic", name="t", partitions=1, replication_factor=asked)
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_broker_that_is_down_gets_its_replica_but_is_not_in_sync() -> None:
    world = World((1, 2, 3))
    world.fence(1)
    world.topic(factor="all")
    assert world.partition() == PartitionImage((2, 3, 1), (2, 3), 2)


def test_nothing_can_be_made_while_no_broker_is_up() -> None:
    world = World((1,))
    world.fence(1)
    error = refusal(world, "create-topic", name="t", partitions=1)
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "no broker is up" in error.message


@pytest.mark.parametrize("name", ["", ".", "a/b", "x" * 250])
def test_a_name_that_kafka_refuses_is_refused(name: str) -> None:
    error = refusal(World((1,)), "create-topic", name=name, partitions=1)
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_name_is_taken_once() -> None:
    world = World((1,))
    world.topic("a.b")
    same, similar = (refusal(world, "create-topic", name=name, partitions=1) for name in ("a.b", "a_b"))
    assert (same.code, same.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'a.b' exists already")
    assert similar.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    world.do("delete-topic", name="a.b")
    world.topic("a_b")


@pytest.mark.parametrize("count", [0, -1, 21, 10**30])
def test_a_number_of_partitions_that_cannot_be_is_refused(count: int) -> None:
    world = World((1,))
    world.facts = replace(world.facts, partitions_max=20)
    error = refusal(world, "create-topic", name="t", partitions=count)
    assert error.code is ErrorCode.INVALID_PARTITIONS


def test_replicas_can_be_chosen() -> None:
    world = World((1, 2, 3))
    world.fence(3)
    assert world.topic("t", [3, 1], [2, 1])["replication_factor"] == 2
    assert world.partition("t", 0) == PartitionImage((3, 1), (1,), 1)
    assert world.partition("t", 1) == PartitionImage((2, 1), (2, 1), 2)


@pytest.mark.parametrize(
    "assignments",
    [{"0": [1], "2": [1]}, {"1": [1]}, {"0": []}, {"0": [1, 1]}, {"0": [9]}, {"0": [3]}, {"0": [1], "1": [1, 2]}],
)
def test_a_choice_of_replicas_that_cannot_be_is_refused(assignments: dict[str, list[int]]) -> None:
    world = World((1, 2, 3))
    world.fence(3)
    error = refusal(world, "create-topic", name="t", partitions=-1, assignments=assignments)
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_is_deleted_if_it_is_the_one_that_was_meant() -> None:
    world = World((1,))
    topic_id = world.topic()["topic_id"]
    assert refusal(world, "delete-topic", name="t", topic_id="00" * 16).code is ErrorCode.UNKNOWN_TOPIC_ID
    world.do("delete-topic", name="t", topic_id=topic_id)
    assert refusal(world, "delete-topic", name="t").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.image.deleted == {"t"}


def test_a_topic_is_deleted_while_its_partitions_move() -> None:
    world = World((1, 2))
    world.topic("t", [1])
    world.reassign([2])
    world.do("delete-topic", name="t")
    assert world.image.topics == {}
    world.do("unregister-broker", broker_id=2)


def test_new_partitions_have_as_many_replicas_as_the_first_will_have() -> None:
    world = World((1, 2, 3))
    world.topic("t", [1, 2])
    world.reassign([3, 1])
    world.do("add-partitions", name="t", total=3)
    assert [len(world.partition("t", index).replicas) for index in range(3)] == [3, 2, 2]
    world.do("add-partitions", name="t", total=4, assignments={"3": [3]})
    assert world.partition("t", 3) == PartitionImage((3,), (3,), 3)


def test_new_partitions_that_are_only_tried_are_not_made() -> None:
    world = World((1,))
    world.topic()
    assert world.decide("add-partitions", name="t", total=2, validate_only=True).records == []


@pytest.mark.parametrize(
    ("total", "assignments", "code"),
    [
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (10**9, None, ErrorCode.INVALID_PARTITIONS),
        (3, {"1": [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, {"0": [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, {"1": [7]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_growth_that_cannot_be_is_refused(total: int, assignments: object, code: ErrorCode) -> None:
    world = World((1, 2))
    world.topic()
    assert refusal(world, "add-partitions", name="t", total=total, assignments=assignments).code is code


def test_settings_are_replaced_and_nothing_is_written_when_they_are_the_same() -> None:
    world = World((1,))
    world.topic()
    world.do("set-topic-configs", name="t", configs={"a": "1"})
    world.do("set-broker-configs", configs={"b": "2"})
    assert world.image.topics["t"].configs == {"a": "1"}
    assert world.image.broker_configs == {"b": "2"}
    assert world.decide("set-topic-configs", name="t", configs={"a": "1"}).records == []
    assert world.decide("set-broker-configs", configs={"b": "2"}).records == []


def test_settings_that_were_changed_meanwhile_are_not_lost_when_the_caller_says_what_it_saw() -> None:
    world = World((1,))
    world.do("set-broker-configs", configs={"a": "1"}, was={})
    error = refusal(world, "set-broker-configs", configs={"b": "2"}, was={})
    assert error.code is ErrorCode.INVALID_UPDATE_VERSION


def test_a_producer_id_is_handed_out_once() -> None:
    world = World()
    assert world.do("producer-ids", count=1000) == {"first": 0}
    assert world.do("producer-ids", count=10) == {"first": 1000}
    assert world.image.next_producer_id == 1010
    assert refusal(world, "producer-ids", count=0).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("nonsense", {}),
        ("create-topic", {}),
        ("create-topic", {"name": 5, "partitions": 1}),
        ("create-topic", {"name": "n", "partitions": "1"}),
        ("create-topic", {"name": "n", "partitions": True}),
        ("create-topic", {"name": "n", "partitions": 1, "configs": {"a": 1}}),
        ("create-topic", {"name": "n", "partitions": 1, "configs": []}),
        ("create-topic", {"name": "n", "partitions": 1, "assignments": [1]}),
        ("create-topic", {"name": "n", "partitions": 1, "assignments": {"0": 1}}),
        ("create-topic", {"name": "n", "partitions": 1, "validate_only": 1}),
        ("delete-topic", {"name": "t", "topic_id": "no hex"}),
        ("delete-topic", {"name": "t", "topic_id": 7}),
        ("producer-ids", {"count": 10**9}),
        ("reassign", {"partitions": 1}),
        ("reassign", {"partitions": [1]}),
        ("reassign", {"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}),
        ("reassign", {"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}),
        ("elect", {"topic": "t", "partition": "0"}),
        ("heartbeat", {"broker_id": 1}),
        ("register-broker", {"broker_id": -1, "incarnation": "x"}),
        ("register-broker", {"broker_id": 1, "incarnation": None}),
        ("register-broker", {"broker_id": 1, "incarnation": "x", "kafka": ["h"]}),
        ("register-broker", {"broker_id": 1, "incarnation": "x", "kafka": ["h", 65536]}),
        ("register-broker", {"broker_id": 1, "incarnation": "x", "kafka": "h:1"}),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_as_such(command: str, args: dict[str, Any]) -> None:
    world = World((1,))
    world.topic()
    with pytest.raises(PeerError) as caught:
        decide(command, world.image, args, world.facts)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
