"""Administering a real broker."""

from __future__ import annotations

import pytest

from odradek.client import (
    Client,
    CommittedOffset,
    ConfigSource,
    NewRecord,
    PartitionLag,
    RequestError,
    ResourceKind,
    TopicPartition,
    UnknownTopicError,
)
from odradek.wire.errors import ErrorCode
from tests.client.conftest import Broker
from tests.client.support import asynchronous


@asynchronous
async def test_a_cluster_tells_its_nodes(broker: Broker) -> None:
    async with Client(broker.bootstrap_servers) as client:
        cluster = await client.admin.cluster()
        assert cluster.cluster_id
        assert broker.bootstrap_servers in [str(node.address) for node in cluster.nodes]


@asynchronous
async def test_a_topic_is_made_described_listed_grown_and_deleted(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        admin = client.admin
        made = await admin.create_topic(topic, 3)
        assert made is not None
        assert made.partition_count == 3
        described = await admin.describe_topic(topic)
        assert (described.name, described.topic_id, list(described.partitions)) == (topic, made.topic_id, [0, 1, 2])
        assert topic in [info.name for info in await admin.list_topics()]
        assert (await admin.add_partitions(topic, 5)).partition_count == 5
        assert (await admin.describe_topics([topic]))[topic].partition_count == 5
        await admin.delete_topic(topic)
        assert topic not in [info.name for info in await admin.list_topics()]
        with pytest.raises(UnknownTopicError):
            await admin.describe_topic(topic)


@asynchronous
async def test_a_topic_made_anew_can_be_used_at_once_by_those_who_knew_the_old_one(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client, client.producer() as producer:
        for _ in range(3):
            await client.admin.create_topic(topic)
            assert (await producer.send(topic, b"x")).offset == 0
            await client.admin.delete_topic(topic)


@asynchronous
async def test_refusals_are_in_the_brokers_words(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        admin = client.admin
        await admin.create_topic(topic)
        for attempt, code in (
            (admin.create_topic(topic), ErrorCode.TOPIC_ALREADY_EXISTS),
            (admin.create_topic(f"{topic}-2", 0), ErrorCode.INVALID_PARTITIONS),
            (admin.create_topic(f"{topic}-2", 1, {"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
            (admin.add_partitions(topic, 1), ErrorCode.INVALID_PARTITIONS),
            (admin.alter_configs(ResourceKind.TOPIC, topic, {"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        ):
            with pytest.raises(RequestError, match=topic) as raised:
                await attempt
            assert raised.value.code is code
        for unknown in (admin.delete_topic("no-topic"), admin.add_partitions("no-topic", 3)):
            with pytest.raises(UnknownTopicError, match="no-topic"):
                await unknown
        with pytest.raises(ValueError, match="a topic's name"):
            await admin.create_topic("no/topic")


@asynchronous
async def test_a_topic_can_be_tried_out_without_making_it(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        assert await client.admin.create_topic(topic, 2, validate_only=True) is None
        assert topic not in [info.name for info in await client.admin.list_topics()]


@asynchronous
async def test_settings_are_shown_with_their_source_and_changed_one_by_one(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        admin = client.admin
        await admin.create_topic(topic, 1, {"retention.ms": "1000"})
        settings = await admin.describe_configs(ResourceKind.TOPIC, topic)
        assert (settings["retention.ms"].value, settings["retention.ms"].source) == ("1000", ConfigSource.TOPIC)
        assert settings["cleanup.policy"].is_default
        await admin.alter_configs(ResourceKind.TOPIC, topic, {"retention.ms": None, "segment.bytes": "2000000"})
        changed = await admin.describe_configs(ResourceKind.TOPIC, topic, ["retention.ms", "segment.bytes"])
        assert set(changed) == {"retention.ms", "segment.bytes"}
        assert changed["retention.ms"].is_default
        assert changed["segment.bytes"].value == "2000000"
        await admin.alter_configs(ResourceKind.TOPIC, topic, {}, append={"cleanup.policy": "compact"})
        policy = (await admin.describe_configs(ResourceKind.TOPIC, topic, ["cleanup.policy"]))["cleanup.policy"]
        assert sorted((policy.value or "").split(",")) == ["compact", "delete"]
        await admin.alter_configs(ResourceKind.TOPIC, topic, {}, subtract={"cleanup.policy": "delete"})
        policy = (await admin.describe_configs(ResourceKind.TOPIC, topic, ["cleanup.policy"]))["cleanup.policy"]
        assert policy.value == "compact"


@asynchronous
async def test_a_brokers_own_settings_are_shown(broker: Broker) -> None:
    async with Client(broker.bootstrap_servers) as client:
        node = (await client.admin.cluster()).nodes[0]
        settings = await client.admin.describe_configs(ResourceKind.BROKER, str(node.node_id))
        assert "log.retention.ms" in settings or "num.partitions" in settings


@asynchronous
async def test_offsets_are_found_by_time_and_records_deleted_before_one(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer() as producer:
            times = (1_000, 3_000, 2_000)
            await producer.send_many(topic, [NewRecord(b"x", None, 1_700_000_000_000 + time) for time in times])
        for spec, offset in (
            ("start", 0),
            ("end", 3),
            ("max-timestamp", 1),
            (1_700_000_000_000, 0),
            (1_700_000_002_500, 1),
            (1_700_000_009_000, -1),
        ):
            assert (await client.admin.list_offsets({partition: spec}))[partition].offset == offset
        with pytest.raises(ValueError, match="looked up by"):
            await client.admin.list_offsets({partition: "middle"})
        assert await client.admin.delete_records({partition: 2}) == {partition: 2}
        assert (await client.admin.list_offsets({partition: "start"}))[partition].offset == 2
        with pytest.raises(RequestError) as raised:
            await client.admin.delete_records({partition: 99})
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await client.admin.delete_records({partition: -1}) == {partition: 3}


@asynchronous
async def test_a_partition_that_does_not_exist_is_said_so(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers, timeout_ms=1_500) as client:
        await client.admin.create_topic(topic, 2)
        with pytest.raises(RequestError, match="the topic has partitions 0 to 1"):
            await client.admin.list_offsets({TopicPartition(topic, 7): "end"})


@asynchronous
async def test_a_groups_offsets_are_set_shown_with_their_lag_and_deleted(
    broker: Broker, topic: str, group: str
) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(broker.bootstrap_servers) as client:
        admin = client.admin
        await admin.create_topic(topic)
        async with client.producer() as producer:
            await producer.send_many(topic, [NewRecord(b"x")] * 10)
        await admin.set_group_offsets(group, {partition: CommittedOffset(4, metadata="why")})
        assert (await admin.group_offsets(group))[partition] == CommittedOffset(4, -1, "why")
        assert await admin.group_lag(group) == {partition: PartitionLag(4, 10, 6)}
        assert group in [listing.group for listing in await admin.list_groups()]
        assert (await admin.describe_group(group)).state == "Empty"
        await admin.delete_group(group)
        assert await admin.group_offsets(group) == {}
        for attempt in (admin.describe_group(group), admin.delete_group(group)):
            with pytest.raises(RequestError, match=group) as raised:
                await attempt
            assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@asynchronous
async def test_a_group_with_members_cannot_be_deleted_or_moved(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.consumer(topic, group=group) as consumer:
            while not consumer.assignment:
                await consumer.poll(timeout_ms=100)
            description = await client.admin.describe_group(group)
            assert (description.state, description.kind, description.assignor) == ("Stable", "classic", "range")
            assert description.members[0].assignment == [TopicPartition(topic, 0)]
            assert description.members[0].client_id == "odradek"
            with pytest.raises(RequestError) as raised:
                await client.admin.delete_group(group)
            assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(RequestError) as raised:
                await client.admin.set_group_offsets(group, {TopicPartition(topic, 0): 0})
            assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID
