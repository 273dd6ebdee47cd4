"""A channel in a real S3 server: what a reader touches there, and two who upload the same records at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.clock import ManualClock
from odradek.objects import keys
from odradek.objects.channels import create_channel, delete_channel, list_channels
from odradek.objects.putting import Frontier
from odradek.objects.reader import ChannelReader, Position, expire_channel
from odradek.objects.slices import Message
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore, open_store
from tests.counting import CountingProxy
from tests.s3 import S3Server

MINUTE_MS = 60_000
MINUTES = 24 * 60
MIDNIGHT_MS = 1_700_006_400_000
DAY = ChannelSpec("orders", "0")
PUBLISHER = keys.publisher_hash("the only one")


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[CountingProxy]:
    with CountingProxy(s3.endpoint) as counting:
        yield counting


@pytest.fixture(scope="module")
def day(s3: S3Server, proxy: CountingProxy) -> ObjectStore:
    """A store with a channel of a day: a message in the first second of each minute, and one in its last."""
    store = open_store(s3.new_url(), s3.options_of(proxy.endpoint))
    create_channel(store, DAY)
    messages = [
        Message(2 * minute + half, MIDNIGHT_MS + minute * MINUTE_MS + half * (MINUTE_MS - 1), None, b"%d" % minute)
        for minute in range(MINUTES)
        for half in (0, 1)
    ]
    with ThreadPoolExecutor(16) as pool:

        def run_all(jobs: list[Callable[[], None]]) -> None:
            for _ in pool.map(lambda job: job(), jobs):
                pass

        frontier = Frontier(store, DAY, PUBLISHER, lambda: MIDNIGHT_MS, run_all)
        assert frontier.put(messages) == 2 * MINUTES
    return store


def test_a_minute_out_of_a_day_touches_only_the_objects_of_that_minute(day: ObjectStore, proxy: CountingProxy) -> None:
    proxy.reset()
    start_ms = MIDNIGHT_MS + 754 * MINUTE_MS
    found = list(ChannelReader(day, "orders", start=start_ms, end_ms=start_ms + MINUTE_MS).iterate())
    assert [message.value for message in found] == [b"754", b"754"]
    prefix = day.url.removeprefix("s3://odradek/")
    bucket = f"{prefix}/{keys.bucket_prefix('orders', start_ms)}"
    assert proxy.keys("LIST") == [bucket]
    objects = sorted(f"{prefix}/{message.object_key}" for message in found)
    assert sorted(proxy.keys("GET")) == [f"{prefix}/orders/!channel.json", *objects]


def test_a_range_that_begins_and_ends_inside_of_buckets(day: ObjectStore, proxy: CountingProxy) -> None:
    proxy.reset()
    start_ms = MIDNIGHT_MS + 700 * MINUTE_MS + 30_000
    found = list(ChannelReader(day, "orders", start=start_ms, end_ms=start_ms + 3 * MINUTE_MS).iterate())
    assert [message.sequence for message in found] == list(range(1401, 1407))
    assert proxy.counts() == {"LIST": 1, "GET": 1 + 6}


def test_the_whole_day_is_read_in_order_and_once(day: ObjectStore) -> None:
    found = list(ChannelReader(day, "orders", start=0).iterate())
    assert [message.sequence for message in found] == list(range(2 * MINUTES))


def test_a_reader_that_follows_sees_each_message_once(s3: S3Server) -> None:
    store, clock, chance = open_store(s3.new_url(), s3.options), ManualClock(MIDNIGHT_MS), random.Random(6)
    create_channel(store, DAY)
    frontier = Frontier(store, DAY, PUBLISHER, clock.now_ms)
    reader = ChannelReader(store, "orders", start=clock.now_ms(), clock=clock)
    seen: list[int] = []
    for _ in range(40):
        clock.advance(chance.randint(1, 3_000))
        behind_ms = [chance.randint(0, 5_000) for _ in range(chance.randint(0, 4))]
        first = frontier.next
        frontier.put([
            Message(first + index, max(clock.now_ms() - behind, MIDNIGHT_MS), None, b"x")
            for index, behind in enumerate(behind_ms)
        ])  # fmt: skip
        if chance.random() < 0.7:
            seen += [message.sequence for message in reader.poll()]
    seen += [message.sequence for message in reader.poll()]
    assert sorted(seen) == list(range(frontier.next))
    resumed = ChannelReader(store, "orders", start=Position.parse(str(reader.position)), clock=clock)
    assert {message.sequence for message in resumed.poll()} <= set(seen)


def test_two_who_upload_the_same_records_store_each_once(s3: S3Server) -> None:
    store = open_store(s3.new_url(), s3.options)
    spec = ChannelSpec("orders", "0", slice_ms=100)
    create_channel(store, spec)
    chance = random.Random(7)
    messages = [Message(number, MIDNIGHT_MS + chance.randint(0, 900), None, b"%d" % number) for number in range(200)]

    def upload(seed: int) -> None:
        frontier, steps = Frontier(store, spec, PUBLISHER, lambda: MIDNIGHT_MS), random.Random(seed)
        while frontier.next < len(messages):
            frontier.put(messages[frontier.next : frontier.next + steps.randint(1, 60)])

    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(upload, (1, 2)):
            pass
    found = list(ChannelReader(store, "orders", start=0).iterate())
    assert sorted((message.sequence, message.value) for message in found) == [
        (message.sequence, message.value) for message in messages
    ]


def test_old_buckets_and_a_whole_channel_are_deleted(s3: S3Server) -> None:
    store = open_store(s3.new_url(), s3.options)
    for name in ("orders", "orders2"):
        spec = ChannelSpec(name, name, retention_ms=5 * MINUTE_MS)
        create_channel(store, spec)
        times = [MIDNIGHT_MS + minute * MINUTE_MS for minute in range(10)]
        messages = [Message(number, time_ms, None, b"x") for number, time_ms in enumerate(times)]
        Frontier(store, spec, PUBLISHER, lambda: MIDNIGHT_MS).put(messages)
    assert list_channels(store) == ["orders", "orders2"]
    assert expire_channel(store, spec, MIDNIGHT_MS + 9 * MINUTE_MS) == 4
    assert [message.sequence for message in ChannelReader(store, "orders2", start=0).iterate()] == list(range(4, 10))
    assert delete_channel(store, "orders") == 11
    assert list_channels(store) == ["orders2"]
    assert list(store.list("orders/")) == []
