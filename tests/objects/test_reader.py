"""A reader sees each record once: in time, late, after an outage, in order; and it asks for no more than it must."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clock import ManualClock
from odradek.objects import reader as reader_module
from odradek.objects.channels import create_channel, list_channels, save_channel
from odradek.objects.errors import ChannelMissingError, DamagedObjectError, StoreUnavailableError
from odradek.objects.keys import late_key, object_key, place, publisher_hash, queue_prefix
from odradek.objects.putting import Frontier
from odradek.objects.reader import ChannelReader, Position, ReadMessage, expire_channel, objects_between
from odradek.objects.slices import Message, cut
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore, open_store
from tests.counting import CountingProxy
from tests.objects.support import NOW_MS, PUBLISHER, SPEC, TestStore, frontier, message, with_channel
from tests.s3 import S3Server

FIFO = replace(SPEC, fifo=True)


def tail(store: TestStore, start: int | Position | None = None) -> ChannelReader:
    return ChannelReader(store, SPEC.name, start=start, clock=store.clock)


def sequences(found: list[ReadMessage]) -> list[int]:
    return [each.sequence for each in found]


def fill(store: ObjectStore, minutes: int, spec: ChannelSpec = SPEC) -> None:
    """One record a second for so many minutes, an object each."""
    for each in cut(spec, PUBLISHER, [message(second, 1_000 * second) for second in range(60 * minutes)]):
        store.put(each.key, each.data)


def test_a_tailing_reader_gets_each_record_once() -> None:
    store = with_channel()
    reader, publisher = tail(store), frontier(store)
    assert reader.poll() == []
    for number in range(100):
        store.clock.advance(1_000)
        publisher.put([message(number, 1_000 * number + 500)])
        found = reader.poll()
        assert sequences(found) == [number]
        (read,) = found
        value = b"value %d" % number
        assert read == ReadMessage(PUBLISHER, number, NOW_MS + 1_000 * number + 500, None, value, (), read.object_key)
        assert read.object_key in store.objects
        assert reader.poll() == []


def test_a_poll_with_nothing_new_is_one_list_request() -> None:
    store = with_channel()
    reader, publisher = tail(store), frontier(store)
    publisher.put([message(0)])
    reader.poll()
    before = replace(store.requests)
    for _ in range(10):
        store.clock.advance(500)
        assert reader.poll() == []
    assert store.requests.lists - before.lists == 10
    assert store.requests.gets == before.gets


def test_an_object_that_comes_within_the_grace_is_found() -> None:
    store = with_channel()
    reader = tail(store)
    for number, late_ms in enumerate([0, 5_000, 10_000]):
        publisher = frontier(store, publisher=publisher_hash(str(number)))
        store.clock.advance(late_ms)
        reader.poll()
        publisher.put([message(number, 900)])
        assert sequences(reader.poll()) == [number]
    assert store.marks() == [], "none of these were late"


def test_after_an_outage_late_objects_are_found_by_their_marks() -> None:
    store = with_channel()
    reader, publisher, other = tail(store), frontier(store), frontier(store, publisher=publisher_hash("other"))
    got: list[int] = []
    for second in range(600):  # the other one goes on meanwhile
        store.clock.advance(1_000)
        other.put([message(10_000 + second, 1_000 * second)])
        got += sequences(reader.poll())
    publisher.put([message(number, 1_000 * number) for number in range(600)])  # of the last ten minutes, at once
    for _ in range(40):
        store.clock.advance(1_000)
        got += sequences(reader.poll())
    assert Counter(got) == Counter([*range(600), *range(10_000, 10_600)])


def test_an_object_that_was_found_in_its_slice_is_not_read_again_by_its_mark() -> None:
    store = with_channel()
    reader = tail(store)
    got = sequences(reader.poll())
    store.clock.advance(SPEC.grace_ms)
    got += sequences(reader.poll())  # looks for marks, and next when the slice is out of sight
    frontier(store).put([message(0)])
    assert len(store.marks()) == 1
    for _ in range(100):
        got += sequences(reader.poll())
        store.clock.advance(1_000)
    assert got == [0]


def test_a_mark_whose_object_is_not_there_yet_is_waited_for() -> None:
    store = with_channel()
    reader = tail(store)
    store.clock.advance(600_000)
    reader.poll()
    (late,) = cut(SPEC, PUBLISHER, [message(0)])
    store.put(late_key(SPEC.name, store.clock.now_ms(), PUBLISHER, 0), late.key.encode())
    for _ in range(3):
        store.clock.advance(SPEC.grace_ms)
        assert reader.poll() == []
    store.put(late.key, late.data)
    store.clock.advance(SPEC.grace_ms)
    assert sequences(reader.poll()) == [0]
    store.clock.advance(SPEC.grace_ms)
    assert reader.poll() == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "poll", "wait", "outage", "restart", "resume"]), st.integers(0, 3)
    ),
    max_size=60,
)


@given(steps=steps, fifo=st.booleans())
def test_whatever_happens_each_record_comes_once_and_none_is_skipped(steps: list[tuple[str, int]], fifo: bool) -> None:
    """Publishing with outages and restarts of the publisher; a reader that resumes may see a little again."""
    spec = replace(FIFO if fifo else SPEC, slice_bytes=50)
    store = with_channel(spec)
    log: list[Message] = []
    reader, publisher = tail(store), frontier(store, spec)
    got: list[int] = []
    resumed = False

    def publish() -> None:
        publisher.put(log[publisher.next :])

    for what, number in steps:
        if what == "publish":
            log += [message(len(log) + each, store.clock.now_ms() - NOW_MS) for each in range(number)]
            publish()
        elif what == "outage":  # records come, and stay in the log for long
            for _ in range(number):
                log.append(message(len(log), store.clock.now_ms() - NOW_MS))
                store.clock.advance(20_000)
        elif what == "restart":
            publisher = frontier(store, spec)
        elif what == "resume":
            reader, resumed = tail(store, Position.parse(str(reader.position))), True
        elif what == "wait":
            store.clock.advance(700 * number)
        else:
            got += sequences(reader.poll())
    publish()
    for _ in range(10):
        store.clock.advance(10_000)
        got += sequences(reader.poll())
    assert set(got) == {each.sequence for each in log}, "none is skipped"
    if not resumed:
        assert len(got) == len(log), "none comes twice"
        if fifo:
            assert got == sorted(got)


def test_a_position_is_stored_and_read_on_from() -> None:
    store = with_channel()
    publisher = frontier(store)
    reader = tail(store)
    publisher.put([message(0)])
    reader.poll()
    store.clock.advance(120_000)
    publisher.put([message(1, 120_000)])
    reader.poll()
    position = reader.position
    assert str(position) == f"{NOW_MS + 120_000}/0"
    assert Position.parse(str(position)) == position
    store.clock.advance(3_600_000)
    publisher.put([message(2, 119_000), message(3, 3_720_000)])  # one of an outage, one of now
    resumed = tail(store, position)
    assert Counter(sequences(resumed.poll() + resumed.poll())) == Counter([1, 2, 3]), "0 is long past; 1 may come again"


@pytest.mark.parametrize("text", ["", "1", "a/b", "1/", "-1/2", "1/2/3", "١/1"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="form bucket/slice"):
        Position.parse(text)


def test_a_long_backlog_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "POLL_OBJECTS_MAX", 50)
    store = with_channel()
    fill(store, 5)
    store.clock.advance(400_000)
    reader = tail(store, NOW_MS)
    got: list[int] = []
    for _ in range(6):
        found = sequences(reader.poll())
        assert len(found) == 50
        got += found
        resumed = tail(store, reader.position)
        behind = set(sequences(resumed.poll()))
        assert max(got) + 1 in behind or max(got) == 299, "nothing behind the position is passed over"
    assert got == list(range(300))
    assert reader.poll() == []


def test_after_an_error_a_poll_goes_on_where_it_was() -> None:
    store = with_channel()
    fill(store, 1)
    reader = tail(store, NOW_MS)
    broken = store.objects[store.slice_keys()[40]]
    store.objects[store.slice_keys()[40]] = (broken[0][:-1], NOW_MS)
    with pytest.raises(DamagedObjectError, match=r"test://store: orders/.*damaged"):
        reader.poll()
    store.objects[store.slice_keys()[40]] = broken
    assert sequences(reader.poll()) == list(range(60))


def test_a_reader_from_now_on_gets_nothing_older() -> None:
    store = with_channel()
    store.clock.advance(500)
    reader = tail(store)
    frontier(store).put([message(0, 499), message(1, 500)])
    assert sequences(reader.poll()) == [1]


def test_fifo_waits_for_a_gap_and_no_longer_than_the_grace() -> None:
    store = with_channel(FIFO)
    reader = tail(store)
    objects = cut(FIFO, PUBLISHER, [message(number, 1_000 * number) for number in range(4)])
    for number in (0, 3, 2):
        store.put(objects[number].key, objects[number].data)
    assert sequences(reader.poll()) == [0]
    store.clock.advance(10_000)
    assert reader.poll() == []
    assert reader.position.time_ms == NOW_MS + 2_000, "what is held back is not passed"
    store.put(objects[1].key, objects[1].data)
    assert sequences(reader.poll()) == [1, 2, 3]

    far = cut(FIFO, PUBLISHER, [message(number, 10_000) for number in (10, 11)])[0]  # 4 to 9 will never come
    store.put(far.key, far.data)
    assert reader.poll() == []
    store.clock.advance(FIFO.grace_ms - 1)
    assert reader.poll() == []
    store.clock.advance(1)
    assert sequences(reader.poll()) == [10, 11]


def test_fifo_orders_what_an_outage_delayed() -> None:
    store = with_channel(FIFO)
    reader, publisher = tail(store), frontier(store, FIFO)
    publisher.put([message(0)])
    got = sequences(reader.poll())
    store.clock.advance(600_000)
    got += sequences(reader.poll())
    publisher.put([message(number, 60_000 * number) for number in range(1, 11)])
    got += sequences(reader.poll())
    got += sequences(reader.poll())
    assert got == list(range(11))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (NOW_MS + 60_000, NOW_MS + 120_000, range(60, 120)),
        (NOW_MS + 61_500, NOW_MS + 63_000, range(62, 63)),
        (NOW_MS + 119_000, NOW_MS + 122_000, range(119, 122)),
        (NOW_MS, NOW_MS, range(0)),
        (NOW_MS + 10**9, NOW_MS + 2 * 10**9, range(0)),
        (0, NOW_MS + 3_000, range(3)),
    ],
)
def test_a_range_of_time_touches_only_its_own_objects(start: int, end: int, expected: range) -> None:
    store = with_channel()
    fill(store, 10)
    reader = ChannelReader(store, SPEC.name, start=start, end_ms=end)
    store.got.clear()
    before = replace(store.requests)
    assert sequences(list(reader.iterate())) == list(expected)
    slices = {
        object_key(SPEC.name, *place(SPEC, time_ms), PUBLISHER, 0)[:-20]
        for time_ms in range(start, min(end, start + 10**6), 500)
    }
    assert all(key[:-20] in slices or start == 0 for key in store.got), "only slices in the range were read"
    assert len(store.got) <= len(expected) + 1
    assert store.requests.lists - before.lists <= 1


def test_a_minute_of_a_day_is_one_list_and_its_own_objects_on_a_real_server(s3: S3Server) -> None:
    url = s3.new_url()
    direct = open_store(url, s3.options)
    create_channel(direct, SPEC)
    spec = replace(SPEC, slice_ms=20_000)
    save_channel(direct, spec)
    messages = [message(number, 20_000 * number) for number in range(180)]  # an hour, three objects a minute
    for each in cut(spec, PUBLISHER, messages):
        direct.put(each.key, each.data)
    with CountingProxy(s3.endpoint) as proxy:
        store = open_store(url, s3.options_of(proxy.endpoint))
        reader = ChannelReader(store, SPEC.name, start=NOW_MS + 600_000, end_ms=NOW_MS + 660_000)
        proxy.reset()
        assert sequences(list(reader.iterate())) == [30, 31, 32]
        assert proxy.counts() == {"LIST": 1, "GET": 3}


def test_buckets_in_a_range_are_found_in_a_directory(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    create_channel(store, SPEC)
    fill(store, 2)
    found = [info.key for info in objects_between(store, SPEC, NOW_MS + 59_000, NOW_MS + 62_000)]
    assert [int(key[-20:]) for key in found] == [59, 60, 61]
    reader = ChannelReader(store, SPEC.name, start=0)
    assert len(list(reader.iterate())) == len(reader.poll()) == 120


def test_retention_deletes_whole_buckets_their_marks_and_their_leases() -> None:
    store = with_channel()
    spec = replace(SPEC, retention_ms=120_000)
    save_channel(store, spec)
    fill(store, 5)
    lease = queue_prefix(SPEC.name, "group")
    for key in store.slice_keys():
        store.put(lease + key.partition("/")[2] + "/done", b"x")
    for minute in range(5):
        store.put(late_key(SPEC.name, NOW_MS + 60_000 * minute, PUBLISHER, minute), b"x")
    assert expire_channel(store, SPEC, NOW_MS + 10**9) == 0, "for ever"
    assert expire_channel(store, spec, NOW_MS + 60_000) == 0
    assert expire_channel(store, spec, NOW_MS + 239_999) == 60
    assert expire_channel(store, spec, NOW_MS + 240_000) == 60
    assert sequences(list(ChannelReader(store, SPEC.name, start=0).iterate())) == list(range(120, 300))
    assert len(store.marks()) == 3
    assert sum(key.startswith(lease) for key in store.objects) == 180
    assert expire_channel(store, spec, NOW_MS + 10**9) == 180
    assert list_channels(store) == [SPEC.name], "the channel itself stays"


def test_retention_lists_no_more_than_it_deletes() -> None:
    store = with_channel()
    fill(store, 100)  # 6,000 objects, six pages
    before = store.requests.lists
    expire_channel(store, replace(SPEC, retention_ms=60_000), NOW_MS + 180_000)
    assert store.requests.lists - before <= 3


def test_a_channel_that_is_not_there_says_so() -> None:
    for name in ("nothing", "a/b"):
        with pytest.raises(ChannelMissingError, match="there is no channel"):
            ChannelReader(TestStore(), name)


def test_follow_goes_on_until_it_is_stopped() -> None:
    store = open_store(f"memory://follow-{os.getpid()}")
    create_channel(store, SPEC)
    publisher = Frontier(store, SPEC, PUBLISHER, lambda: NOW_MS)
    stop = threading.Event()
    reader = ChannelReader(store, SPEC.name, start=NOW_MS, clock=ManualClock(NOW_MS), poll_ms=1)
    publisher.put([message(0)])
    following = reader.follow(stop)
    assert next(following).sequence == 0
    publisher.put([message(1)])
    assert next(following).sequence == 1
    stop.set()
    assert list(following) == []


def test_follow_pauses_also_when_it_has_found_something_since_every_look_is_billed() -> None:
    class Pauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            seconds.append(timeout)
            return False

    seconds: list[float | None] = []
    store = with_channel()
    publisher = Frontier(store, SPEC, PUBLISHER, lambda: NOW_MS)
    following = ChannelReader(store, SPEC.name, start=NOW_MS, clock=ManualClock(NOW_MS), poll_ms=250).follow(Pauses())
    for sequence in range(2):
        publisher.put([message(sequence)])
        assert next(following).sequence == sequence
    assert seconds == [0.25]


def test_a_store_that_is_away_is_told() -> None:
    store = with_channel()
    reader = tail(store)

    def away(prefix: str, after: str | None) -> None:
        raise StoreUnavailableError("away")

    store._pages = away  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailableError):
        reader.poll()
