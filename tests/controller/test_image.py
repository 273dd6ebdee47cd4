"""The image is made by records alone, copies stand apart, and a snapshot brings all of it back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.controller.image import BrokerImage, ClusterImage, MetadataRecord, PartitionImage

ID = "0a" * 16
PARTITION = {
    "id": "orders-1",
    "partition": 0,
    "replica_brokers": ["2", "1"],
    "isr": [2, 1],
    "leader": 2,
    "leader_epoch": 0,
}
CREATE = MetadataRecord(
    "create-topic", {"topic_name": "orders", "topic_id": ID, "configs": {"a": "b"}, "partitions": [PARTITION]}
)
REGISTER = MetadataRecord(
    "register-broker", {"broker_id": 2, "incarnation": "x", "kafka": ["h", 1], "http": ["h", 2], "rack": "r"}
)


def image_of(*records: MetadataRecord) -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def change(**body: Any) -> MetadataRecord:
    return MetadataRecord("partition-change", {"topic_id": ID, "partition": 0, **body})


def broker_record(type_: str, epoch: int = 0) -> MetadataRecord:
    return MetadataRecord(type_, {"broker_id": 2, "broker_epoch": epoch})


def test_a_topic_comes_with_its_partitions() -> None:
    topic = image_of(CREATE).topics["orders"]
    assert topic.partitions == {0: PartitionImage((2, 1), (2, 1), 2)}
    assert topic.partition_count == 1
    assert topic.configs == {"a": "b"}


def test_what_a_broker_wrote_that_stood_alone_reads_as_partitions_without_replicas() -> None:
    image = image_of(
        MetadataRecord("create-topic", {"topic_name": "t", "topic_id": ID, "configs": {}, "partitions": 2}),
        MetadataRecord("add-partitions", {"topic_name": "t", "partitions": 3}),
    )
    assert image.topics["t"].partitions == {index: PartitionImage() for index in range(3)}


def test_a_partition_change_changes_what_it_names_and_nothing_else() -> None:
    image = image_of(CREATE, change(leader=-1, leader_epoch=1, partition_epoch=1))
    assert image.partition("orders", 0) == PartitionImage((2, 1), (2, 1), -1, 1, 1)
    image.apply(change(replicas=[2, 1, 3], adding=[3], isr=[1], partition_epoch=2))
    assert image.partition("orders", 0) == PartitionImage((2, 1, 3), (1,), -1, 1, 2, (3,))


def test_the_offset_of_a_registration_is_the_brokers_epoch() -> None:
    image = image_of(CREATE, REGISTER)
    assert image.brokers[2] == BrokerImage(2, 1, "x", ("h", 1), ("h", 2), "r", fenced=True)
    image.apply(broker_record("unfence-broker", 1), 2)
    assert image.brokers[2].is_active
    image.apply(broker_record("broker-shutdown", 1), 3)
    assert not image.brokers[2].is_active
    image.apply(broker_record("fence-broker", 1), 4)
    assert image.brokers[2].fenced
    image.apply(REGISTER, 5)
    assert (image.brokers[2].epoch, image.brokers[2].shutting_down) == (5, False)
    image.apply(broker_record("unregister-broker", 5), 6)
    assert not image.brokers


def test_a_deleted_topic_leaves_its_name_and_takes_its_id_along() -> None:
    image = image_of(CREATE, MetadataRecord("delete-topic", {"topic_name": "orders"}))
    assert (image.topics, image.deleted, image.names, image.metric_names) == ({}, {"orders"}, {}, {})
    assert image.topic_by_id(bytes.fromhex(ID)) is None
    assert image.partition("orders", 0) is None


def test_a_copy_stands_apart() -> None:
    image = image_of(REGISTER, CREATE)
    copy, before = image.copy(), image.to_json()
    assert copy == image
    for record in (
        change(leader=1, leader_epoch=1),
        broker_record("unfence-broker"),
        MetadataRecord("set-topic-configs", {"topic_name": "orders", "configs": {}}),
        MetadataRecord("set-broker-configs", {"configs": {"x": "y"}}),
        MetadataRecord("producer-ids", {"next": 9}),
        MetadataRecord("delete-topic", {"topic_name": "orders"}),
    ):
        copy.apply(record)
    assert image.to_json() == before
    assert copy != image


def test_a_snapshot_brings_all_of_it_back() -> None:
    image = image_of(
        REGISTER,
        CREATE,
        change(replicas=[2, 1, 3], adding=[3], removing=[1], leader_epoch=4, partition_epoch=7),
        broker_record("unfence-broker"),
        MetadataRecord("cluster", {"cluster_id": "c"}),
        MetadataRecord("set-broker-configs", {"configs": {"x": "y"}}),
        MetadataRecord("producer-ids", {"next": 9}),
        MetadataRecord("leader-change", {"leader_id": 1}),
        MetadataRecord("create-topic", {"topic_name": "gone", "topic_id": "0b" * 16, "configs": {}, "partitions": 1}),
        MetadataRecord("delete-topic", {"topic_name": "gone"}),
    )
    again = ClusterImage.from_json(json.loads(json.dumps(image.to_json())))
    assert again == image
    assert again.topic_by_id(bytes.fromhex(ID)) is again.topics["orders"]


@pytest.mark.parametrize(
    "record",
    [
        MetadataRecord("nonsense", {}),
        CREATE,
        change(partition=1),
        MetadataRecord("partition-change", {"topic_id": "0b" * 16, "partition": 0}),
        MetadataRecord("register-broker", {"broker_id": 2}),
        broker_record("fence-broker", 7),
        MetadataRecord("fence-broker", {"broker_id": 3, "broker_epoch": 0}),
        MetadataRecord("delete-topic", {"topic_name": "none"}),
        MetadataRecord("add-partitions", {"topic_name": "orders", "partitions": None}),
    ],
)
def test_a_record_that_makes_no_sense_is_an_error(record: MetadataRecord) -> None:
    image = image_of(REGISTER, CREATE)
    with pytest.raises((KeyError, TypeError, ValueError)):
        image.apply(record, 2)
