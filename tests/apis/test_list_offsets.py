"""ListOffsets of every version: the ends of a log, and offsets by time."""

from __future__ import annotations

import errno

import pytest

from odradek.apis import list_offsets as listing
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import list_offsets
from tests.apis.houses import Visitor, set_epoch, versions, visiting
from tests.broker.houses import START_MS, batch
from tests.client.support import asynchronous
from tests.log.support import batch as any_batch

TOPIC = "orders"
LATEST, EARLIEST, NEWEST, LOCAL, TIERED, UPLOADED = -1, -2, -3, -4, -5, -6


async def ask(
    visitor: Visitor, timestamp: int, version: int = 11, *, index: int = 0, epoch: int = -1, isolation: int = 0
) -> list_offsets.ResponsePartition:
    wanted = list_offsets.RequestPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    asked = list_offsets.Request(
        replica_id=-1,
        isolation_level=isolation,
        topics=[list_offsets.RequestTopic(name=TOPIC, partitions=[wanted])],
    )
    answer = await visitor.ask(listing.API, version, asked, list_offsets.Response)
    ((found,),) = [topic.partitions for topic in answer.topics]
    assert found.partition_index == index
    return found


async def offset(visitor: Visitor, timestamp: int, version: int = 11, *, isolation: int = 0) -> tuple[int, int]:
    found = await ask(visitor, timestamp, version, isolation=isolation)
    assert found.error_code == 0
    return found.timestamp, found.offset


@pytest.mark.parametrize("version", versions(listing.API))
@asynchronous
async def test_every_version_finds_the_ends_and_times(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {"flush": "os"})
        partition = visitor.broker.partition(TOPIC, 0)
        for later in (0, 10, 30, 20):
            partition.append(batch(b"v", timestamp=START_MS + later))
        partition.log.delete_records(1).run()
        partition.advanced()
        assert await offset(visitor, LATEST, version) == (-1, 4)
        assert await offset(visitor, EARLIEST, version) == (-1, 1)
        assert await offset(visitor, START_MS + 5, version) == (START_MS + 10, 1)
        assert await offset(visitor, START_MS + 11, version) == (START_MS + 30, 2)
        assert await offset(visitor, START_MS + 31, version) == (-1, -1)
        assert await offset(visitor, 0, version) == (START_MS + 10, 1)
        assert await offset(visitor, NEWEST, version) == (START_MS + 30, 2)
        assert await offset(visitor, LOCAL, version) == (-1, 1)
        assert await offset(visitor, TIERED, version) == await offset(visitor, UPLOADED, version) == (-1, -1)
        epochs = [(await ask(visitor, each, version)).leader_epoch for each in (LATEST, START_MS, TIERED)]
        assert epochs == ([0, 0, -1] if version >= 4 else [-1, -1, -1])


@pytest.mark.parametrize("version", versions(listing.API))
@asynchronous
async def test_every_version_is_told_of_what_is_not_there(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        assert (await ask(visitor, LATEST, version, index=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ask(visitor, START_MS, version, index=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await offset(visitor, NEWEST, version) == (-1, -1)
        assert await offset(visitor, LATEST, version) == (-1, 0)
        assert (await ask(visitor, -7, version)).error_code == ErrorCode.UNSUPPORTED_VERSION


@asynchronous
async def test_records_that_are_not_safe_yet_are_not_found() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"safe")
        visitor.broker.partition(TOPIC, 0).append(batch(b"not yet", timestamp=START_MS + 5))
        assert await offset(visitor, LATEST) == (-1, 1)
        assert await offset(visitor, START_MS + 1) == (-1, -1)
        assert await offset(visitor, START_MS) == (START_MS, 0)


@asynchronous
async def test_committed_readers_see_the_end_before_an_open_transaction() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {"flush": "os"})
        partition = visitor.broker.partition(TOPIC, 0)
        partition.append(any_batch(b"plain"))
        partition.append(any_batch(b"open", producer=(7, 0, 0), transactional=True, timestamp=START_MS + 9))
        partition.advanced()
        assert await offset(visitor, LATEST) == (-1, 2)
        assert await offset(visitor, LATEST, isolation=1) == (-1, 1)
        assert await offset(visitor, START_MS + 9) == (START_MS + 9, 1)
        assert await offset(visitor, START_MS + 9, isolation=1) == (-1, -1)


@pytest.mark.parametrize("version", range(4, 12))
@asynchronous
async def test_a_client_of_another_leader_epoch_is_told(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        set_epoch(visitor, TOPIC, 5)
        codes = [(await ask(visitor, LATEST, version, epoch=epoch)).error_code for epoch in (4, 5, 6)]
        assert codes == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]


@asynchronous
async def test_many_partitions_are_looked_up_together() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 5, {})
        await visitor.house.produce(TOPIC, b"a", b"b", partition=3)
        wanted = [
            list_offsets.RequestPartition(partition_index=index, timestamp=timestamp)
            for index, timestamp in enumerate((LATEST, EARLIEST, START_MS, START_MS, NEWEST, LATEST))
        ]
        asked = list_offsets.Request(topics=[list_offsets.RequestTopic(name=TOPIC, partitions=wanted)])
        answer = await visitor.ask(listing.API, 7, asked, list_offsets.Response)
        assert [each.offset for each in answer.topics[0].partitions] == [0, 0, -1, 0, -1, -1]
        assert answer.topics[0].partitions[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@asynchronous
async def test_a_disk_that_cannot_read_is_the_partitions_error() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a")
        visitor.disk.fail_next("read", errno.EIO, ending=".log")
        assert (await ask(visitor, START_MS)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
