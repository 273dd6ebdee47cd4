"""Messages for MyKafka's door inside the broker: read from any batch, stored together, and what is in doubt."""

from __future__ import annotations

import asyncio
import errno

import pytest

from odradek.broker.mykafka import MyKafkaBroker, NoMessageError, Offsets
from odradek.broker.mykafka_sending import MyKafkaSending, UnsureError
from odradek.controller.image import PartitionLimits
from odradek.model import TopicPartition
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import START_MS, House, at_home, batch, refusal_of
from tests.client.support import until
from tests.edge.doors import on_uvloop

PLACE = TopicPartition("t", 0)
LIMITS = PartitionLimits(0, 0, 0)


async def append(house: House, data: bytearray) -> None:
    partition = house.broker.partition(*PLACE)
    await house.broker.committed(partition, partition.append(data).last_offset + 1)


@pytest.mark.parametrize("codec", list(Codec))
@on_uvloop
async def test_each_message_of_a_producer_s_batch_is_read_at_its_own_offset(codec: Codec) -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        port = MyKafkaBroker(house.broker)
        values = [b"%d" % number * 50 for number in range(20)]
        await append(house, batch(b"before"))
        await append(house, build_batch([NewRecord(value, timestamp=START_MS) for value in values], codec=codec))
        await append(house, batch(None))
        assert [await port.read(PLACE, 1 + number) for number in range(20)] == values
        assert [await port.read(PLACE, 1 + number) for number in (19, 3, 3)] == [values[19], values[3], values[3]]
        assert await port.read(PLACE, 0) == b"before"
        assert await port.read(PLACE, 21) == b""  # a tombstone
        assert port.offsets(PLACE) == Offsets(0, 21, 21)


@on_uvloop
async def test_what_is_no_message_and_what_was_compacted_away_are_not_replaced_by_the_next() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        port = MyKafkaBroker(house.broker)
        await append(house, batch(b"a"))
        await append(
            house,
            control_batch(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS),
        )
        await append(house, batch(b"b"))
        partition = house.broker.partition(*PLACE)
        partition.log.append_replicated(
            build_batch([NewRecord(b"c", timestamp=START_MS)], base_offset=7, leader_epoch=0)
        )
        await house.broker.committed(partition, 8)
        assert [await port.read(PLACE, offset) for offset in (0, 2, 7)] == [b"a", b"b", b"c"]
        for offset in (1, 3, 6, 8):
            with pytest.raises(NoMessageError):
                await port.read(PLACE, offset)


@on_uvloop
async def test_a_message_that_is_not_in_memory_is_read_in_a_thread() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        await house.produce("t", b"a", b"b")
        house.disk.is_cold = True
        house.disk.may_read.clear()
        reading = asyncio.create_task(MyKafkaBroker(house.broker).read(PLACE, 1))
        await until(lambda: house.disk.reads_begun > 0)
        house.disk.may_read.set()
        assert await reading == b"b"


@on_uvloop
async def test_messages_that_arrive_while_a_flush_is_under_way_share_the_next_batch() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        sending = MyKafkaSending(house.broker)
        house.disk.may_flush.clear()
        first = asyncio.create_task(sending.send("t", 0, b"first", None))
        await until(lambda: house.broker.partition(*PLACE).log_end == 1)
        later = [asyncio.create_task(sending.send("t", 0, b"%d" % number, None)) for number in range(50)]
        left = later.pop(7)
        outbox = sending._outboxes[house.broker.partition(*PLACE)]
        await until(lambda: len(outbox.waiting) == 50 and house.disk.flushes_begun > 0)
        assert house.broker.partition(*PLACE).log_end == 1  # they wait
        left.cancel()
        house.disk.may_flush.set()
        assert await first == 0
        assert await asyncio.gather(*later) == list(range(1, 50))  # whoever hangs up before is not stored
        stats = house.broker.store.flush_stats()
        assert stats.batches == 2
        port = MyKafkaBroker(house.broker)
        assert await port.read(PLACE, 49) == b"49"
        assert not sending._outboxes, "nothing is kept for a partition that has nothing to do"


@on_uvloop
async def test_a_batch_is_no_larger_than_a_segment_and_a_message_too_large_fails_alone() -> None:
    async with at_home(max_message_bytes=1_000) as house:
        port = MyKafkaBroker(house.broker)
        await port.create(PLACE, LIMITS._replace(segment_bytes=300), 10.0)
        sending = MyKafkaSending(house.broker)
        payloads = [b"%02d" % number * 20 for number in range(20)]
        sends = [sending.send("t", 0, payload, None) for payload in (*payloads, b"x" * 2_000)]
        *offsets, refused = await asyncio.gather(*sends, return_exceptions=True)
        assert offsets == list(range(20))
        assert isinstance(refused, PeerError) and refused.code is ErrorCode.MESSAGE_TOO_LARGE
        assert all(segment.size_bytes <= 300 for segment in house.broker.partition(*PLACE).log.segments)
        assert [await port.read(PLACE, offset) for offset in range(20)] == payloads


@on_uvloop
async def test_a_flush_that_fails_leaves_its_messages_in_doubt_and_stops_the_broker() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        sending = MyKafkaSending(house.broker)
        await sending.send("t", 0, b"safe", None)
        house.disk.fail_next("flush", errno.EIO)
        with pytest.raises(UnsureError, match="not known"):
            await sending.send("t", 0, b"in doubt", None)
        assert house.broker.failed.done()


@on_uvloop
async def test_a_partition_that_goes_ends_what_waits_for_it() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        sending = MyKafkaSending(house.broker)
        house.disk.may_flush.clear()
        under_way = asyncio.create_task(sending.send("t", 0, b"a", None))
        await until(lambda: house.broker.partition(*PLACE).log_end == 1)
        waiting = asyncio.create_task(sending.send("t", 0, b"b", None))
        await until(lambda: len(house.broker.partition(*PLACE)._waiting) == 1)
        house.broker.partition(*PLACE).let_go()
        with pytest.raises(UnsureError):
            await under_way
        assert await refusal_of(waiting) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert house.broker.topics["t"].partitions[0].log_end == 1


@on_uvloop
async def test_what_is_kept_of_batches_that_were_read_is_bounded_by_their_messages_too() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        port = MyKafkaBroker(house.broker)
        count = 100_000
        await append(house, build_batch([NewRecord(b"", timestamp=START_MS)] * count, codec=Codec.GZIP))
        await append(house, batch(b"a", b"b"))
        assert await port.read(PLACE, count - 1) == b""
        assert not port._lately, "messages without a byte take memory as well"
        assert await port.read(PLACE, count + 1) == b"b"
        assert len(port._lately) == 1
