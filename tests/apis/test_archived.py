"""What clients see of a topic whose older records are in the object store only: Fetch, ListOffsets, DeleteRecords."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.apis import create_topics as creating
from odradek.apis import delete_records as deleting
from odradek.apis import describe_configs as describing
from odradek.apis import fetch as fetching
from odradek.apis import list_offsets as listing
from odradek.broker.plain import PlainBroker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import create_topics, delete_records, describe_configs, fetch, list_offsets
from odradek.wire.schema import Message
from tests.apis.houses import Visitor, versions, visiting
from tests.broker.archives import TOPIC, Keeper, archiving_in, new_url, value
from tests.broker.houses import START_MS, values_of
from tests.client.support import asynchronous

LATEST, EARLIEST, NEWEST, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
COUNT = 30
_FROM_ID = 13


@asynccontextmanager
async def archived(count: int = COUNT, **overrides: str) -> AsyncIterator[tuple[Visitor, Keeper]]:
    """A visitor to a broker with a topic of which the disk has only the end."""
    async with visiting(settings={"store.url": new_url()}) as visitor, archiving_in(visitor.house) as keeper:
        await keeper.fill(count, overrides={name.replace("_", "."): value for name, value in overrides.items()})
        await keeper.archive()
        assert 0 == keeper.partition.log_start < keeper.partition.log.log_start
        yield visitor, keeper


async def fetched(
    visitor: Visitor, *offsets: int, version: int = 12, max_bytes: int = 1 << 20, **fields: Any
) -> list[fetch.ResponsePartition]:
    """Fetch from partitions 0, 1, ... at these offsets."""
    wanted = [
        fetch.RequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in enumerate(offsets)
    ]
    topic = fetch.RequestTopic(topic=TOPIC, topic_id=visitor.broker.topic(TOPIC).id, partitions=wanted)
    asked = fetch.Request(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields}, topics=[topic])
    answer = await visitor.ask(fetching.API, version, asked, fetch.Response)
    assert answer.error_code == 0
    return [partition for topic in answer.responses for partition in topic.partitions]


async def offset_at(visitor: Visitor, timestamp: int, version: int = 11) -> list_offsets.ResponsePartition:
    wanted = list_offsets.RequestPartition(partition_index=0, timestamp=timestamp)
    topic = list_offsets.RequestTopic(name=TOPIC, partitions=[wanted])
    answer = await visitor.ask(
        listing.API, version, list_offsets.Request(replica_id=-1, topics=[topic]), list_offsets.Response
    )
    return answer.topics[0].partitions[0]


async def delete_to(visitor: Visitor, offset: int) -> delete_records.ResponsePartition:
    wanted = delete_records.RequestPartition(partition_index=0, offset=offset)
    topic = delete_records.RequestTopic(name=TOPIC, partitions=[wanted])
    asked: Message = delete_records.Request(topics=[topic], timeout_ms=1_000)
    answer = await visitor.ask(deleting.API, 2, asked, delete_records.Response)
    return answer.topics[0].partitions[0]


# Fetch.


@pytest.mark.parametrize("version", versions(fetching.API))
@asynchronous
async def test_every_version_reads_from_offset_0_over_the_border(version: int) -> None:
    async with archived() as (visitor, keeper):
        found: list[bytes | None] = []
        while len(found) < COUNT:
            (answer,) = await fetched(visitor, len(found), version=version, max_bytes=3_000)
            assert answer.error_code == 0
            assert answer.high_watermark == COUNT
            if version >= 5:
                assert answer.log_start_offset == 0
            assert 0 < len(answer.records or b"") <= 3_000
            found += values_of(answer.records)
        assert found == [value(number) for number in range(COUNT)]
        assert keeper.store.requests.gets


@asynchronous
async def test_what_is_on_the_disk_is_read_without_the_store() -> None:
    async with archived() as (visitor, keeper):
        keeper.store.is_away = True
        (answer,) = await fetched(visitor, keeper.partition.log.log_start)
        assert values_of(answer.records) == [value(number) for number in range(keeper.partition.log.log_start, COUNT)]
        assert keeper.store.requests.gets == 0


@asynchronous
async def test_a_store_that_is_away_is_an_error_that_clients_try_again() -> None:
    async with archived() as (visitor, keeper):
        keeper.store.is_away = True
        (answer,) = await fetched(visitor, 0, max_wait_ms=10_000, min_bytes=1_000_000)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert ErrorCode.KAFKA_STORAGE_ERROR.retriable
        keeper.store.come_back()
        (answer,) = await fetched(visitor, 0)
        assert values_of(answer.records)[0] == value(0)


@asynchronous
async def test_one_request_waits_for_a_store_that_is_away_only_once() -> None:
    async with visiting(settings={"store.url": new_url()}) as visitor, archiving_in(visitor.house) as keeper:
        await visitor.broker.create_topic(
            TOPIC, 3, {"remote.storage.enable": "true", "segment.bytes": "1500", "local.retention.bytes": "1"}
        )
        for index in range(3):
            for number in range(8):
                await visitor.house.produce(TOPIC, value(number), partition=index)
        await keeper.archive()
        keeper.store.is_away = True
        before = keeper.store.requests.gets
        answers = await fetched(visitor, 0, 0, 0)
        assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
        assert keeper.store.requests.gets == before + 1
        local = visitor.broker.partition(TOPIC, 2).log.log_start
        answers = await fetched(visitor, 0, 0, local)
        assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2 + [ErrorCode.NONE]
        assert values_of(answers[2].records)[0] == value(local)


@asynchronous
async def test_what_the_archive_gives_is_not_held_back_for_more() -> None:
    async with archived() as (visitor, keeper):
        (answer,) = await fetched(visitor, 0, max_wait_ms=60_000, min_bytes=1_000_000)
        assert values_of(answer.records) == [value(0), value(1)], "one segment, at once"
        assert keeper.store.requests.gets == 2, "its index, and the batches"
        await fetched(visitor, 0)
        assert keeper.store.requests.gets == 3, "the index is kept"


@asynchronous
async def test_an_answer_stays_in_its_bounds() -> None:
    async with archived() as (visitor, _):
        (answer,) = await fetched(visitor, 0, max_bytes=1)
        assert values_of(answer.records) == [value(0)], "one batch comes, however large"
        (answer,) = await fetched(visitor, 0, max_bytes=700)
        assert values_of(answer.records) == [value(0)]


@asynchronous
async def test_offsets_outside_are_refused_as_ever() -> None:
    async with archived() as (visitor, keeper):
        (answer,) = await fetched(visitor, COUNT + 1)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await delete_to(visitor, 5)
        (answer,) = await fetched(visitor, 4)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.log_start_offset == 5
        visitor.broker.archive = None
        (answer,) = await fetched(visitor, 5)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert keeper.partition.log_start == 5


@asynchronous
async def test_a_replica_copies_only_what_is_on_the_disk() -> None:
    async with archived() as (visitor, keeper):
        partition, broker = keeper.partition, visitor.broker
        partition.role = partition.role._replace(replicas=(*partition.role.replicas, 9))
        own = broker.metadata.image.brokers[broker.node_id]
        broker.metadata.image.brokers[9] = own
        try:
            (answer,) = await fetched(visitor, 0, replica_id=9)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            (answer,) = await fetched(visitor, partition.log.log_start, replica_id=9)
            assert values_of(answer.records)
            assert answer.log_start_offset == 0, "what it has on its own disk is its own affair"
        finally:
            del broker.metadata.image.brokers[9]


@asynchronous
async def test_people_with_curl_read_the_archive_too() -> None:
    async with archived() as (visitor, _):
        last, records = await PlainBroker(visitor.broker).consume(TOPIC, 0, -1, COUNT)
        assert last == COUNT - 1
        assert [payload for _, _, payload in records] == [value(number) for number in range(COUNT)]


# ListOffsets.


@pytest.mark.parametrize("version", versions(listing.API))
@asynchronous
async def test_every_version_finds_the_ends_and_times(version: int) -> None:
    async with archived() as (visitor, keeper):
        partition = keeper.partition
        local = partition.log.log_start
        assert partition.archive is not None
        special = {
            EARLIEST: 0, LATEST: COUNT, LOCAL: local, TIERED: partition.archive.end - 1, PENDING: partition.archive.end,
        }  # fmt: skip
        for timestamp, offset in special.items():
            found = await offset_at(visitor, timestamp, version)
            assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)
        for number in (0, 9, local - 1, local, COUNT - 1):
            found = await offset_at(visitor, START_MS + number * 1_000, version)
            assert (found.offset, found.timestamp) == (number, START_MS + number * 1_000)
        found = await offset_at(visitor, NEWEST, version)
        assert found.offset == COUNT - 1


@asynchronous
async def test_a_newest_record_that_is_in_the_archive_is_found_there() -> None:
    async with archived() as (visitor, keeper):
        for _ in range(4):
            await visitor.house.produce(TOPIC, value(0))  # with an old time
        await keeper.archive()
        assert keeper.partition.log.log_start >= COUNT
        found = await offset_at(visitor, NEWEST)
        assert (found.offset, found.timestamp) == (COUNT - 1, START_MS + (COUNT - 1) * 1_000)


@asynchronous
async def test_before_anything_is_archived_all_is_pending() -> None:
    async with visiting(settings={"store.url": new_url()}) as visitor, archiving_in(visitor.house) as keeper:
        await keeper.fill(3)
        assert (await offset_at(visitor, TIERED)).offset == -1
        assert (await offset_at(visitor, PENDING)).offset == 0


@asynchronous
async def test_a_time_in_a_store_that_is_away_is_an_error() -> None:
    async with archived() as (visitor, keeper):
        keeper.store.is_away = True
        assert (await offset_at(visitor, START_MS)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await offset_at(visitor, EARLIEST)).error_code == 0


# DeleteRecords, and settings.


@asynchronous
async def test_records_are_deleted_in_the_archive_and_beyond() -> None:
    async with archived() as (visitor, keeper):
        partition = keeper.partition
        answer = await delete_to(visitor, 5)
        assert (answer.error_code, answer.low_watermark) == (0, 5)
        assert (await offset_at(visitor, EARLIEST)).offset == 5
        (found,) = await fetched(visitor, 5)
        assert value(5) in values_of(found.records)
        assert (await offset_at(visitor, 0)).offset == 5
        await keeper.archive()
        assert keeper.segments()[0].base_offset == 4, "the segment that holds it stays"
        end = partition.log_end - 1
        assert (await delete_to(visitor, end)).low_watermark == end
        await keeper.archive()
        assert (partition.log_start, partition.log.log_start) == (end, end)
        assert len(keeper.objects()) <= 4
        (found,) = await fetched(visitor, end)
        assert values_of(found.records)[-1] == value(end)
        assert (await delete_to(visitor, -1)).low_watermark == COUNT
        await keeper.fill(10, first=COUNT)
        await keeper.archive()
        (found,) = await fetched(visitor, COUNT)
        assert values_of(found.records)[0] == value(COUNT)


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"cleanup.policy": "compact"}, "compact"),
        ({"cleanup.policy": "compact,delete"}, "compact"),
        ({"local.retention.ms": "2000", "retention.ms": "1000"}, "local.retention.ms = 2000 is more"),
        ({"local.retention.bytes": "-1", "retention.bytes": "1000"}, "local.retention.bytes = -1 is more"),
        ({"channel.store": "memory://c"}, "channel"),
    ],
)
@asynchronous
async def test_settings_that_contradict_archiving_are_refused(configs: dict[str, str], words: str) -> None:
    async with visiting() as visitor:
        given = {"remote.storage.enable": "true", **configs}
        configured = [create_topics.RequestConfig(name=name, value=text) for name, text in given.items()]
        topic = create_topics.RequestTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configured)
        asked = create_topics.Request(topics=[topic], timeout_ms=1_000)
        answer = await visitor.ask(creating.API, 7, asked, create_topics.Response)
        assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG
        assert words in (answer.topics[0].error_message or "")


@asynchronous
async def test_the_settings_are_described() -> None:
    async with archived() as (visitor, _):
        resource = describe_configs.RequestResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
        answer = await visitor.ask(
            describing.API, 4, describe_configs.Request(resources=[resource]), describe_configs.Response
        )
        values = {config.name: config.value for config in answer.results[0].configs}
        assert values["remote.storage.enable"] == "true"
        assert (values["local.retention.bytes"], values["local.retention.ms"]) == ("1", "-2")
