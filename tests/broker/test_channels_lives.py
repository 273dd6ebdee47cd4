"""Channels over the lives of brokers and topics: crashes, other leaders, deletion and retention."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.broker.channel_stores import ChannelStores
from odradek.broker.channel_upload import Uploader
from odradek.broker.housekeeping import Housekeeping
from odradek.broker.topics import NOBODY
from odradek.objects.channels import list_channels
from odradek.objects.keys import frontier_key, parse_object_key
from odradek.objects.stores import ObjectStore, open_store
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.channel_houses import ChannelHouse, MoodyStore, at_channels, objects_in, stored_in, values
from tests.broker.houses import START_MS, batch
from tests.client.support import asynchronous, until


@asynchronous
async def test_after_a_crash_what_was_not_stored_is_and_what_was_is_there_once() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://crash")
        store = house.store("memory://crash")
        await house.publish("clicks", b"0")
        store.may_put.clear()
        begun = store.puts_begun
        lost = asyncio.create_task(house.publish("clicks", b"1"))
        await until(lambda: store.puts_begun > begun)
        await house.house.produce("clicks", b"2")  # in the log, while a request is under way
        stores, disk = {"memory://crash": store}, house.house.disk
        uploader = house.channels._uploaders["clicks"][0]
        ended = uploader.stop(PeerError(ErrorCode.BROKER_NOT_AVAILABLE, "as if it had been killed"))
        store.may_put.set()  # the request that was under way arrives all the same
        assert ended is not None
        await asyncio.wait([ended, lost])
    async with at_channels(disk=disk, stores=stores) as again:
        assert await again.publish("clicks", b"3") == (3, 3)
        assert values(stored_in(store, "clicks")) == [b"0", b"1", b"2", b"3"]


@asynchronous
async def test_a_broker_that_stops_in_good_order_stores_what_it_has_and_notes_how_far_it_is(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with at_channels(store_url=url) as house:
        slow = {"channel.window.ms": "60000", "channel.slice.ms": "60000"}
        await house.channels.create("clicks", overrides=slow)
        await house.house.produce("clicks", b"one")
        await house.house.produce("clicks", b"two")
        disk = house.house.disk
    store = open_store(url)
    assert values(stored_in(store, "clicks")) == [b"one", b"two"]
    (mark,) = [info.key for info in store.list("clicks/!frontier")]
    assert b'"next": 2' in store.get(mark)
    async with at_channels(disk=disk, store_url=url) as again:
        await until(lambda: again.partition("clicks").stored_end == 2)
        counted = again.store(url).requests
        assert (counted.puts, counted.lists) == (0, 0), "nothing is sent or looked for again"


@asynchronous
async def test_two_leaders_of_one_partition_leave_each_record_once() -> None:
    """One loses the lead with a request under way, the other begins, and the request of the first arrives last."""
    async with at_channels() as house:
        await house.create("clicks", "memory://leaders")
        store, partition = house.store("memory://leaders"), house.partition("clicks")
        await house.publish("clicks", b"0")
        store.may_put.clear()
        begun = store.puts_begun
        waiting = asyncio.create_task(house.publish("clicks", b"1"))
        await until(lambda: store.puts_begun > begun)
        first = house.channels._uploaders["clicks"][0]
        partition.take_role(partition.role._replace(leader=NOBODY, leader_epoch=partition.leader_epoch + 1), 0)
        house.channels.changed(partition.topic)
        with pytest.raises(PeerError) as told:
            await waiting
        assert told.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert house.channels.gauges() == []

        direct = ChannelStores(house.channels.config, lambda url, _: store.inner)
        other = _other_leader(house, direct)
        partition.append(batch(b"2", timestamp=START_MS + 1))
        await house.broker.flushed(partition, 3)
        partition.high_watermark = 3
        other.start()
        await asyncio.wait_for(other.stored(3), 10)
        store.may_put.set()
        task = other.finish()
        assert task is not None
        await asyncio.wait([task])
        direct.close()
        assert first.finish() is not None
        await asyncio.wait([each for each in (first.finish(),) if each is not None])
        assert [message.sequence for message in stored_in(store, "clicks")] == [0, 1, 2]
        assert values(stored_in(store, "clicks")) == [b"0", b"1", b"2"]


def _other_leader(house: ChannelHouse, stores: ChannelStores) -> Uploader:
    partition = house.partition_here("clicks")
    return Uploader(partition, "memory://leaders", house.channels.spec(partition.topic), stores, house.clock)


@asynchronous
async def test_the_log_keeps_what_the_store_has_not_noted() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://kept", segment_bytes="1024", retention_bytes="1024")
        store, housekeeping = house.store("memory://kept"), Housekeeping(house.broker)
        partition = house.partition("clicks")
        try:
            store.away()
            for number in range(10):
                await house.house.produce("clicks", b"%d" % number + bytes(600))
            await housekeeping.expire()
            assert partition.log.log_start == 0
            store.back()
            await asyncio.wait_for(house.channels.stored(partition, 10), 10)
            house.clock.advance(60_000)  # it is noted at most once a minute
            await house.house.produce("clicks", b"10" + bytes(600))
            await until(lambda: partition.stored_end == 11)
            await housekeeping.expire()
            assert partition.log.log_start > 0
            assert len(stored_in(store, "clicks")) == 11
        finally:
            await housekeeping.close()


@asynchronous
async def test_a_log_keeps_everything_until_the_store_has_said_what_it_has() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://unknown", segment_bytes="1024", retention_bytes="1024")
        store, disk = house.store("memory://unknown"), house.house.disk
        store.away()
        for number in range(10):
            await house.house.produce("clicks", b"%d" % number + bytes(600))
    async with at_channels(disk=disk, stores={"memory://unknown": store}) as again:
        housekeeping = Housekeeping(again.broker)
        try:
            await housekeeping.expire()
            assert again.partition("clicks").log.log_start == 0
            store.back()
            await asyncio.wait_for(again.channels.stored(again.partition("clicks"), 10), 10)
            assert len(stored_in(store, "clicks")) == 10
        finally:
            await housekeeping.close()


@asynchronous
async def test_with_a_channel_its_objects_go_and_no_others() -> None:
    async with at_channels() as house:
        for name in ("clicks", "clicks2"):
            await house.create(name, "memory://deleted")
            await house.publish(name, b"x")
        store = house.store("memory://deleted")
        await house.broker.delete_topic("clicks")
        await until(lambda: list_channels(store) == ["clicks2"])
        await house.channels.deletions_done()
        assert not list(store.list("clicks"))
        assert values(stored_in(store, "clicks2")) == [b"x"]
        await house.create("clicks", "memory://deleted")
        assert await house.publish("clicks", b"new") == (0, 0)
        assert values(stored_in(store, "clicks")) == [b"new"]


@asynchronous
async def test_a_publisher_hears_that_the_channel_is_deleted() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://gone")
        store = house.store("memory://gone")
        store.may_put.clear()
        begun = store.puts_begun
        waiting = asyncio.create_task(house.publish("clicks", b"x"))
        await until(lambda: store.puts_begun > begun)
        await house.broker.delete_topic("clicks")
        with pytest.raises(PeerError, match="was deleted"):
            await waiting
        store.may_put.set()
        await house.channels.deletions_done()
        assert not list(store.list("clicks")), "also what was under way"


@asynchronous
async def test_a_deletion_that_was_not_finished_goes_on_at_the_next_start() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://resumed")
        await house.publish("clicks", b"x")
        store = house.store("memory://resumed")
        store.away()
        await house.broker.delete_topic("clicks")
        disk = house.house.disk
    assert list(store.inner.list("clicks"))
    store.back()
    async with at_channels(disk=disk, stores={"memory://resumed": store}) as again:
        await again.channels.deletions_done()
        assert not list(store.list("clicks"))


@asynchronous
async def test_objects_of_another_channel_of_that_name_are_left_alone() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://other")
        store = house.store("memory://other")
        stranger = replace(house.channels.spec(house.broker.topic("clicks")), id="somebody-elses")
        store.put("clicks/!channel.json", stranger.to_json())
        store.put("clicks/theirs", b"x")
        await house.broker.delete_topic("clicks")
        await house.channels.deletions_done()
        assert [info.key for info in store.list("clicks")] == ["clicks/!channel.json", "clicks/theirs"]


@asynchronous
async def test_nothing_is_written_into_somebody_elses_channel() -> None:
    async with at_channels(channel_timeout_ms=150) as house:
        store = MoodyStore(open_store("memory://theirs"))
        await house.create("other", "memory://theirs")
        spec = replace(house.channels.spec(house.broker.topic("other")), name="clicks", id="somebody-elses")
        store.put("clicks/!channel.json", spec.to_json())
        overrides = {"channel.store": "memory://theirs", "channel.window.ms": "1000", "channel.slice.ms": "20"}
        await house.broker.create_topic("clicks", 1, overrides)  # as a Kafka client would
        with pytest.raises(PeerError, match="holds another channel 'clicks'"):
            await house.publish("clicks", b"x")
        assert objects_in(store, "clicks") == {}


@asynchronous
async def test_buckets_older_than_the_retention_go_from_the_store() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://retention", channel_retention_ms="2000")
        for second in range(5):
            await house.publish("clicks", b"%d" % second, timestamp=START_MS + second * 1000)
        house.clock.advance(4000)
        await house.channels.expire()
        assert values(stored_in(house.store("memory://retention"), "clicks")) == [b"2", b"3", b"4"]


@asynchronous
async def test_a_channel_that_moves_to_another_store_takes_what_its_log_has() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://from")
        await house.publish("clicks", b"0")
        overrides = {**house.broker.topic("clicks").overrides, "channel.store": "memory://to"}
        await house.broker.set_topic_overrides("clicks", overrides)
        assert await house.publish("clicks", b"1") == (1, 1)
        assert values(stored_in(house.store("memory://to"), "clicks")) == [b"0", b"1"]
        assert values(stored_in(house.store("memory://from"), "clicks")) == [b"0"]


@asynchronous
async def test_each_partition_of_a_channel_is_a_publisher_of_its_own() -> None:
    async with at_channels() as house:
        await house.create("wide", "memory://wide-channel", partitions=3)
        for index in range(3):
            await house.house.produce("wide", b"%d" % index, partition=index)
            await asyncio.wait_for(house.channels.stored(house.partition("wide", index), 1), 10)
        keys: list[str] = list(objects_in(house.store("memory://wide-channel"), "wide"))
        assert len({key.publisher for key in map(parse_object_key, keys) if key is not None}) == 3
        assert len(house.channels.gauges()) == 3


def test_a_checkpoint_is_not_a_message() -> None:
    assert parse_object_key(frontier_key("clicks", "0" * 16)) is None
    store: ObjectStore = open_store("memory://empty")
    assert stored_in(store, "clicks") == []
