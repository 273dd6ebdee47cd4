"""The object store against a real S3 server: what is promised of conditional PUTs, ranges, listings and outages."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from odradek.objects.errors import ObjectExistsError, ObjectMissingError, StoreError, StoreUnavailableError
from odradek.objects.keys import before_slice, object_key, place
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore, open_store
from tests.counting import CountingProxy
from tests.process import wait_until
from tests.s3 import S3Server

MANY = 10_000
THREADS = 32
PAGE_KEYS = 1_000
RACERS = 4  # SeaweedFS lets many who want the same key wait for seconds
GRID = ChannelSpec("orders", "0", window_ms=1_000, slice_ms=100)


@pytest.fixture
def store(s3: S3Server) -> ObjectStore:
    return open_store(s3.new_url(), s3.options)


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[CountingProxy]:
    with CountingProxy(s3.endpoint) as counting:
        yield counting


def key_of(number: int) -> str:
    """Keys in the shape of a channel's: ten buckets of a second, each with ten slices of a hundred objects."""
    return object_key("orders", *place(GRID, number), "0123456789abcdef", number)


@pytest.fixture(scope="module")
def many(s3: S3Server, proxy: CountingProxy) -> ObjectStore:
    """A store into which threads have put ten thousand objects at the same time."""
    store = open_store(s3.new_url(), s3.options_of(proxy.endpoint))
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda number: store.put(key_of(number), b"%d" % number, only_new=True), range(MANY)):
            pass
    return store


def test_ten_thousand_parallel_puts_are_all_there_and_unique(many: ObjectStore, proxy: CountingProxy) -> None:
    assert many.requests.puts == MANY
    proxy.reset()
    lists_before = many.requests.lists
    found = list(many.list("orders/"))
    assert [info.key for info in found] == [key_of(number) for number in range(MANY)]
    assert [info.size_bytes for info in found] == [len(str(number)) for number in range(MANY)]
    assert all(abs(info.modified_ms - time.time() * 1000) < 600_000 for info in found)
    pages = many.requests.lists - lists_before
    assert pages == proxy.counts()["LIST"], "what is counted is what went over the wire"
    assert MANY // PAGE_KEYS <= pages <= MANY // PAGE_KEYS + 1


def test_each_of_many_objects_has_its_own_content(many: ObjectStore) -> None:
    numbers = range(0, MANY, 37)
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(lambda number: many.get(key_of(number)), numbers)) == [
            b"%d" % number for number in numbers
        ]


def test_two_halves_of_a_listing_make_the_whole(many: ObjectStore, proxy: CountingProxy) -> None:
    first = [info.key for info, _ in zip(many.list("orders/"), range(MANY // 2), strict=False)]
    proxy.reset()
    second = [info.key for info in many.list("orders/", after=first[-1])]
    assert len(first) == len(second) == MANY // 2
    assert first + second == sorted(set(first + second)) == [key_of(number) for number in range(MANY)]
    assert proxy.counts()["LIST"] <= MANY // 2 // PAGE_KEYS + 1, "the second half does not list the first again"


def test_a_listing_is_lazy(many: ObjectStore, proxy: CountingProxy) -> None:
    proxy.reset()
    listing = many.list("orders/")
    assert next(listing).key == key_of(0)
    assert proxy.counts()["LIST"] < MANY // PAGE_KEYS


def test_a_listing_may_begin_at_a_key_that_is_not_there(many: ObjectStore) -> None:
    assert next(many.list("orders/", after=key_of(4_999) + "-none")).key == key_of(5_000)
    assert next(many.list("orders/", after=before_slice(GRID, 7_300))).key == key_of(7_300)
    assert list(many.list("orders/", after=key_of(MANY))) == []
    assert list(many.list("other/")) == []


def test_folders_are_the_names_directly_below(many: ObjectStore, proxy: CountingProxy) -> None:
    proxy.reset()
    assert sorted(many.folders("orders/")) == [f"{bucket:015d}" for bucket in range(0, MANY, GRID.window_ms)]
    assert proxy.counts() == {"LIST": 1}, "and what is below them is not listed"
    assert many.folders("other/") == []


def test_an_object_is_created_once(store: ObjectStore) -> None:
    store.put("a/one", b"first", only_new=True)
    with pytest.raises(ObjectExistsError, match="a/one"):
        store.put("a/one", b"second", only_new=True)
    assert store.get("a/one") == b"first"
    store.put("a/one", b"third")
    assert store.get("a/one") == b"third"


def test_one_of_many_who_create_the_same_object_wins(store: ObjectStore) -> None:
    begin = threading.Barrier(RACERS)

    def create(key: str, name: int) -> bool:
        begin.wait(30)
        try:
            store.put(key, b"%d" % name, only_new=True)
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        for round_ in range(5):
            key = f"race/{round_}"
            won = list(pool.map(create, [key] * RACERS, range(RACERS)))
            assert won.count(True) == 1
            assert store.get(key) == b"%d" % won.index(True)


def test_a_range_is_read_without_the_rest(store: ObjectStore, s3: S3Server) -> None:
    body = os.urandom(300_000)
    store.put("large", body)
    before = store.requests.received_bytes
    assert store.get_range("large", 0, 10) == body[:10]
    assert store.get_range("large", 123_456, 1_000) == body[123_456:124_456]
    assert store.get_range("large", 299_999, 1) == body[-1:]
    assert store.requests.received_bytes - before < 5_000


def test_an_object_in_pieces_and_of_many_megabytes(store: ObjectStore) -> None:
    pieces = [os.urandom(4 * 1024 * 1024 + extra) for extra in range(3)]
    store.put("pieces", pieces, only_new=True)
    assert store.get("pieces") == b"".join(pieces)
    with pytest.raises(ObjectExistsError):
        store.put("pieces", pieces[::-1], only_new=True)
    assert store.get_range("pieces", 4 * 1024 * 1024 - 2, 4) == pieces[0][-2:] + pieces[1][:2]


def test_what_is_not_there_is_missing(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissingError, match="nothing/here"):
        store.get("nothing/here")
    with pytest.raises(ObjectMissingError, match="nothing/here"):
        store.get_range("nothing/here", 0, 1)


def test_more_than_a_page_of_objects_is_deleted(store: ObjectStore) -> None:
    keys = [f"old/{number:04d}" for number in range(PAGE_KEYS + 200)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), [*keys, "young/0"]))
    assert store.delete(keys) == len(keys)
    assert [info.key for info in store.list("")] == ["young/0"]


def test_marks_of_a_channel_sort_before_its_buckets(store: ObjectStore) -> None:
    keys = [f"c/{0:015d}/{0:05d}/p-0", "c/!late/1", "c/!frontier/p", "c/!channel.json", "!archive/t/1"]
    for key in keys:
        store.put(key, key.encode())
    assert [info.key for info in store.list("c/")] == sorted(keys)[1:]
    assert store.get("c/!channel.json") == b"c/!channel.json"


def test_a_wrong_key_is_no_outage(s3: S3Server) -> None:
    store = open_store(s3.new_url(), {**s3.options, "aws_secret_access_key": "guessed"})
    with pytest.raises(StoreError, match=s3.url) as caught:
        store.put("a", b"")
    assert not isinstance(caught.value, StoreUnavailableError), "it does not pass by itself"


def test_a_store_that_is_away_says_so(s3: S3Server) -> None:
    store = open_store(s3.new_url(), s3.options, timeout_ms=1_000)
    with s3.away():
        for attempt in (
            lambda: store.put("a", b"x"),
            lambda: store.put("a", b"x", only_new=True),
            lambda: store.get("a"),
            lambda: list(store.list("")),
            lambda: store.delete(["a"]),
        ):
            with pytest.raises(StoreUnavailableError, match=s3.url) as caught:
                attempt()
            text = str(caught.value)
            assert "\n" not in text and len(text) < 500 and "Debug" not in text, "a sentence, not a dump"
    store.put("a", b"back", only_new=True)
    assert store.get("a") == b"back"


def test_a_store_that_hangs_is_away_after_the_timeout(s3: S3Server) -> None:
    store = open_store(s3.new_url(), s3.options, timeout_ms=500)
    store.put("a", b"x")
    with s3.frozen():
        begin = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            store.get("a")
        assert time.monotonic() - begin < 5.0
    assert store.get("a") == b"x"


def test_nothing_acknowledged_is_lost_when_the_server_is_killed_among_puts(s3: S3Server) -> None:
    store = open_store(s3.new_url(), s3.options, timeout_ms=1_000)
    acknowledged: set[int] = set()
    failures: list[StoreUnavailableError] = []
    is_over = threading.Event()

    def put_on(first: int) -> None:
        for number in range(first, 1_000_000, 8):
            if is_over.is_set():
                return
            try:
                store.put(key_of(number), b"%d" % number, only_new=True)
            except StoreUnavailableError as error:
                failures.append(error)
            else:
                acknowledged.add(number)

    with ThreadPoolExecutor(8) as pool:
        done: list[Future[None]] = [pool.submit(put_on, first) for first in range(8)]
        try:
            wait_until(lambda: len(acknowledged) > 500, 30, "500 puts")
            with s3.away():
                wait_until(lambda: failures, 10, "a failure")
            puts = len(acknowledged)
            wait_until(lambda: len(acknowledged) > puts + 100, 30, "puts after the outage")
        finally:
            is_over.set()
    for each in done:
        each.result()
    kept = {info.key for info in store.list("orders/")}
    assert {key_of(number) for number in acknowledged} <= kept
    with ThreadPoolExecutor(8) as pool:
        for number, body in zip(acknowledged, pool.map(lambda n: store.get(key_of(n)), acknowledged), strict=True):
            assert body == b"%d" % number
