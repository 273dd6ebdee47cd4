"""Channels when things go wrong that seldom do: lost logs, followers, deletions that cross, and hostile producers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from odradek.broker import channel_reading
from odradek.broker.channel_deletion import Deleted
from odradek.broker.channel_log import PLAIN_BYTES, read_piece
from odradek.broker.channel_stores import check_place
from odradek.broker.housekeeping import Housekeeping
from odradek.broker.topics import NOBODY
from odradek.objects.channels import list_channels
from odradek.objects.stores import PAGE_KEYS, open_store
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.channel_houses import MoodyStore, at_channels, stored_in, values
from tests.broker.houses import START_MS, settings_of
from tests.client.support import asynchronous, until


@asynchronous
async def test_what_is_acknowledged_after_a_log_was_lost_is_in_the_store() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://lost")
        store = house.store("memory://lost")
        publisher = house.channels._uploaders["clicks"][0]._publisher
        await house.publish("clicks", b"0")
        house.channels._uploaders["clicks"].pop(0).stop(
            PeerError(ErrorCode.BROKER_NOT_AVAILABLE, "as if the broker had ended")
        )
        store.put(f"clicks/!frontier/{publisher}", b'{"next": 100, "time": 1}')  # as if there had been more
        store.away()  # so that records come before it is known what the store has
        publishing = asyncio.create_task(house.publish("clicks", b"1"))
        await until(lambda: house.partition("clicks").log_end == 2)
        store.back()
        assert await publishing == (1, 1)
        assert values(stored_in(store, "clicks")) == [b"0", b"1"]


@asynchronous
async def test_a_follower_keeps_what_the_leader_may_not_have_stored() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://follower", segment_bytes="1024", retention_bytes="1024")
        house.store("memory://follower").away()
        partition, housekeeping = house.partition("clicks"), Housekeeping(house.broker)
        for number in range(10):
            await house.house.produce("clicks", b"%d" % number + bytes(600))
        try:
            role = partition.role
            partition.take_role(role._replace(leader=NOBODY, leader_epoch=role.leader_epoch + 1), START_MS)
            house.channels.changed(partition.topic)
            assert "clicks" not in house.channels._uploaders
            await housekeeping.expire()
            assert partition.log.log_start == 0
        finally:
            await housekeeping.close()


@asynchronous
async def test_a_deletion_waits_for_the_uploads_of_its_own_channel() -> None:
    async with at_channels() as house:
        url, deletions, writing = "memory://crossing", house.channels._deletions, asyncio.Event()
        for name in ("first", "second"):
            await house.create(name, url)
        store, upload = house.store(url), asyncio.create_task(_wait(writing))
        ids = {name: house.broker.topic(name).id.hex() for name in ("first", "second")}
        deletions.add(Deleted(url, "first", ids["first"]), [])
        deletions.add(Deleted(url, "second", ids["second"]), [upload])
        await until(lambda: "first" not in list_channels(store))
        for _ in range(20):  # time enough for one that does not wait
            assert await house.channels.stores.run(url, list_channels) == ["second"]
        store.put("second/last", b"x")
        writing.set()
        await house.channels.deletions_done()
        assert not list(store.list("second"))


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


@asynchronous
async def test_deletions_end_with_the_broker_however_many_there_are() -> None:
    async with at_channels() as house:
        for name in ("first", "second", "third"):
            await house.create(name, "memory://closing")
        house.store("memory://closing").away()
        before = asyncio.all_tasks()
        for name in ("first", "second", "third"):
            await house.broker.delete_topic(name)
        await until(lambda: len(house.channels._deletions._pending) == 3)
        await house.channels._deletions.close()
        left = [task for task in asyncio.all_tasks() - before if "Deletions" in repr(task.get_coro())]
        assert left == []


def test_a_directory_outside_of_the_store_is_refused_however_it_is_written() -> None:
    config = settings_of({"store_url": "file:///srv/objects"}).objects_config()
    for rest in ("?/../../../etc", "#/../../../etc", "/a?/../../../../etc", "\t2", "\n/../x"):
        with pytest.raises(PeerError, match=r"outside of its store\.url"):
            check_place(f"file:///srv/objects{rest}", config, stands_alone=True)


@asynchronous
async def test_records_that_were_compressed_well_are_read_a_few_at_a_time() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://bombs")
        partition = house.partition("clicks")
        size = PLAIN_BYTES // 4 + 1
        batch = build_batch([NewRecord(bytes(size), timestamp=START_MS)], codec=Codec.ZSTD)
        for _ in range(10):
            partition.append(bytearray(batch))
        house.broker.flusher.request(partition.log)
        await until(lambda: partition.high_watermark == 10)
        offset, pieces = 0, []
        while offset < 10:
            piece = await read_piece(partition, offset, 4 << 20, 10)
            pieces.append([record.offset for record in piece.records])
            offset = piece.next_offset
        assert pieces == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@asynchronous
async def test_partitions_that_are_read_together_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_reading, "_MERGED_BYTES", 2 * 5_000)
    monkeypatch.setattr(channel_reading, "ANSWER_BYTES", 3_000)
    async with at_channels() as house:
        await house.create("clicks", "memory://wide", partitions=2)
        for index in (0, 1):
            partition = house.partition("clicks", index)
            for number in range(10):
                text = b"%d" % (2 * number + index)
                partition.append(build_batch([NewRecord(text + bytes(1_000), timestamp=START_MS + number)]))
            await house.broker.flushed(partition, 10)
        got: list[int] = []
        while len(got) < 9:  # so far the order is certain
            found = await house.channels.read("clicks", START_MS, len(got), 20)
            assert len(found) in (1, 2, 3)
            got += [int((message.value or b"").rstrip(b"\0")) for message in found]
        assert got == list(range(9))
        with pytest.raises(PeerError, match="read from a later time"):
            await house.channels.read("clicks", START_MS, 9, 20)


class _CrossedStore(MoodyStore):
    """Another broker deletes the same channel, and somebody makes one of its name, after the first request here."""

    crossing: bytes | None = None  # the spec of the new one

    def _delete(self, keys: Sequence[str]) -> int:
        count = super()._delete(keys)
        crossing, self.crossing = self.crossing, None
        if crossing is not None:
            super()._delete([info.key for info in self.inner.list("clicks")])
            self.inner.put("clicks/!channel.json", crossing)
            self.inner.put("clicks/new", b"x")
        return count


@asynchronous
async def test_of_two_who_delete_a_channel_none_deletes_the_next_one_of_its_name() -> None:
    store = _CrossedStore(open_store("memory://twice"))
    async with at_channels(stores={"memory://twice": store}) as house:
        await house.create("clicks", "memory://twice")
        store.crossing = replace(house.channels.spec(house.broker.topic("clicks")), id="the-new-one").to_json()
        for number in range(PAGE_KEYS + 10):
            store.inner.put(f"clicks/{number}", b"x")
        await house.broker.delete_topic("clicks")
        await until(lambda: store.crossing is None)
        await house.channels.deletions_done()
        assert [info.key for info in store.list("clicks")] == ["clicks/!channel.json", "clicks/new"]


@asynchronous
async def test_a_channel_is_not_made_where_others_have_objects() -> None:
    async with at_channels() as house:
        open_store("memory://nested").put("taken/other/thing", b"x")
        with pytest.raises(PeerError, match="objects below taken/ that belong to no channel"):
            await house.create("taken", "memory://nested")
        assert "taken" not in house.broker.topics
    config = settings_of({"store_url": "file:///srv/objects"}).objects_config()
    for url in ("file:///srv/objects/!archive", "s3://bucket/x/!archive", "s3://bucket/x/%21archive"):
        with pytest.raises(PeerError, match="begins with !"):
            check_place(url, config, stands_alone=True)


@asynchronous
async def test_readers_of_the_same_time_do_not_skip_what_comes_late() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://readers")
        partition = house.partition("clicks")
        got: tuple[list[bytes | None], ...] = ([], [], [])

        async def append(text: bytes, at_ms: int) -> None:
            partition.append(build_batch([NewRecord(text, timestamp=START_MS + at_ms)]))
            await house.broker.flushed(partition, partition.log_end)

        async def read_all() -> None:
            for mine in got:
                mine += [each.value for each in await house.channels.read("clicks", START_MS, len(mine), 10)]

        await append(b"a1", 900)
        await append(b"b1", 1_100)
        await read_all()
        await append(b"a2", 950)  # of the bucket before, a moment late
        await read_all()
        await append(b"b2", 1_200)
        await read_all()
        assert got == ([b"a1", b"b1", b"a2", b"b2"],) * 3


@asynchronous
async def test_what_is_remembered_of_readings_is_bounded() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://bounded")
        await house.publish("clicks", *(b"%d" % number for number in range(40)))
        for number in range(40):
            (found,) = await house.channels.read("clicks", START_MS, number, 1)
            assert found.value == b"%d" % number
        assert len(house.channels._reading._scans) == channel_reading._TWINS_MAX
