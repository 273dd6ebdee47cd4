"""Produce of every version: what is written, when it is answered, and what is refused."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from odradek.apis import produce as producing
from odradek.log.config import Flush
from odradek.model import OFFSETS_TOPIC
from odradek.records.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import produce
from odradek.wire.messages.produce import RequestPartition, RequestTopic
from tests.apis.houses import Visitor, versions, visiting
from tests.broker.houses import START_MS, batch, values_of
from tests.client.support import asynchronous, tick, until
from tests.log.support import batch as any_batch

TOPIC = "orders"
FIRST_WITH_BATCHES, FIRST_WITH_MESSAGES, FIRST_WITH_LOG_START = 3, 8, 5


def request(*batches: bytes | bytearray | None, topic: str = TOPIC, acks: int = -1, **fields: Any) -> produce.Request:
    """One batch for each of the partitions 0, 1, ..."""
    sent = [RequestPartition(index=index, records=each) for index, each in enumerate(batches)]
    return produce.Request(
        acks=acks, timeout_ms=1000, topic_data=[RequestTopic(name=topic, partition_data=sent)], **fields
    )


async def answers(visitor: Visitor, asked: produce.Request, version: int = 9) -> list[produce.ResponsePartition]:
    answer = await visitor.ask(producing.API, version, asked, produce.Response)
    return [each for topic in answer.responses for each in topic.partition_responses]


async def code(visitor: Visitor, asked: produce.Request, version: int = 9) -> int:
    (only,) = await answers(visitor, asked, version)
    assert (only.base_offset == -1) == (only.error_code != 0)
    assert (only.error_message is None) == (only.error_code == 0 or version < FIRST_WITH_MESSAGES)
    return only.error_code


def stored(visitor: Visitor, index: int = 0) -> list[bytes | None]:
    log = visitor.broker.partition(TOPIC, index).log
    chunk = log.read(log.log_start, 1 << 20)
    return [] if chunk is None else values_of(chunk.data)


@pytest.mark.parametrize("version", versions(producing.API))
@asynchronous
async def test_every_version_writes_or_says_why_not(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        if version < FIRST_WITH_BATCHES:
            assert await code(visitor, request(batch(b"a")), version) == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
            assert stored(visitor) == []
            return
        first = await answers(visitor, request(batch(b"a", b"b"), batch(b"c")), version)
        second = await answers(visitor, request(batch(b"d")), version)
        assert [(each.index, each.error_code, each.base_offset) for each in first] == [(0, 0, 0), (1, 0, 0)]
        assert second[0].base_offset == 2
        assert second[0].log_append_time_ms == -1
        assert second[0].log_start_offset == (0 if version >= FIRST_WITH_LOG_START else -1)
        assert (stored(visitor, 0), stored(visitor, 1)) == ([b"a", b"b", b"d"], [b"c"])
        assert await code(visitor, request(batch(b"x"), topic="unknown"), version) == 3


@pytest.mark.parametrize("codec", list(Codec))
@asynchronous
async def test_batches_are_kept_as_they_were_compressed(codec: Codec) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        sent = any_batch(b"v" * 100, codec=codec)
        assert await code(visitor, request(bytes(sent))) == 0
        assert visitor.broker.partition(TOPIC, 0).log.size_bytes == len(sent)
        assert stored(visitor) == [b"v" * 100]


@pytest.mark.parametrize("acks", [1, -1])
@asynchronous
async def test_a_topic_that_is_flushed_is_answered_after_its_flush(acks: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        visitor.disk.may_flush.clear()
        asked = visitor.ask_later(producing.API, 9, request(batch(b"a"), batch(b"b"), acks=acks), produce.Response)
        await until(lambda: visitor.disk.flushes_begun > 0)
        await tick()
        assert not asked.done()
        assert visitor.broker.partition(TOPIC, 0).high_watermark == 0
        visitor.disk.may_flush.set()
        answer = await asked
        assert [each.error_code for each in answer.responses[0].partition_responses] == [0, 0]
        assert [visitor.broker.partition(TOPIC, index).high_watermark for index in range(2)] == [1, 1]


@pytest.mark.parametrize("flush", [Flush.REPLICATED, Flush.OS])
@asynchronous
async def test_a_topic_that_is_not_flushed_is_answered_at_once_and_readers_are_told(flush: Flush) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {"flush": flush.value})
        told: list[int] = []
        partition = visitor.broker.partition(TOPIC, 0)
        partition.wake_on_advance(lambda: told.append(partition.high_watermark))
        answer = visitor.begin(producing.API, 9, request(batch(b"a")))
        assert isinstance(answer, produce.Response)
        assert told == [1]
        assert visitor.disk.flushes_begun == 0
        assert partition.log in visitor.broker.written


@asynchronous
async def test_acks_0_gets_no_answer_and_is_written_and_flushed_all_the_same() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        assert visitor.begin(producing.API, 9, request(batch(b"a"), acks=0)) is None
        await until(lambda: visitor.broker.partition(TOPIC, 0).high_watermark == 1)
        assert stored(visitor) == [b"a"]
        assert visitor.begin(producing.API, 9, request(batch(b"a"), acks=0, topic="unknown")) is None


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (request(batch(b"a"), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (request(batch(b"a"), acks=-2), ErrorCode.INVALID_REQUIRED_ACKS),
        (request(batch(b"a"), transactional_id="t"), ErrorCode.INVALID_TXN_STATE),
        (request(any_batch(b"a", producer=(1, 0, 0), transactional=True)), ErrorCode.INVALID_TXN_STATE),
        (request(None), ErrorCode.INVALID_RECORD),
        (request(batch(b"a") + batch(b"b")), ErrorCode.INVALID_RECORD),
        (request(batch(b"a")[:-1]), ErrorCode.CORRUPT_MESSAGE),
        (request(b""), ErrorCode.CORRUPT_MESSAGE),
        (request(batch(bytes(2 << 20))), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
@asynchronous
async def test_what_cannot_be_written_is_refused(asked: produce.Request, wanted: ErrorCode) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        assert await code(visitor, asked) == wanted
        assert stored(visitor) == []
        assert not visitor.broker.failed.done()


@asynchronous
async def test_the_brokers_own_topic_is_not_for_clients() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(OFFSETS_TOPIC, 1, {}, internal=True)
        assert await code(visitor, request(batch(b"a"), topic=OFFSETS_TOPIC)) == ErrorCode.INVALID_TOPIC_EXCEPTION


@asynchronous
async def test_one_partition_that_is_refused_does_not_keep_the_others_from_being_written() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        sent = await answers(visitor, request(batch(b"a"), batch(b"b")[:-1], batch(b"no such partition")))
        assert [each.error_code for each in sent] == [
            ErrorCode.NONE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (stored(visitor, 0), stored(visitor, 1)) == ([b"a"], [])


@asynchronous
async def test_a_compacted_topic_wants_keys() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
        assert await code(visitor, request(batch(b"a"))) == ErrorCode.INVALID_RECORD
        assert await code(visitor, request(batch(b"a", key=b"k"))) == 0


@asynchronous
async def test_a_topic_that_stamps_records_says_when() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {"message.timestamp.type": "LogAppendTime"})
        visitor.clock.advance(5)
        (only,) = await answers(visitor, request(batch(b"a", timestamp=START_MS - 1000)))
        assert only.log_append_time_ms == START_MS + 5


@asynchronous
async def test_an_idempotent_producer_is_told_the_same_offset_twice_and_a_gap_once() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})

        def numbered(sequence: int, epoch: int = 1) -> produce.Request:
            return request(any_batch(b"v", producer=(5, epoch, sequence)))

        for _ in range(2):
            assert [each.base_offset for each in await answers(visitor, numbered(0))] == [0]
        assert await code(visitor, numbered(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await code(visitor, numbered(1)) == 0
        assert await code(visitor, numbered(0, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert len(stored(visitor)) == 2


@asynchronous
async def test_a_repetition_is_answered_only_when_the_first_one_is_safe() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        visitor.disk.may_flush.clear()
        asked = request(any_batch(b"v", producer=(5, 0, 0)))
        both = [visitor.ask_later(producing.API, 9, asked, produce.Response) for _ in range(2)]
        await until(lambda: visitor.disk.flushes_begun > 0)
        await tick()
        assert not any(each.done() for each in both)
        visitor.disk.may_flush.set()
        offsets = [each.responses[0].partition_responses[0].base_offset for each in await asyncio.gather(*both)]
        assert offsets == [0, 0]
        assert stored(visitor) == [b"v"]


@pytest.mark.parametrize("action", ["append to", "flush"])
@asynchronous
async def test_a_disk_that_fails_is_told_and_stops_the_broker(action: str) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        visitor.disk.fail_next(action, errno.ENOSPC, ending=f"{TOPIC}-0/00000000000000000000.log")
        assert await code(visitor, request(batch(b"a"))) == ErrorCode.KAFKA_STORAGE_ERROR
        assert visitor.broker.failed.done()
        assert visitor.broker.partition(TOPIC, 0).high_watermark == 0


@asynchronous
async def test_a_topic_that_is_deleted_before_the_flush_is_unknown_then() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        asked = visitor.ask_later(producing.API, 9, request(batch(b"a")), produce.Response)
        await visitor.broker.delete_topic(TOPIC)
        answer = await asked
        told = answer.responses[0].partition_responses[0].error_code
        assert told in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
        assert not visitor.broker.failed.done()


@asynchronous
async def test_acks_all_needs_as_many_replicas_as_the_topic_asks_for() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {"min.insync.replicas": "2"})
        assert await code(visitor, request(batch(b"a"))) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await code(visitor, request(batch(b"a"), acks=1)) == 0
        await visitor.broker.set_topic_overrides(TOPIC, {})
        assert await code(visitor, request(batch(b"a"))) == 0
