"""DeleteRecords of every version: the start of a log moves up, durably, and never beyond what is safe."""

from __future__ import annotations

import errno

import pytest

from odradek.apis import delete_records as deleting
from odradek.model import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import delete_records
from tests.apis.houses import Visitor, versions, visiting
from tests.broker.houses import SlowDisk, batch
from tests.client.support import asynchronous

TOPIC = "orders"


async def ask(
    visitor: Visitor, offset: int, version: int = 2, *, index: int = 0, topic: str = TOPIC
) -> tuple[int, int]:
    """The low watermark and the error."""
    wanted = delete_records.RequestPartition(partition_index=index, offset=offset)
    asked = delete_records.Request(topics=[delete_records.RequestTopic(name=topic, partitions=[wanted])])
    answer = await visitor.ask(deleting.API, version, asked, delete_records.Response)
    ((told,),) = [each.partitions for each in answer.topics]
    return told.low_watermark, told.error_code


@pytest.mark.parametrize("version", versions(deleting.API))
@asynchronous
async def test_every_version_moves_the_start_up(version: int) -> None:
    disk = SlowDisk()
    async with visiting(disk) as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a", b"b", b"c", b"d")
        partition = visitor.broker.partition(TOPIC, 0)
        told: list[int] = []
        partition.wake_on_advance(lambda: told.append(partition.log_start))
        assert await ask(visitor, 2, version) == (2, 0)
        assert told == [2]
        assert await ask(visitor, 1, version) == (2, 0), "it never goes back"
        assert await ask(visitor, 0, version) == (2, 0)
        assert await ask(visitor, -1, version) == (4, 0)
        assert await ask(visitor, 4, version) == (4, 0)
    async with visiting(disk) as visitor:
        assert visitor.broker.partition(TOPIC, 0).log_start == 4


@asynchronous
async def test_offsets_beyond_what_is_safe_are_out_of_range() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a")
        visitor.broker.partition(TOPIC, 0).append(batch(b"not safe"))
        for offset in (2, 3, -2):
            assert await ask(visitor, offset) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert await ask(visitor, -1) == (1, 0)


@asynchronous
async def test_logs_whose_records_must_stay_are_refused() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        await visitor.broker.create_topic("both", 1, {"cleanup.policy": "compact,delete"})
        await visitor.broker.create_topic(OFFSETS_TOPIC, 1, {}, internal=True)
        assert await ask(visitor, -1, topic="compacted") == (-1, ErrorCode.POLICY_VIOLATION)
        assert await ask(visitor, -1, topic="both") == (0, 0)
        assert await ask(visitor, -1, topic=OFFSETS_TOPIC) == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert await ask(visitor, -1, topic="unknown") == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await ask(visitor, -1, topic="both", index=1) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@asynchronous
async def test_a_disk_that_fails_is_told_and_stops_the_broker() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a", b"b")
        visitor.disk.fail_next("write", errno.EIO)
        assert (await ask(visitor, 1))[1] == ErrorCode.KAFKA_STORAGE_ERROR
        assert visitor.broker.failed.done()
