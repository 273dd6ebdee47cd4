"""Streams of Eeylops' consumers: they follow the head, commit what was taken, and end when they should."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker import eeylops_reading
from odradek.broker.broker import Broker
from odradek.broker.value_cursor import Batch
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode
from tests.broker.houses import START_MS, batch, refusal_of
from tests.broker.readers import PLACE, SECONDS, Reader, Stream, reader
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.groups.brokers import turns


def timed(*times: int) -> bytearray:
    """A batch with values that are named by their time."""
    return build_batch([NewRecord(b"%d" % time, timestamp=time) for time in times])


async def waiting(t: Reader, stream: Stream) -> asyncio.Task[Batch]:
    """Ask a stream for more than there is, until it waits."""
    partition = t.broker.partition(*PLACE)
    task = asyncio.create_task(stream.next())
    await until(lambda: bool(partition._wakers) or task.done())
    return task


@on_uvloop
async def test_a_stream_gives_what_is_there_and_then_what_comes() -> None:
    async with reader() as t:
        await t.produce(b"a", b"b", b"c")
        stream = t.subscribe(batch_size=2)
        assert await stream.values() == [b"a", b"b"]
        assert await stream.values() == [b"c"]
        for value in (b"d", b"e"):
            task = await waiting(t, stream)
            assert not task.done()
            await t.produce(value)
            assert [each[2] for each in (await task).values] == [value]
        await stream.close()


@on_uvloop
async def test_a_stream_that_waits_holds_no_values() -> None:
    async with reader() as t:
        await t.produce(b"a")
        stream = t.subscribe()
        given = await stream.next()
        assert given.values
        task = await waiting(t, stream)
        assert not given.values
        task.cancel()
        await asyncio.wait([task])


@on_uvloop
async def test_a_leader_that_nobody_counts_on_any_more_ends_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eeylops_reading, "_LOOK_SECONDS", 0.02)
    async with reader() as t:
        stream = t.subscribe()
        task = await waiting(t, stream)
        monkeypatch.setattr(Broker, "is_fenced", True)
        assert await refusal_of(task) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        monkeypatch.undo()


@on_uvloop
async def test_a_stream_shows_nothing_before_it_is_safe() -> None:
    async with reader() as t:
        stream = t.subscribe()
        task = await waiting(t, stream)
        t.house.disk.may_flush.clear()
        partition = t.broker.partition(*PLACE)
        flushed = t.broker.committed(partition, partition.append(batch(b"a")).last_offset + 1)
        await until(lambda: t.house.disk.flushes_begun > 0)
        await turns()
        assert not task.done()
        t.house.disk.may_flush.set()
        await flushed
        assert (await task).next_offset == 1
        await stream.close()


@on_uvloop
async def test_a_stream_that_is_given_up_while_it_waits_leaves_nothing_behind() -> None:
    async with reader() as t:
        partition = t.broker.partition(*PLACE)
        streams = [t.subscribe() for _ in range(50)]
        tasks = [await waiting(t, stream) for stream in streams]
        await until(lambda: len(partition._wakers) == 50)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert not partition._wakers


@on_uvloop
async def test_a_value_at_the_end_of_the_range_ends_the_stream() -> None:
    async with reader() as t:
        await t.append(timed(1_000, 2_000, 3_000, 2_500))
        stream = t.subscribe(start_offset=-1, start_timestamp=1_500, end_timestamp=3_000)
        assert await stream.next() == Batch([(1, 2_000, b"2000")], 2)
        with pytest.raises(StopAsyncIteration):
            await stream.next()


@on_uvloop
async def test_the_clock_ends_a_stream_that_has_given_everything() -> None:
    async with reader() as t:
        await t.produce(b"a")
        stream = t.subscribe(end_timestamp=START_MS + 200)
        assert await stream.values() == [b"a"]
        task = await waiting(t, stream)
        assert not task.done()
        t.house.clock.advance(200)
        with pytest.raises(StopAsyncIteration):
            await task


@on_uvloop
async def test_a_stream_by_a_time_to_come_begins_with_the_first_value_of_that_time() -> None:
    async with reader() as t:
        await t.append(timed(1_000))
        stream = t.subscribe(start_offset=-1, start_timestamp=5_000)
        task = await waiting(t, stream)
        await t.append(timed(4_000, 4_500))
        await t.append(timed(5_000, 4_800))
        assert [each[2] for each in (await task).values] == [b"5000", b"4800"]
        await stream.close()


@on_uvloop
async def test_retention_that_was_faster_is_told_by_a_batch_without_values() -> None:
    async with reader() as t:
        await t.produce(*[b"x"] * 10)
        stream = t.subscribe(batch_size=2)
        assert (await stream.next()).next_offset == 2
        other = t.subscribe(start_offset=1)
        t.trim(7)
        assert await other.next() == Batch([], 7)
        assert (await other.next()).next_offset == 10
        assert (await stream.next()).next_offset == 4  # it had been read before
        await stream.close()
        await other.close()


@on_uvloop
async def test_a_deleted_topic_ends_its_streams_and_one_of_the_same_name_is_another() -> None:
    async with reader() as t:
        stream = t.subscribe()
        task = await waiting(t, stream)
        await t.broker.delete_topic("t")
        assert await refusal_of(task) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await t.broker.create_topic("t", 1, {})
        await t.produce(b"new")
        late = t.subscribe()
        assert await late.values() == [b"new"]
        await t.broker.delete_topic("t")
        await t.broker.create_topic("t", 1, {})
        assert await refusal_of(late.next()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_another_leader_ends_the_stream() -> None:
    async with reader() as t:
        stream = t.subscribe()
        task = await waiting(t, stream)
        partition = t.broker.partition(*PLACE)
        role = partition.role
        partition.take_role(role._replace(leader=99, leader_epoch=role.leader_epoch + 1), 0)
        assert await refusal_of(task) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_what_was_given_is_committed_when_more_is_asked_for_and_not_before() -> None:
    async with reader() as t:
        await t.register()
        await t.produce(*[b"x"] * 6)
        stream = t.subscribe("me", batch_size=2, auto_commit=True)
        await stream.next()
        assert await t.committed() == -1
        await stream.next()
        await until(lambda: not _is_committing(t))
        assert await t.committed() == 2
        await stream.close()  # what was given last may not have arrived
        assert await t.committed() == 2
        again = t.subscribe("me", start_offset=-1, resume=True)
        assert (await again.next()).values[0][0] == 2
        await again.close()


def _is_committing(t: Reader) -> bool:
    return any(commits._task is not None for commits in t.reading._commits)


@on_uvloop
async def test_a_stream_that_ends_by_itself_has_committed_everything() -> None:
    async with reader() as t:
        await t.register()
        await t.append(timed(1_000, 2_000, 3_000))
        stream = t.subscribe("me", batch_size=1, auto_commit=True, end_timestamp=3_000)
        assert [each async for each in stream.batches][-1].next_offset == 2
        assert await t.committed() == 2
        assert not t.reading._commits


@on_uvloop
async def test_a_stream_that_commits_needs_a_registration_from_the_start_on() -> None:
    async with reader() as t:
        await t.produce(b"a")
        assert await refusal_of(t.subscribe("me", auto_commit=True).next()) is ErrorCode.GROUP_ID_NOT_FOUND


@on_uvloop
async def test_a_stream_whose_commits_fail_ends_with_the_reason() -> None:
    async with reader() as t:
        await t.register()
        await t.produce(*[b"x"] * 6)
        stream = t.subscribe("me", batch_size=1, auto_commit=True)
        await stream.next()
        await t.groups.delete_group("me")
        await stream.next()
        await until(lambda: not _is_committing(t))
        assert await refusal_of(stream.next()) is ErrorCode.GROUP_ID_NOT_FOUND


@on_uvloop
async def test_a_slow_reader_holds_no_more_than_its_bytes() -> None:
    async with reader(stream_bytes=1 << 16) as t:
        for _ in range(20):
            await t.produce(*[bytes(1_000)] * 10)
        stream = t.subscribe(batch_size=10_000)
        found = await stream.next()
        assert 20 <= len(found.values) <= 32
        await stream.close()


@on_uvloop
async def test_a_large_compressed_batch_is_given_piece_by_piece() -> None:
    async with reader(stream_bytes=1 << 16) as t:
        records = [NewRecord(b"%d" % number, timestamp=START_MS) for number in range(30_000)]
        await t.append(build_batch(records, codec=Codec.ZSTD))
        stream = t.subscribe(batch_size=10_000)
        found: list[bytes] = []
        while len(found) < 30_000:
            found += await stream.values()
        assert found == [b"%d" % number for number in range(30_000)]
        await stream.close()


@on_uvloop
async def test_a_stream_that_outlived_its_topic_commits_nothing_for_the_next_one_of_its_name() -> None:
    async with reader() as t:
        await t.produce(b"old")
        await t.register()
        stream = t.subscribe("me", auto_commit=True)
        assert await stream.values() == [b"old"]
        old = t.broker.metadata.image.topics["t"].id
        await t.broker.delete_topic("t")
        await t.broker.create_topic("t", 1, {})
        await t.produce(b"new", b"newer")
        await t.register()
        assert await refusal_of(asyncio.ensure_future(stream.next())) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await until(lambda: not t.reading._commits)
        assert await t.committed() == -1
        for call in (
            t.consumers.register("me", PLACE, SECONDS, topic_id=old),
            t.consumers.commit("me", PLACE, 1, SECONDS, topic_id=old),
            t.consumers.last_committed("me", PLACE, SECONDS, sync=True, topic_id=old),
        ):
            assert await refusal_of(call) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await t.committed() == -1
