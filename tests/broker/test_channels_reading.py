"""Reading a channel by time: from the log, from the store where the log has let go, page by page, and as it comes."""

from __future__ import annotations

import asyncio
import random

import pytest

from odradek.broker.channel_scan import StoredMessage
from odradek.broker.housekeeping import Housekeeping
from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.channel_houses import ChannelHouse, at_channels
from tests.broker.houses import START_MS, batch
from tests.client.support import asynchronous, tick, until

WINDOW = 1000


def told(messages: list[StoredMessage]) -> list[bytes | None]:
    """What they say."""
    return [message.value for message in messages]


async def append(house: ChannelHouse, name: str, *times: int) -> None:
    """Append a record a time, in this order; the value says when it was."""
    partition = house.partition(name)
    for time in times:
        partition.append(batch(b"%d" % time, timestamp=START_MS + time))
    await house.broker.flushed(partition, partition.log_end)


async def read_all(house: ChannelHouse, name: str, start: int = 0, page: int = 10_000) -> list[StoredMessage]:
    """Page by page, until there are no more."""
    messages: list[StoredMessage] = []
    while found := await house.channels.read(name, START_MS + start, len(messages), page):
        messages += found
    return messages


@asynchronous
async def test_messages_come_by_bucket_and_within_one_by_offset() -> None:
    async with at_channels() as house:
        await house.create("c", "memory://read-order", channel_grace_ms="2000")
        await append(house, "c", 100, 50, 1100, 900, 1050, 2500, 1999, 950, 9000)
        assert told(await read_all(house, "c")) == [
            b"100", b"50", b"900", b"950", b"1100", b"1050", b"1999", b"2500", b"9000"
        ]  # fmt: skip
        found = await house.channels.read("c", START_MS + 60, 0, 3)
        assert [(each.offset, each.timestamp - START_MS) for each in found] == [(0, 100), (3, 900), (7, 950)]
        assert told(await house.channels.read("c", START_MS + 60, 3, 2)) == [b"1100", b"1050"]
        assert await house.channels.read("c", START_MS + 9001, 0, 10) == []


@asynchronous
async def test_ten_thousand_messages_come_in_two_pages_of_five_thousand() -> None:
    async with at_channels() as house:
        await house.create("c", "memory://read-pages", channel_slice_ms="1000")
        chance = random.Random(6)
        times = [number + chance.randrange(500) for number in range(10_000)]
        partition = house.partition("c")
        for first in range(0, 10_000, 500):
            records = [NewRecord(b"%d" % n, timestamp=START_MS + times[n]) for n in range(first, first + 500)]
            partition.append(build_batch(records))
        await house.broker.flushed(partition, 10_000)
        pages = [await house.channels.read("c", START_MS, skip, 5000) for skip in (0, 5000, 10_000)]
        assert [len(page) for page in pages] == [5000, 5000, 0]
        offsets = [message.offset for page in pages for message in page]
        assert offsets == sorted(range(10_000), key=lambda n: (times[n] // WINDOW, n))
        assert await house.channels.read("c", START_MS, 0, 5000) == pages[0], "also when it is read again"


@asynchronous
async def test_pages_of_any_size_give_each_message_once_while_more_come_late() -> None:
    async with at_channels() as house:
        await house.create("c", "memory://read-late", channel_grace_ms="700")
        chance, seen, appended = random.Random(11), list[StoredMessage](), 0
        for _ in range(60):
            count = chance.randrange(12)
            await append(house, "c", *(appended * 40 + chance.randrange(-900, 900) + 2000 for _ in range(count)))
            appended += count
            seen += await house.channels.read("c", START_MS, len(seen), chance.randrange(1, 20))
        while found := await house.channels.read("c", START_MS, len(seen), 7):
            seen += found
        assert sorted(message.offset for message in seen) == list(range(appended))


@asynchronous
async def test_a_reader_that_waits_gets_a_message_before_it_is_stored() -> None:
    async with at_channels() as house:
        await house.create("c", "memory://read-live")
        store = house.store("memory://read-live")
        await append(house, "c", 1)
        store.away()
        reading = asyncio.create_task(house.channels.read("c", START_MS, 1, 10, wait_ms=10_000))
        await tick()
        assert not reading.done()
        publishing = asyncio.create_task(house.publish("c", b"live", timestamp=START_MS + 5))
        assert told(await asyncio.wait_for(reading, 1)) == [b"live"]
        assert not publishing.done()
        store.back()
        await publishing
        assert await house.channels.read("c", START_MS, 2, 10, wait_ms=20) == []


@asynchronous
async def test_what_the_log_has_let_go_of_comes_from_the_store_in_the_same_order() -> None:
    async with at_channels() as house:
        await house.create(
            "c", "memory://read-older", segment_bytes="1024", retention_bytes="4096", channel_grace_ms="100"
        )
        chance, housekeeping = random.Random(5), Housekeeping(house.broker)
        partition, times = house.partition("c"), [number * 20 + chance.randrange(80) for number in range(300)]
        try:
            for time in times:
                partition.append(batch(b"%d" % time, timestamp=START_MS + time))
            await house.broker.flushed(partition, 300)
            whole = await read_all(house, "c")
            assert len(whole) == 300
            await asyncio.wait_for(house.channels.stored(partition, 300), 10)
            house.clock.advance(120_000)  # so that it is noted how far the store is
            await append(house, "c", 7000)
            await until(lambda: partition.stored_end == 301)
            await housekeeping.expire()
            assert 0 < partition.log.log_start < 300
            again = await read_all(house, "c", page=37)
            assert sorted(message.offset for message in again) == list(range(301))
            assert [m.offset for m in again] == sorted(range(301), key=lambda n: ([*times, 7000][n] // WINDOW, n))
            gets = house.store("memory://read-older").requests.gets
            await read_all(house, "c", start=6999)
            assert house.store("memory://read-older").requests.gets == gets, "only what is asked for is read"
        finally:
            await housekeeping.close()


@asynchronous
async def test_a_store_that_is_away_is_said_to_readers_of_what_is_only_there() -> None:
    async with at_channels() as house:
        await house.create("c", "memory://read-away", segment_bytes="1024", retention_bytes="1024")
        housekeeping, partition = Housekeeping(house.broker), house.partition("c")
        try:
            for number in range(10):
                await house.publish("c", b"%d" % number + bytes(600))
            house.clock.advance(120_000)
            await house.publish("c", b"last", timestamp=START_MS + 1)
            await until(lambda: partition.stored_end == 11)
            await housekeeping.expire()
            assert partition.log.log_start > 0
            house.store("memory://read-away").away()
            with pytest.raises(PeerError, match="look at the network") as refused:
                await house.channels.read("c", START_MS, 0, 100)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            house.store("memory://read-away").back()
            assert len(await house.channels.read("c", START_MS, 0, 100)) == 11
        finally:
            await housekeeping.close()


@asynchronous
async def test_partitions_of_one_channel_are_read_together_in_order() -> None:
    async with at_channels() as house:
        await house.create("c", "memory://read-wide", partitions=2)
        for partition, times in ((0, (100, 1100, 3000)), (1, (200, 900, 1500))):
            found = house.partition("c", partition)
            for time in times:
                found.append(batch(b"%d" % time, timestamp=START_MS + time))
            await house.broker.flushed(found, 3)
        assert told(await house.channels.read("c", START_MS, 0, 4)) == [b"100", b"200", b"900", b"1100"]
        assert told(await house.channels.read("c", START_MS, 4, 4)) == [b"1500", b"3000"]
        with pytest.raises(PeerError, match="at most 100000"):
            await house.channels.read("c", START_MS, 100_000, 1)


@asynchronous
async def test_an_answer_does_not_grow_beyond_its_bound() -> None:
    async with at_channels(max_message_bytes=4_000_000) as house:
        await house.create("c", "memory://read-large")
        for number in range(5):
            await house.house.produce("c", bytes([number]) * 3_000_000)
        assert [len(await house.channels.read("c", 0, skip, 10)) for skip in (0, 3, 5)] == [3, 2, 0]


@asynchronous
async def test_readers_of_a_deleted_channel_are_told() -> None:
    async with at_channels() as house:
        await house.create("c", "memory://read-gone")
        await append(house, "c", 1)
        assert len(await house.channels.read("c", START_MS, 0, 10)) == 1
        reading = asyncio.create_task(house.channels.read("c", START_MS, 1, 10, wait_ms=10_000))
        await tick()
        await house.broker.delete_topic("c")
        with pytest.raises(PeerError) as refused:
            await asyncio.wait_for(reading, 2)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
