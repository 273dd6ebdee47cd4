"""Single partitions in the image: gaps, limits, generations, and what is remembered of those that are gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.controller.changes import Changes
from odradek.controller.image import ClusterImage, MetadataRecord, PartitionImage, PartitionLimits
from odradek.controller.image_partitions import GONE_MAX, bury, successor
from odradek.model import TopicPartition

ID = "0b" * 16


def body(index: int, **more: Any) -> dict[str, Any]:
    return {"partition": index, "replica_brokers": ["1"], "isr": [1], "leader": 1, "leader_epoch": 0, **more}


def created(*partitions: dict[str, Any], **more: Any) -> ClusterImage:
    image = ClusterImage()
    topic = {"topic_name": "t", "topic_id": ID, "configs": {}, "partitions": list(partitions), **more}
    image.apply(MetadataRecord("create-topic", topic))
    return image


def deletion(index: int) -> MetadataRecord:
    return MetadataRecord("delete-partition", {"topic_name": "t", "topic_id": ID, "partition": index})


def addition(*partitions: dict[str, Any]) -> MetadataRecord:
    return MetadataRecord("add-partitions", {"topic_name": "t", "partitions": list(partitions)})


def through_json(image: ClusterImage) -> ClusterImage:
    return ClusterImage.from_json(json.loads(json.dumps(image.to_json())))


def test_a_topic_is_as_long_as_its_highest_number() -> None:
    topic = created(body(4), body(1)).topics["t"]
    assert (topic.partition_count, len(topic.partitions)) == (5, 2)


def test_a_snapshot_brings_limits_generations_numbers_and_the_dead_back() -> None:
    limits = {"segment_bytes": 10, "partition_bytes": 0, "ttl_seconds": 5}
    image = created(body(0), body(3, generation=2, limits=limits, leader_epoch=7), number=4)
    image.apply(addition(body(9)))
    image.apply(deletion(9))
    again = through_json(image)
    assert again == image
    topic = again.topics["t"]
    assert topic.partitions[3] == PartitionImage(
        (1,), (1,), 1, 7, generation=2, limits=PartitionLimits(10, partition_bytes=0, ttl_seconds=5)
    )
    assert (topic.number, topic.gone, again.next_topic_number) == (4, {9: (0, 0)}, 5)
    assert again.topic_by_number(4) is topic


def test_a_number_that_was_given_out_is_not_given_out_again_after_a_snapshot() -> None:
    image = created(body(0), number=4)
    image.apply(MetadataRecord("delete-topic", {"topic_name": "t"}))
    again = through_json(image)
    assert (again.next_topic_number, again.topic_by_number(4)) == (5, None)


def test_a_snapshot_of_an_earlier_version_loads() -> None:
    old = created(body(0), body(1)).to_json()
    del old["next_topic_number"]
    image = ClusterImage.from_json(old)
    topic = image.topics["t"]
    assert (topic.number, topic.gone, image.next_topic_number, topic.partition_count) == (0, {}, 1, 2)


def test_a_copy_stands_apart() -> None:
    image = created(body(0), body(1), number=1)
    copy = image.copy()
    copy.apply(deletion(1))
    assert image.topics["t"].gone == {}
    assert copy.topics["t"].gone == {1: (0, 0)}
    copy.apply(MetadataRecord("delete-topic", {"topic_name": "t"}))
    assert image.topic_by_number(1) is image.topics["t"]


@pytest.mark.parametrize(
    "record",
    [
        deletion(7),
        addition(body(0)),
        MetadataRecord("number-topics", {"numbers": {"ff" * 16: 3}}),
        MetadataRecord("number-topics", {"numbers": {ID: 0}}),
    ],
)
def test_a_record_that_makes_no_sense_is_an_error(record: MetadataRecord) -> None:
    image = created(body(0), body(1))
    with pytest.raises((KeyError, ValueError)):
        image.apply(record)


def test_the_last_partition_does_not_go_without_its_topic() -> None:
    with pytest.raises(ValueError, match="last one"):
        created(body(0)).apply(deletion(0))


def test_no_two_topics_have_one_number() -> None:
    image = created(body(0), number=1)
    other = {"topic_name": "u", "topic_id": "0c" * 16, "configs": {}, "partitions": [body(0)], "number": 1}
    with pytest.raises(ValueError, match="number 1"):
        image.apply(MetadataRecord("create-topic", other))


def test_those_who_act_on_changes_hear_of_a_partition_that_is_gone() -> None:
    image, changes = created(body(0), body(1)), Changes()
    changes.take(image, deletion(1), 5)
    assert changes.topics == {"t"}
    assert changes.partitions == {TopicPartition("t", 1)}, "the others are as they were"
    changes = Changes()
    changes.take(image, MetadataRecord("add-partitions", {"topic_name": "t", "partitions": [body(7), body(9)]}), 6)
    assert changes.partitions == {TopicPartition("t", 7), TopicPartition("t", 9)}


def test_what_is_remembered_of_deleted_partitions_is_bounded_and_loses_nothing() -> None:
    gone: dict[int, tuple[int, int]] = {}
    for index in range(GONE_MAX):
        bury(gone, index, PartitionImage(generation=index % 3, leader_epoch=index))
    assert successor(gone, 5) == (3, 6)
    assert successor(gone, 5_000) == (0, 0), "there was none before"
    bury(gone, GONE_MAX, PartitionImage(generation=8, leader_epoch=1))
    assert len(gone) == 1
    assert successor(gone, 5) == successor(gone, 77) == (9, GONE_MAX)
    bury(gone, 5, PartitionImage(generation=9, leader_epoch=GONE_MAX))
    assert successor(gone, 5) == (10, GONE_MAX + 1)
