"""Fetches that wait: what wakes them, what does not, and how they end."""

from __future__ import annotations

import asyncio
import errno

import pytest

from odradek.apis import fetch as fetching
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch
from tests.apis.houses import Visitor, visiting
from tests.broker.houses import batch, values_of
from tests.client.support import asynchronous, tick, until

LONG_MS = 60_000
TOPIC = "orders"


def request(
    *offsets: int, min_bytes: int = 1, max_wait_ms: int = LONG_MS, max_bytes: int = 1 << 20, topic: str = TOPIC
) -> fetch.Request:
    """Fetch from partitions 0, 1, ... at these offsets."""
    wanted = [
        fetch.RequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in enumerate(offsets)
    ]
    return fetch.Request(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[fetch.RequestTopic(topic=topic, partitions=wanted)],
    )


def waiting(visitor: Visitor, asked: fetch.Request) -> asyncio.Task[fetch.Response]:
    return visitor.ask_later(fetching.API, 12, asked, fetch.Response)


def values(answer: fetch.Response, index: int = 0) -> list[bytes | None]:
    return values_of(answer.responses[0].partitions[index].records)


@pytest.mark.parametrize("flush", ["group", "replicated", "os"])
@asynchronous
async def test_a_fetch_at_the_end_is_woken_by_the_next_record(flush: str) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {"flush": flush})
        fetched = waiting(visitor, request(0, 0))
        await tick()
        assert not fetched.done()
        partition = visitor.broker.partition(TOPIC, 1)
        partition.append(batch(b"awaited"))
        if flush == "group":
            await visitor.broker.flushed(partition, 1)
        else:
            partition.advanced()
        answer = await fetched
        assert (values(answer, 0), values(answer, 1)) == ([], [b"awaited"])
        assert answer.responses[0].partitions[1].high_watermark == 1


@asynchronous
async def test_a_record_that_is_not_safe_yet_is_not_shown_and_its_flush_wakes() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        visitor.disk.may_flush.clear()
        partition = visitor.broker.partition(TOPIC, 0)
        partition.append(batch(b"first"))
        flushed = visitor.broker.flushed(partition, 1)
        fetched = waiting(visitor, request(0))
        await until(lambda: visitor.disk.flushes_begun > 0)
        await tick()
        assert not fetched.done(), "a crash could still take it back"
        visitor.disk.may_flush.set()
        await flushed
        async with asyncio.timeout(5):
            assert values(await fetched) == [b"first"]


@asynchronous
async def test_records_made_visible_by_another_flush_setting_wake() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        visitor.disk.may_flush.clear()
        visitor.broker.partition(TOPIC, 0).append(batch(b"shown"))
        fetched = waiting(visitor, request(0))
        await visitor.broker.set_topic_overrides(TOPIC, {"flush": "os"})
        async with asyncio.timeout(5):
            assert values(await fetched) == [b"shown"]


@asynchronous
async def test_it_waits_for_min_bytes_over_all_its_partitions() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        size = len(batch(b"v" * 100))
        await visitor.house.produce(TOPIC, b"v" * 100)
        fetched = waiting(visitor, request(0, 0, min_bytes=3 * size))
        await visitor.house.produce(TOPIC, b"v" * 100, partition=1)
        await tick()
        assert not fetched.done()
        await visitor.house.produce(TOPIC, b"v" * 100, partition=1)
        answer = await fetched
        assert [len(values(answer, index)) for index in range(2)] == [1, 2]


@asynchronous
async def test_min_bytes_beyond_what_an_answer_may_hold_is_not_waited_for() -> None:
    async with visiting(settings={"fetch.max.bytes": "1KiB"}) as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        for _ in range(4):
            await visitor.house.produce(TOPIC, bytes(1500))
        async with asyncio.timeout(5):
            answer = await waiting(visitor, request(0, min_bytes=1 << 20))
        assert len(values(answer)) == 1


@asynchronous
async def test_when_its_time_is_up_it_gets_what_there_is() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        await visitor.house.produce(TOPIC, b"little")
        answer = await waiting(visitor, request(0, 0, min_bytes=1 << 20, max_wait_ms=20))
        assert (values(answer, 0), values(answer, 1)) == ([b"little"], [])
        assert answer.responses[0].partitions[1].error_code == 0


@pytest.mark.parametrize("max_wait_ms", [0, -1])
@asynchronous
async def test_without_time_to_wait_it_is_answered_at_once(max_wait_ms: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        answer = visitor.begin(fetching.API, 12, request(0, max_wait_ms=max_wait_ms))
        assert isinstance(answer, fetch.Response)


@asynchronous
async def test_an_error_in_one_partition_does_not_wait() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        answer = await waiting(visitor, request(0, 0))
        codes = [each.error_code for each in answer.responses[0].partitions]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("by_id", [False, True])
@asynchronous
async def test_a_topic_that_is_deleted_meanwhile_ends_the_wait(by_id: bool) -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic(TOPIC, 1, {})
        asked = request(0)
        asked.topics[0].topic_id = topic.id
        fetched = visitor.ask_later(fetching.API, 13 if by_id else 12, asked, fetch.Response)
        await tick()
        await visitor.broker.delete_topic(TOPIC)
        async with asyncio.timeout(5):
            answer = await fetched
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.responses[0].partitions[0].error_code == code


@asynchronous
async def test_a_fetch_that_is_given_up_leaves_nothing_behind() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        future = visitor.begin(fetching.API, 12, request(0))
        partition = visitor.broker.partition(TOPIC, 0)
        assert len(partition._wakers) == 1
        future.cancel()
        await until(lambda: not partition._wakers)
        await visitor.house.produce(TOPIC, b"nobody waits")


@asynchronous
async def test_many_that_wait_are_all_woken_and_forgotten() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        fetched = [waiting(visitor, request(0)) for _ in range(20)]
        await tick()
        await visitor.house.produce(TOPIC, b"for all")
        for each in fetched:
            assert values(await each) == [b"for all"]
        assert not visitor.broker.partition(TOPIC, 0)._wakers


@asynchronous
async def test_bytes_that_are_not_in_memory_are_read_by_a_thread() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        await visitor.house.produce(TOPIC, b"cold", partition=0)
        await visitor.house.produce(TOPIC, b"also cold", partition=1)
        visitor.disk.is_cold = True
        visitor.disk.may_read.clear()
        fetched = waiting(visitor, request(0, 0))
        await until(lambda: visitor.disk.reads_begun > 0)
        assert not fetched.done(), "and the loop goes on"
        visitor.disk.may_read.set()
        answer = await fetched
        assert (values(answer, 0), values(answer, 1)) == ([b"cold"], [b"also cold"])


@asynchronous
async def test_a_cold_read_that_is_not_enough_waits_for_more() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"v" * 100)
        visitor.disk.is_cold = True
        fetched = waiting(visitor, request(0, min_bytes=250))
        await until(lambda: visitor.disk.reads_begun > 0)
        await tick()
        assert not fetched.done()
        await visitor.house.produce(TOPIC, b"w" * 100)
        assert values(await fetched) == [b"v" * 100, b"w" * 100]


@asynchronous
async def test_records_that_came_while_the_disk_was_read_count_as_there() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {"flush": "os"})
        await visitor.house.produce(TOPIC, b"v" * 100)
        visitor.disk.is_cold = True
        visitor.disk.may_read.clear()
        fetched = waiting(visitor, request(0, 0, min_bytes=250))
        await until(lambda: visitor.disk.reads_begun > 0)
        partition = visitor.broker.partition(TOPIC, 1)
        partition.append(batch(b"w" * 100))
        partition.advanced()
        visitor.disk.may_read.set()
        async with asyncio.timeout(5):
            answer = await fetched
        assert (values(answer, 0), values(answer, 1)) == ([b"v" * 100], [b"w" * 100])


@asynchronous
async def test_a_topic_that_is_deleted_during_a_cold_read_harms_nobody() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        await visitor.house.produce(TOPIC, b"cold", partition=0)
        await visitor.house.produce(TOPIC, b"colder", partition=1)
        visitor.disk.is_cold = True
        visitor.disk.may_read.clear()
        fetched = waiting(visitor, request(0, 0))
        await until(lambda: visitor.disk.reads_begun > 0)
        await visitor.broker.delete_topic(TOPIC)
        visitor.disk.may_read.set()
        answer = await fetched
        assert answer.responses[0].partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not visitor.broker.failed.done()


@pytest.mark.parametrize("is_cold", [False, True])
@asynchronous
async def test_a_disk_that_cannot_read_is_the_partitions_error(is_cold: bool) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        await visitor.house.produce(TOPIC, b"unreadable", partition=0)
        await visitor.house.produce(TOPIC, b"readable", partition=1)
        visitor.disk.is_cold = is_cold
        visitor.disk.fail_next("read", errno.EIO, ending=f"{TOPIC}-0/00000000000000000000.log")
        answer = await waiting(visitor, request(0, 0))
        assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values(answer, 1) == [b"readable"]
