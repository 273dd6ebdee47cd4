"""The admin clients of three libraries make, describe, change and delete topics, settings and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KpConfigResource
from kafka.admin import ConfigResourceType as KpConfigResourceType
from kafka.admin import NewTopic as KpNewTopic

WAIT_SECONDS = 20.0


def only(results: dict[Any, Any]) -> Any:
    (future,) = results.values()
    return future.result(WAIT_SECONDS)


def test_confluents_admin_client_manages_topics(bootstrap: str, new_name: Callable[[str], str]) -> None:
    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), new_name("confluent")
    only(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "60000"})]))
    with pytest.raises(KafkaException, match="exists"):
        only(admin.create_topics([NewTopic(topic, 2, 1)]))
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert len(described.partitions) == 5
    assert len(admin.list_topics(topic).topics[topic].partitions) == 5
    only(admin.delete_topics([topic]))
    assert topic not in admin.list_topics().topics


def test_confluents_admin_client_manages_settings(bootstrap: str, new_name: Callable[[str], str]) -> None:
    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), new_name("settings")
    only(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "60000"})]))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = only(admin.describe_configs([resource]))
    assert entries["retention.ms"].value == "60000"
    assert entries["segment.bytes"].is_default
    changed = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("segment.bytes", "65536", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    only(admin.incremental_alter_configs([changed]))
    entries = only(admin.describe_configs([resource]))
    assert entries["retention.ms"].is_default
    assert entries["segment.bytes"].value == "65536"
    assert entries["cleanup.policy"].value == "compact,delete"
    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("segment.byte", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(KafkaException, match=r"did you mean segment\.bytes"):
        only(admin.incremental_alter_configs([wrong]))
    broker_entries = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker_entries["num.partitions"].value == "1"


def test_confluents_admin_client_manages_groups_and_offsets(bootstrap: str, new_name: Callable[[str], str]) -> None:
    admin, topic, group = AdminClient({"bootstrap.servers": bootstrap}), new_name("offsets"), new_name("group")
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, str(number))
    producer.flush(WAIT_SECONDS)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    kept = consumer.commit(offsets=[TopicPartition(topic, 0, 4, "a note")], asynchronous=False)
    assert kept[0].error is None
    (committed,) = consumer.committed([TopicPartition(topic, 0)], WAIT_SECONDS)
    assert (committed.offset, committed.metadata) == (4, "a note")
    consumer.close()
    listed = admin.list_consumer_groups().result(WAIT_SECONDS)
    assert group in {each.group_id for each in listed.valid}
    where = TopicPartition(topic, 0)
    latest = only(admin.list_offsets({where: OffsetSpec.latest()}))
    assert latest.offset == 10
    only(admin.delete_consumer_groups([group]))
    listed = admin.list_consumer_groups().result(WAIT_SECONDS)
    assert group not in {each.group_id for each in listed.valid}


def test_confluents_admin_client_describes_the_cluster(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cluster = admin.describe_cluster().result(WAIT_SECONDS)
    assert [node.id for node in cluster.nodes] == [cluster.controller.id] == [1]
    assert cluster.cluster_id


def test_kafka_pythons_admin_client_manages_topics_and_settings(bootstrap: str, new_name: Callable[[str], str]) -> None:
    admin, topic = KafkaAdminClient(bootstrap_servers=bootstrap), new_name("kafka-python")
    try:
        admin.create_topics([KpNewTopic(topic, 2, 1)])
        assert topic in admin.list_topics()
        admin.create_partitions({topic: 4})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 4
        resource = KpConfigResource(KpConfigResourceType.TOPIC, topic, configs={"retention.ms": "1234"})
        admin.alter_configs([resource])
        configs = admin.describe_configs([KpConfigResource(KpConfigResourceType.TOPIC, topic)])
        assert "1234" in str(configs)
        assert admin.describe_cluster()["controller_id"] == 1
        assert topic in str(admin.describe_log_dirs())
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafkas_admin_client_manages_topics_and_settings(bootstrap: str, new_name: Callable[[str], str]) -> None:
    topic = new_name("aiokafka")

    async def manage() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic(topic, 2, 1)])
            await admin.create_partitions({topic: AioNewPartitions(total_count=3)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            resource = AioConfigResource(AioConfigResourceType.TOPIC, topic, configs={"retention.ms": "4321"})
            await admin.alter_configs([resource])
            configs = await admin.describe_configs([AioConfigResource(AioConfigResourceType.TOPIC, topic)])
            assert "4321" in str(configs)
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(manage(), WAIT_SECONDS))
