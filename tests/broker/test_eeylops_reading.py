"""Reading as Eeylops' consumers do, once: from where, how much, and what is passed over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.eeylops_reading import BATCH_SIZE_MAX, ConsumeSpec
from odradek.broker.value_cursor import Batch
from odradek.groups.ledger import partition_of
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import START_MS, batch, refusal_of
from tests.broker.readers import PLACE, SECONDS, reader
from tests.client.support import until
from tests.edge.doors import on_uvloop


def timed(*times: int) -> bytearray:
    """A batch with values that are named by their time."""
    return build_batch([NewRecord(b"%d" % time, timestamp=time) for time in times])


@on_uvloop
async def test_values_come_with_offset_and_time_and_say_where_to_go_on() -> None:
    async with reader() as t:
        await t.produce(b"a", b"b")
        await t.produce(b"c")
        expected = [(0, START_MS, b"a"), (1, START_MS, b"b"), (2, START_MS, b"c")]
        assert await t.consume() == Batch(expected, 3)
        assert await t.consume(start_offset=1, batch_size=1) == Batch(expected[1:2], 2)
        assert await t.consume(start_offset=3) == Batch([], 3)


@on_uvloop
async def test_a_batch_has_a_hundred_values_unless_more_are_wanted_and_never_too_many() -> None:
    async with reader() as t:
        for _ in range(3):
            await t.produce(*[b"x"] * 5_000)
        assert (await t.consume()).next_offset == 100
        assert len(await t.values(batch_size=6_000)) == 6_000
        assert len(await t.values(batch_size=2**31 - 1)) == BATCH_SIZE_MAX


@pytest.mark.parametrize("codec", Codec)
@on_uvloop
async def test_batches_of_any_codec_are_read_from_their_middle(codec: Codec) -> None:
    async with reader() as t:
        records = [NewRecord(b"v%d" % number, key=b"k", timestamp=START_MS) for number in range(10)]
        await t.append(build_batch(records, codec=codec))
        assert await t.values(start_offset=7) == [b"v7", b"v8", b"v9"]
        assert (await t.consume(start_offset=2, batch_size=3)).next_offset == 5


@on_uvloop
async def test_marks_of_transactions_are_passed_over_and_null_values_have_no_bytes() -> None:
    async with reader() as t:
        await t.append(batch(b"a", None))
        mark = control_batch(
            ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
        )
        await t.append(mark)
        assert await t.consume() == Batch([(0, START_MS, b"a"), (1, START_MS, b"")], 3)
        assert await t.consume(start_offset=2) == Batch([], 3)


@on_uvloop
async def test_nothing_is_read_beyond_the_high_watermark() -> None:
    async with reader() as t:
        await t.produce(b"safe")
        t.house.disk.may_flush.clear()
        partition = t.broker.partition(*PLACE)
        written = partition.append(batch(b"not yet"))
        flushed = t.broker.committed(partition, written.last_offset + 1)
        assert await t.consume() == Batch([(0, START_MS, b"safe")], 1)
        assert await t.consume(start_offset=2) == Batch([], 2)  # it is there, and cannot be seen
        t.house.disk.may_flush.set()
        await flushed
        assert await t.values(start_offset=1) == [b"not yet"]


@on_uvloop
async def test_a_start_below_what_is_retained_gives_the_first_that_is() -> None:
    async with reader() as t:
        await t.produce(b"a", b"b")
        await t.produce(b"c", b"d")
        t.trim(3)
        assert await t.consume(start_offset=1) == Batch([], 3)
        assert await t.values(start_offset=3) == [b"d"]
        t.trim(4)
        assert await t.consume(start_offset=3) == Batch([], 4)


@on_uvloop
async def test_what_is_not_in_memory_is_read_in_a_thread() -> None:
    async with reader() as t:
        await t.produce(b"a", b"b")
        disk = t.house.disk
        disk.is_cold = True
        disk.may_read.clear()
        reading = asyncio.create_task(t.values())
        await until(lambda: disk.reads_begun > 0)
        disk.may_read.set()
        assert await reading == [b"a", b"b"]


@on_uvloop
async def test_an_answer_is_no_larger_than_a_message_may_be() -> None:
    async with reader(message_bytes=65_536) as t:
        await t.produce(*[bytes(10_000)] * 20)
        await t.produce(bytes(64_500), b"small")
        found = await t.consume(batch_size=1_000)
        assert len(found.values) == 6
        assert found.next_offset == 6
        large = await t.consume(start_offset=20)
        assert [len(value) for _, _, value in large.values] == [64_500]
        assert await t.values(start_offset=large.next_offset) == [b"small"]


@on_uvloop
async def test_an_answer_is_no_larger_than_grpcs_clients_take_unless_they_are_told_otherwise() -> None:
    async with reader(message_bytes=1 << 30, max_message_bytes=1 << 20) as t:
        for _ in range(8):
            await t.produce(*[bytes(1_000)] * 1_000)
        assert 4_000 < len(await t.values(batch_size=10_000)) <= 4 * 2**20 // 1_032


@on_uvloop
async def test_reading_by_time_begins_with_the_first_value_at_or_after_it() -> None:
    async with reader() as t:
        await t.append(timed(1_000, 2_000))
        await t.append(timed(3_000, 4_000))
        assert await t.values(start_offset=-1, start_timestamp=2_000) == [b"2000", b"3000", b"4000"]
        assert await t.values(start_offset=-1, start_timestamp=2_001) == [b"3000", b"4000"]
        assert await t.values(start_offset=-1) == [b"1000", b"2000", b"3000", b"4000"]
        assert await t.consume(start_offset=-1, start_timestamp=4_001) == Batch([], 4)


@on_uvloop
async def test_a_range_of_time_is_half_open() -> None:
    async with reader() as t:
        await t.append(timed(1_000, 2_000))
        await t.append(timed(3_000, 4_000))
        expected = Batch([(1, 2_000, b"2000")], 2)
        assert await t.consume(start_offset=-1, start_timestamp=1_500, end_timestamp=3_000) == expected
        assert await t.consume(start_offset=1, end_timestamp=3_000) == expected
        assert await t.consume(start_offset=2, end_timestamp=3_000) == Batch([], 2)
        assert await t.consume(start_offset=-1, start_timestamp=2_000, end_timestamp=2_000) == Batch([], 1)
        assert (await t.consume(start_offset=-1, end_timestamp=9_000)).next_offset == 4


@on_uvloop
async def test_a_range_ends_before_its_first_value_that_is_too_late() -> None:
    async with reader() as t:
        await t.append(timed(1_000, 5_000, 1_500))
        assert await t.consume(start_offset=0, end_timestamp=2_000) == Batch([(0, 1_000, b"1000")], 1)


@pytest.mark.parametrize(
    "spec",
    [
        ConsumeSpec(batch_size=-1),
        ConsumeSpec(start_offset=-2),
        ConsumeSpec(start_offset=-(2**63)),
        ConsumeSpec(start_offset=-1, start_timestamp=-1),
        ConsumeSpec(end_timestamp=-1),
        ConsumeSpec(start_offset=-1, start_timestamp=5, end_timestamp=4),
        ConsumeSpec(auto_commit=True),
        ConsumeSpec(start_offset=-1, resume=True),
        ConsumeSpec(consumer_id="a::b"),
        ConsumeSpec(consumer_id="a\x00b"),
        ConsumeSpec(consumer_id="x" * 257),
    ],
)
@on_uvloop
async def test_what_cannot_be_meant_is_refused(spec: ConsumeSpec) -> None:
    async with reader() as t:
        reading = t.reading.consume(PLACE, spec, follower=False, timeout_s=SECONDS)
        assert await refusal_of(reading) is ErrorCode.INVALID_REQUEST
        stream = t.reading.subscribe(PLACE, spec, follower=False)
        assert await refusal_of(anext(stream)) is ErrorCode.INVALID_REQUEST


@on_uvloop
async def test_a_start_beyond_the_end_and_partitions_that_are_not_there_are_refused() -> None:
    async with reader() as t:
        await t.produce(b"a")
        assert await refusal_of(t.consume(start_offset=2)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await refusal_of(t.subscribe(start_offset=2).next()) is ErrorCode.OFFSET_OUT_OF_RANGE
        for place in (TopicPartition("t", 1), TopicPartition("other", 0)):
            reading = t.reading.consume(place, ConsumeSpec(), follower=True, timeout_s=SECONDS)
            assert await refusal_of(reading) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_resuming_goes_on_at_the_last_commit_or_at_the_first_value() -> None:
    async with reader() as t:
        await t.produce(b"a", b"b", b"c")
        assert await refusal_of(t.consume("me", start_offset=-1, resume=True)) is ErrorCode.GROUP_ID_NOT_FOUND
        await t.register()
        assert await t.values("me", start_offset=-1, resume=True) == [b"a", b"b", b"c"]
        await t.commit(2)
        assert await t.values("me", start_offset=-1, resume=True) == [b"c"]
        t.trim(3)
        assert await t.consume("me", start_offset=-1, resume=True) == Batch([], 3)
        await t.commit(1)  # also below what is retained
        assert await t.consume("me", start_offset=-1, resume=True) == Batch([], 3)


@on_uvloop
async def test_auto_commit_stores_where_to_go_on_and_needs_a_registration() -> None:
    async with reader() as t:
        await t.produce(b"a", b"b", b"c")
        assert await refusal_of(t.consume("me", auto_commit=True)) is ErrorCode.GROUP_ID_NOT_FOUND
        await t.register()
        follow = {"start_offset": -1, "resume": True, "auto_commit": True}
        assert await t.values("me", batch_size=2, **follow) == [b"a", b"b"]
        assert await t.committed() == 2
        assert await t.values("me", **follow) == [b"c"]
        kept = t.broker.topic(OFFSETS_TOPIC).partitions[
            partition_of("me", t.broker.topic(OFFSETS_TOPIC).partition_count)
        ]
        written = kept.log_end
        assert await t.values("me", **follow) == []
        assert await t.committed() == 3
        assert kept.log_end == written  # nothing new, nothing written


@on_uvloop
async def test_a_time_that_is_over_is_told() -> None:
    async with reader() as t:
        await t.produce(b"a")
        t.house.disk.is_cold = True
        t.house.disk.may_read.clear()
        reading = t.reading.consume(PLACE, ConsumeSpec(), follower=False, timeout_s=0.05)
        assert await refusal_of(reading) is ErrorCode.REQUEST_TIMED_OUT
        t.house.disk.may_read.set()


@on_uvloop
async def test_a_value_that_no_answer_has_room_for_is_refused_by_its_offset_and_not_committed() -> None:
    async with reader(message_bytes=10_000) as t:
        await t.register()
        await t.produce(b"small")
        await t.produce(bytes(9_500))
        await t.produce(b"behind")
        assert await t.values("me", auto_commit=True) == [b"small"]
        again: dict[str, Any] = {"start_offset": -1, "resume": True, "auto_commit": True}
        with pytest.raises(PeerError, match=r"offset 1 .* max\.grpc\.message\.bytes .* at 2") as refused:
            await t.consume("me", **again)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert await t.committed() == 1
        stream = t.subscribe("me", **again)
        with pytest.raises(PeerError, match="offset 1"):
            await stream.next()
        assert await t.committed() == 1
        assert await t.values("me", start_offset=2) == [b"behind"]
