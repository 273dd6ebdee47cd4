"""Channels of one broker: what is published is in the store before it is acknowledged, and can be read before that."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from odradek.broker.channel_stores import check_place
from odradek.clock import SystemClock
from odradek.edge.metrics_page import metrics_page
from odradek.node import Node
from odradek.objects.channels import load_channel
from odradek.objects.keys import parse_object_key
from odradek.objects.stores import open_store
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.channel_houses import QUICK, at_channels, objects_in, stored_in, values
from tests.broker.houses import START_MS, refusal_of, settings_of
from tests.client.support import asynchronous, tick, until


@asynchronous
async def test_a_message_is_acknowledged_when_the_store_has_it_and_not_before() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://acknowledged")
        store = house.store("memory://acknowledged")
        store.may_put.clear()
        begun = store.puts_begun
        publishing = asyncio.create_task(house.publish("clicks", b"one", b"two"))
        await until(lambda: store.puts_begun > begun)
        assert not publishing.done()
        assert house.partition("clicks").high_watermark == 2, "the log has it all the same"
        store.may_put.set()
        assert await publishing == (0, 1)
        assert values(stored_in(store, "clicks")) == [b"one", b"two"]


@asynchronous
async def test_the_records_of_a_slice_become_one_object_named_by_their_time() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://slices")
        both = asyncio.gather(house.publish("clicks", b"a"), house.publish("clicks", b"b", timestamp=START_MS + 7))
        await asyncio.gather(both, house.publish("clicks", b"c", timestamp=START_MS + 45))
        found = objects_in(house.store("memory://slices"), "clicks")
        places = {(key.bucket, key.slice) for key in map(parse_object_key, found) if key is not None}
        assert places == {(START_MS, 0), (START_MS, 40)}
        assert [values(messages) for messages in found.values()] == [[b"a", b"b"], [b"c"]]


@asynchronous
async def test_what_a_kafka_producer_appends_is_stored_too_with_keys_and_headers() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://produced")
        await house.house.produce("clicks", b"v", key=b"k")
        await asyncio.wait_for(house.channels.stored(house.partition("clicks"), 1), 10)
        (message,) = stored_in(house.store("memory://produced"), "clicks")
        assert (message.sequence, message.timestamp, message.key, message.value) == (0, START_MS, b"k", b"v")


@asynchronous
async def test_the_store_knows_what_the_channel_is_and_hears_of_changed_settings() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://spec", channel_grace_ms="500")
        store = house.store("memory://spec")
        spec = load_channel(store, "clicks")
        assert spec.id == house.broker.topic("clicks").id.hex()
        assert (spec.window_ms, spec.slice_ms, spec.grace_ms) == (1000, 20, 500)
        overrides = {**house.broker.topic("clicks").overrides, "channel.retention.ms": "5000"}
        await house.broker.set_topic_overrides("clicks", overrides)
        await until(lambda: load_channel(store, "clicks").retention_ms == 5000)


@asynchronous
async def test_a_channel_stays_one_and_keeps_its_grid() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://grid")
        own = house.broker.topic("clicks").overrides
        for change, told in (
            ({**own, "channel.slice.ms": "10"}, "channel.slice.ms of the channel clicks stays 20"),
            ({**own, "channel.window.ms": "2000"}, "channel.window.ms of the channel clicks stays 1000"),
            ({"channel.window.ms": "1000", "channel.slice.ms": "20"}, "channel.store cannot be taken away"),
        ):
            with pytest.raises(PeerError, match=told):
                await house.broker.set_topic_overrides("clicks", change)
        assert house.broker.topic("clicks").overrides == own


@asynchronous
async def test_a_topic_without_a_store_is_no_channel() -> None:
    async with at_channels() as house:
        await house.broker.create_topic("plain", 1, {})
        assert not house.channels.is_channel("plain")
        assert await refusal_of(house.publish("plain", b"x")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await refusal_of(house.channels.read("plain", 0, 0, 1)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not house.channels.stores.is_used
        assert not [each.name for each in threading.enumerate() if each.name.startswith("channel")]


@asynchronous
async def test_a_topic_becomes_a_channel_by_its_setting_and_all_it_has_is_stored() -> None:
    async with at_channels() as house:
        await house.broker.create_topic("late", 1, {})
        await house.house.produce("late", b"before")
        await house.broker.set_topic_overrides("late", {**QUICK, "channel.store": "memory://becomes"})
        assert house.channels.is_channel("late")
        assert await house.publish("late", b"after") == (1, 1)
        assert values(stored_in(house.store("memory://becomes"), "late")) == [b"before", b"after"]


@asynchronous
async def test_what_cannot_be_a_channel_is_refused_with_a_reason() -> None:
    async with at_channels() as house:
        create = house.channels.create
        await house.create("clicks", "memory://refused")
        assert await refusal_of(house.create("clicks", "memory://refused")) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert await refusal_of(create("a/b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (
            await refusal_of(create("x", store="memory://r", fifo=True, partitions=2)) is ErrorCode.INVALID_PARTITIONS
        )
        uneven = {"channel.window.ms": "1000", "channel.slice.ms": "300"}
        assert await refusal_of(create("x", store="memory://r", overrides=uneven)) is ErrorCode.INVALID_CONFIG
        for url in ("ftp://somewhere", "file:///etc", "http://169.254.169.254/"):
            assert await refusal_of(create("x", store=url)) is ErrorCode.INVALID_CONFIG
            as_kafka_does = house.broker.create_topic("x", 1, {"channel.store": url})
            assert await refusal_of(as_kafka_does) is ErrorCode.INVALID_CONFIG
            altered = house.broker.set_topic_overrides("clicks", {"channel.store": url})
            assert await refusal_of(altered) is ErrorCode.INVALID_CONFIG
        assert "x" not in house.broker.topics


@asynchronous
async def test_a_fifo_channel_that_grows_is_not_served_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async with at_channels() as house:
        await house.create("steps", "memory://grown", fifo=True)
        await house.broker.add_partitions("steps", 2)
        with pytest.raises(PeerError, match="one partition, not 2"):
            await house.publish("steps", b"x")
        assert "channel steps is not served" in caplog.text


@asynchronous
async def test_a_name_that_the_store_has_already_is_refused() -> None:
    stores: dict[str, object] = {}
    async with at_channels(stores=stores) as house:  # type: ignore[arg-type]
        await house.create("clicks", "memory://taken")
    async with at_channels(stores=stores) as other:  # type: ignore[arg-type]
        with pytest.raises(PeerError, match="holds a channel 'clicks' already") as refused:
            await other.create("clicks", "memory://taken")
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_clients_do_not_choose_directories_of_the_brokers_machine() -> None:
    config = settings_of({"store_url": "file:///srv/objects"}).objects_config()
    for url in ("file:///srv/objects", "file:///srv/objects/mine", "s3://bucket/x", "memory://x"):
        check_place(url, config, stands_alone=True)
    for url in ("file:///etc", "file:///srv/objects/../../etc", "file:///srv/objects2", "file:///srv/objects/%2e%2e/x"):
        with pytest.raises(PeerError, match=r"outside of its store\.url"):
            check_place(url, config, stands_alone=True)
    check_place("file:///srv/objects", config, stands_alone=False)  # a directory that all brokers mount
    with pytest.raises(PeerError, match="no other broker"):
        check_place("memory://x", config, stands_alone=False)
    own = settings_of({}).objects_config()
    with pytest.raises(PeerError, match=r"same store\.url"):
        check_place(own.store_url, own, stands_alone=False)


@asynchronous
async def test_a_fifo_channel_is_stored_in_the_order_of_arrival() -> None:
    async with at_channels() as house:
        await house.create("steps", "memory://fifo", fifo=True)
        published = []
        for number in range(30):  # clients' own times go backwards; those of arrival do not
            sent = house.publish("steps", b"%d" % number, timestamp=START_MS - number)
            published.append(asyncio.create_task(sent))
            await until(lambda: house.partition("steps").log_end == len(published))
            house.clock.advance(7)
        await asyncio.gather(*published)
        store = house.store("memory://fifo")
        by_key = [message for _, messages in sorted(objects_in(store, "steps").items()) for message in messages]
        assert [message.sequence for message in by_key] == list(range(30))
        slices = [key for key in store.keys if parse_object_key(key) is not None]
        assert slices == sorted(slices) and len(slices) > 1


@asynchronous
async def test_a_batch_that_is_larger_than_a_log_takes_is_cut() -> None:
    async with at_channels() as house:
        await house.create("wide", "memory://wide", max_message_bytes="2000")
        assert await house.publish("wide", *(bytes([65 + n]) * 300 for n in range(20))) == (0, 19)
        assert len(stored_in(house.store("memory://wide"), "wide")) == 20
        assert await refusal_of(house.publish("wide", bytes(3000))) is ErrorCode.MESSAGE_TOO_LARGE


@asynchronous
async def test_a_full_slice_does_not_wait_for_its_end() -> None:
    async with at_channels() as house:
        overrides = {"channel.window.ms": "60000", "channel.slice.ms": "60000", "channel.slice.bytes": "4096"}
        await house.channels.create("full", store="memory://full", overrides=overrides)
        await asyncio.wait_for(house.publish("full", *(b"x" * 1000 for _ in range(10))), 10)
        assert len(stored_in(house.store("memory://full"), "full")) == 10


@asynchronous
async def test_a_node_serves_channels_and_a_reader_gets_a_message_long_before_its_slice_is_over(tmp_path: Path) -> None:
    settings = {"kafka": "127.0.0.1:0", "http": "off", "grpc": "off", "dir": tmp_path / "data"}
    node = await Node.start(settings_of(settings), SystemClock())
    loop = asyncio.get_running_loop()
    try:
        await node.channels.create("live")  # slices of a second
        latencies, publishing = [], []
        for number in range(20):
            reading = asyncio.create_task(node.channels.read("live", 0, number, 10, wait_ms=5000))
            await tick()
            begun = loop.time()
            record = NewRecord(b"%d" % number, timestamp=node.broker.clock.now_ms())
            publishing.append(asyncio.create_task(node.channels.publish("live", [record])))
            (message,) = await reading
            latencies.append(loop.time() - begun)
            assert message.value == b"%d" % number
        assert sorted(latencies)[-2] < 0.5, "half of a slice"
        await asyncio.gather(*publishing)
        store = open_store(node.channels.config.store_url)
        assert len(stored_in(store, "live")) == 20
        assert len(objects_in(store, "live")) <= 4, "one a slice, not one a message"
        page = metrics_page(node.broker, node.groups, node.stats, node.channels.gauges()).body.decode()
        assert 'odradek_channel_behind_bytes{topic="live",partition="0"} 0\n' in page
        assert 'odradek_channel_objects_total{topic="live",partition="0"} ' in page
        assert 'odradek_channel_failures_total{topic="live",partition="0"} 0\n' in page
    finally:
        await node.stop()
