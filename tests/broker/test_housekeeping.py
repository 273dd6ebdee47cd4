"""What a broker does on its own: it cleans, expires and checkpoints, and never stumbles over what goes meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from odradek.broker.housekeeping import Housekeeping
from odradek.broker.topics import Partition
from odradek.disk.errors import DiskError
from odradek.log.errors import LogDeletedError, LogStoppedError
from tests.broker.houses import House, at_home, batch, values_of
from tests.client.support import asynchronous, until

SEGMENT = 1024
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT), "min.cleanable.dirty.ratio": "0.01"}


@asynccontextmanager
async def kept(**settings: object) -> AsyncIterator[tuple[House, Housekeeping]]:
    """A broker and its housekeeping, which does only what the test asks for."""
    async with at_home(None, None, **settings) as house:
        housekeeping = Housekeeping(house.broker)
        try:
            yield house, housekeeping
        finally:
            house.disk.may_read.set()
            await housekeeping.close()


async def fill(house: House, topic: str, count: int = 8, *, overrides: dict[str, str] | None = None) -> Partition:
    """Make a topic of many small segments, all with the same key."""
    if topic not in house.broker.topics:
        await house.broker.create_topic(topic, 1, overrides or {"segment.bytes": str(SEGMENT)})
    for number in range(count):
        await house.produce(topic, b"%d" % number + bytes(600), key=b"k")
    return house.broker.partition(topic, 0)


def values(partition: Partition) -> list[bytes | None]:
    """The first bytes of all values."""
    found, offset = [], partition.log_start
    while (chunk := partition.log.read(offset, 1 << 20)) is not None and chunk.data:
        found += values_of(chunk.data)
        offset = chunk.next_offset
    return [value and value[:1] for value in found]


@asynchronous
async def test_a_checkpoint_writes_what_has_changed_once() -> None:
    async with kept() as (house, housekeeping):
        partition = await fill(house, "orders", 1)
        written: list[int] = []
        partition.log.checkpoint = lambda: written.append(1)  # type: ignore[method-assign]
        house.broker.written.add(partition.log)
        await housekeeping.checkpoint()
        await housekeeping.checkpoint()
        assert written == [1]
        assert house.broker.written == set()


@asynchronous
async def test_old_segments_are_removed_and_readers_are_told() -> None:
    async with kept() as (house, housekeeping):
        partition = await fill(house, "orders", overrides={"segment.bytes": str(SEGMENT), "retention.ms": "1000"})
        await housekeeping.expire()
        assert partition.log_start == 0, "nothing is old yet"
        woken: list[int] = []
        partition.wake_on_advance(lambda: woken.append(partition.log_start))
        house.clock.advance(1001)
        await housekeeping.expire()
        await until(lambda: partition.log.flushed_segment == partition.log.segments[-1].base_offset)
        await housekeeping.expire()
        assert partition.log_start > 0
        assert woken[-1] == partition.log_start


@asynchronous
async def test_a_segment_that_is_closed_for_its_age_is_flushed_so_that_it_can_go() -> None:
    async with kept() as (house, housekeeping):
        await house.broker.create_topic("orders", 1, {"segment.ms": "1000", "retention.ms": "2000"})
        await house.produce("orders", b"a")
        partition = house.broker.partition("orders", 0)
        house.clock.advance(1001)
        await housekeeping.expire()
        assert len(partition.log.segments) == 2
        await until(lambda: partition.log.flushed_segment == 1)
        house.clock.advance(1000)
        await housekeeping.expire()
        assert (partition.log_start, len(partition.log.segments)) == (1, 1)


@asynchronous
async def test_what_is_not_flushed_yet_is_not_expired() -> None:
    async with kept() as (house, housekeeping):
        await house.broker.create_topic("orders", 1, {"segment.bytes": str(SEGMENT), "retention.ms": "1000"})
        partition = house.broker.partition("orders", 0)
        house.disk.may_flush.clear()
        for _ in range(4):
            partition.append(batch(bytes(600)))
        house.clock.advance(10_000)
        await housekeeping.expire()
        assert partition.log_start == 0
        house.disk.may_flush.set()


@asynchronous
async def test_compaction_keeps_the_last_value_of_a_key_and_only_in_compacted_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with kept() as (house, housekeeping):
        compacted = await fill(house, "compacted", overrides=COMPACTED)
        plain = await fill(house, "plain")
        with caplog.at_level(logging.INFO):
            await housekeeping.compact()
        assert len(values(plain)) == 8
        assert 1 <= len(values(compacted)) < 8
        assert values(compacted)[-1] == b"7"
        assert "compacted-0 is compacted" in caplog.text


@asynchronous
async def test_deleting_a_topic_while_it_is_compacted_harms_nobody() -> None:
    async with kept(log_cleaner_backoff_ms=10, log_retention_check_interval_ms=86_400_000) as (house, housekeeping):
        await fill(house, "doomed", overrides=COMPACTED)
        house.disk.may_read.clear()
        house.disk.is_cold = True
        housekeeping.start()
        await until(lambda: house.disk.reads_begun > 0)
        await house.broker.delete_topic("doomed")
        house.disk.is_cold = False
        house.disk.may_read.set()
        other = await fill(house, "other", overrides=COMPACTED)
        await until(lambda: house.broker.failed.done() or len(values(other)) < 8)
        assert not house.broker.failed.done(), house.broker.failed.result()


@asynchronous
async def test_a_partition_that_cannot_be_compacted_is_named_once_and_the_others_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with kept() as (house, housekeeping):
        damaged = await fill(house, "damaged", overrides=COMPACTED)
        good = await fill(house, "good", overrides=COMPACTED)
        path = f"{damaged.log.directory}/00000000000000000000.log"
        content = bytearray(house.disk.read_file(path) or b"")
        content[-1] ^= 1
        house.disk.overwrite(path, bytes(content))
        await housekeeping.compact()
        await housekeeping.compact()
        assert caplog.text.count("damaged-0 is not compacted any more") == 1
        assert len(values(good)) < 8
        assert not damaged.log.compacting
        assert not house.broker.failed.done()


@asynchronous
async def test_closing_waits_for_a_compaction_that_runs_and_leaves_the_log_whole() -> None:
    async with kept(log_cleaner_backoff_ms=10) as (house, housekeeping):
        partition = await fill(house, "orders", overrides=COMPACTED)
        house.disk.may_read.clear()
        house.disk.is_cold = True
        housekeeping.start()
        await until(lambda: house.disk.reads_begun > 0)
        closing = asyncio.create_task(housekeeping.close())
        await until(lambda: all(task.cancelling() for task in housekeeping._tasks))
        assert not closing.done()
        house.disk.is_cold = False
        house.disk.may_read.set()
        await closing
        assert not partition.log.compacting
        assert len(values(partition)) == 8


@asynchronous
async def test_a_stopped_log_is_left_alone_and_the_others_are_not() -> None:
    async with kept() as (house, housekeeping):
        stopped = await fill(house, "a-stopped", 1, overrides={"retention.ms": "1000", "segment.ms": "1000"})
        other = await fill(house, "other", 1, overrides={"retention.ms": "1000", "segment.ms": "1000"})
        stopped.log.stopped = ValueError("for a test")
        house.broker.written |= {stopped.log, other.log}
        house.clock.advance(5000)
        await housekeeping.checkpoint()
        await housekeeping.expire()
        await housekeeping.compact()
        assert len(stopped.log.segments) == 1 and len(other.log.segments) == 2
        stopped.log.stopped = None


@pytest.mark.parametrize(
    ("error", "is_the_disk"),
    [
        (DiskError("write", "f", "I/O error"), True),
        (LogStoppedError("orders-0", DiskError("write", "f", "I/O error")), True),
        (LogStoppedError("orders-0", LogDeletedError("it is deleted")), False),
    ],
)
@asynchronous
async def test_a_disk_that_fails_stops_the_broker_and_a_deleted_topic_does_not(
    error: Exception, is_the_disk: bool
) -> None:
    async with kept(log_checkpoint_interval_ms=100) as (house, housekeeping):
        met: list[int] = []

        async def stumble() -> None:
            met.append(1)
            raise error

        housekeeping.checkpoint = stumble  # type: ignore[method-assign]
        housekeeping.start()
        await until(lambda: bool(met))
        await until(lambda: house.broker.failed.done() or len(met) > 1)
        assert house.broker.failed.done() == is_the_disk


@asynchronous
async def test_a_bug_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async with kept(log_checkpoint_interval_ms=100) as (house, housekeeping):
        tries: list[int] = []

        async def stumble() -> None:
            tries.append(1)
            raise RuntimeError("for a test")

        housekeeping.checkpoint = stumble  # type: ignore[method-assign]
        housekeeping.start()
        await until(lambda: len(tries) >= 2)
        assert "a bug in background work" in caplog.text and "for a test" in caplog.text
        assert not house.broker.failed.done()
