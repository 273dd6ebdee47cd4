"""A writer without a broker: futures after the PUT, a store that goes away, a bounded buffer, names that go on."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from odradek.objects import ChannelReader, ChannelWriter, open_store
from odradek.objects.channels import create_channel, delete_channel, list_channels, load_channel, save_channel
from odradek.objects.errors import (
    BufferFullError,
    ChannelMissingError,
    DamagedObjectError,
    ObjectExistsError,
    StoreUnavailableError,
)
from odradek.objects.keys import publisher_hash, spec_key
from odradek.objects.spec import ChannelSpec
from tests.objects.support import NOW_MS, SPEC, TestStore, with_channel
from tests.process import wait_until

FIFO = replace(SPEC, fifo=True)


@contextmanager
def writing(store: TestStore, spec: ChannelSpec = SPEC, name: str | None = None) -> Iterator[ChannelWriter]:
    with ChannelWriter(store, spec, name, store.clock) as writer:
        yield writer


def test_a_future_is_done_when_its_record_is_in_the_store() -> None:
    store = with_channel()
    gate = threading.Event()

    def wait_for_gate(key: str) -> None:
        assert gate.wait(30)

    store.before_put = wait_for_gate
    with writing(store) as writer:
        future = writer.publish(b"bytes", key=b"k", headers=[("h", b"1")])
        other = writer.publish({"x": 42}, timestamp=NOW_MS + 5_000)
        assert not future.done()
        gate.set()
        writer.flush()
        assert (future.result(), other.result()) == (0, 1)
    first, second = store.messages()
    assert first == (0, NOW_MS, b"k", b"bytes", (("h", b"1"),))
    assert second[1:] == (NOW_MS + 5_000, None, b'{"x":42}', ())


def test_a_slice_is_one_object_for_all_messages_of_all_threads() -> None:
    store = with_channel()
    with writing(store, replace(SPEC, slice_ms=60_000)) as writer, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: writer.publish(b"%d" % number), range(2_000)))
    assert sorted(int(each.value or b"") for each in store.messages()) == list(range(2_000))
    assert [each.sequence for each in store.messages()] == list(range(2_000))
    assert len(store.slice_keys()) == 1


def test_a_batch_has_one_future_for_all_its_records() -> None:
    store = with_channel()
    with ChannelWriter(store, SPEC, clock=store.clock, buffer_bytes_max=2_000) as writer:
        writer.publish(b"first")
        writer.flush()
        future = writer.publish_batch([b"a", {"b": 1}, b"c"], timestamp=NOW_MS + 1)
        with pytest.raises(BufferFullError):
            writer.publish_batch([b"x" * 1_000] * 2)  # all or none
        with pytest.raises(ValueError, match="at least one"):
            writer.publish_batch([])
        writer.flush()
        assert future.result(0) == 3
    assert [each.value for each in store.messages()] == [b"first", b"a", b'{"b":1}', b"c"]


def test_a_slice_that_is_large_enough_does_not_wait() -> None:
    store = with_channel()
    spec = replace(SPEC, slice_ms=60_000, slice_bytes=1_000)
    with ChannelWriter(store, spec, clock=store.clock) as writer:
        futures = [writer.publish(b"x" * 100) for _ in range(10)]
        assert futures[0].result(30) == 0


def test_what_came_behind_the_end_of_a_slice_stays_for_the_next_object() -> None:
    store = with_channel()
    spec = replace(SPEC, slice_ms=20)
    with ChannelWriter(store, spec, clock=store.clock) as writer:
        early = writer.publish(b"early")
        later = writer.publish(b"later", timestamp=NOW_MS + 20)
        assert early.result(30) == 0
        assert later.result(30) == 1, "and does not wait for ever"
    assert len(store.slice_keys()) == 2


def test_a_store_that_is_away_is_tried_again_and_nothing_is_lost_or_doubled() -> None:
    store = with_channel(replace(SPEC, slice_bytes=200))
    with writing(store, replace(SPEC, slice_bytes=200)) as writer:
        store.fail_at(2, after=True)
        futures = [writer.publish(b"%d" % number, timestamp=NOW_MS + 400 * number) for number in range(50)]
        wait_until(lambda: writer._failure is not None, 30, "a failure")
        assert not all(future.done() for future in futures)
        store.heal()
        assert [future.result(30) for future in futures] == list(range(50))
    assert Counter(each.value for each in store.messages()) == Counter(b"%d" % number for number in range(50))


def test_the_buffer_is_bounded_while_the_store_is_away() -> None:
    store = with_channel()
    store.fail_at(0, after=False)
    writer = ChannelWriter(store, SPEC, clock=store.clock, buffer_bytes_max=1_000)
    with pytest.raises(BufferFullError, match="wait until a future is done"):
        for _ in range(100):
            writer.publish(b"x" * 100)
    with pytest.raises(StoreUnavailableError, match=r"is not stored after 0\.01 s"):
        writer.flush(0.01)
    store.heal()
    writer.flush()
    writer.publish(b"x" * 5_000)  # alone it may be larger
    writer.close()
    assert len(store.messages()) == 9


def test_a_writer_that_is_closed_in_an_outage_says_what_was_not_stored() -> None:
    store = with_channel()
    store.fail_at(0, after=False)
    writer = ChannelWriter(store, SPEC, clock=store.clock)
    future = writer.publish(b"x")
    writer.close(0.01)
    with pytest.raises(StoreUnavailableError, match=r"closed before this was stored: PUT .* the store is away"):
        future.result(0)
    with pytest.raises(ValueError, match="closed"):
        writer.publish(b"y")


def test_two_writers_in_one_tick_do_not_overwrite_each_other() -> None:
    store = with_channel()
    with writing(store) as one, writing(store) as other:
        assert one.publisher != other.publisher
        one.publish(b"one")
        other.publish(b"other")
    assert sorted(each.value or b"" for each in store.messages()) == [b"one", b"other"]


def test_a_writer_with_a_name_goes_on_with_its_sequences() -> None:
    store = with_channel(FIFO)
    for run in range(4):
        with writing(store, FIFO, "me") as writer:
            assert writer.publisher == publisher_hash("me")
            writer.publish(b"%d" % run).add_done_callback(lambda future: None)
            writer.flush()
            store.clock.advance(500)
            if run == 1:  # no checkpoint at the end
                store.before_put = refuse_checkpoints
        store.heal()
    found = store.messages()
    assert [(each.sequence, each.value) for each in found] == [(run, b"%d" % run) for run in range(4)]
    reader = ChannelReader(store, SPEC.name, start=NOW_MS, clock=store.clock)
    assert [each.sequence for each in reader.poll()] == [0, 1, 2, 3]


def refuse_checkpoints(key: str) -> None:
    if "!frontier" in key:
        raise StoreUnavailableError("no")


def test_times_in_a_fifo_channel_are_those_of_arrival_and_never_go_back() -> None:
    store = with_channel(FIFO)
    with writing(store, FIFO, "me") as writer:
        writer.publish(b"a", timestamp=5)
        writer.flush()
    store.clock.advance(-10_000)
    with writing(store, FIFO, "me") as writer:
        writer.publish(b"b")
    assert [each.timestamp for each in store.messages()] == [NOW_MS, NOW_MS]


def test_channels_are_made_found_changed_and_deleted() -> None:
    store = open_store(f"memory://channels-{os.getpid()}")
    assert list_channels(store) == []
    create_channel(store, SPEC)
    create_channel(store, SPEC)  # the answer to the first was lost
    with pytest.raises(ObjectExistsError, match="there is a channel orders already"):
        create_channel(store, replace(SPEC, id="another"))
    store.put("no-channel/x", b"x")
    store.put("!archive/x", b"x")
    create_channel(store, replace(SPEC, name="other"))
    assert list_channels(store) == ["orders", "other"]
    save_channel(store, replace(SPEC, retention_ms=5))
    assert load_channel(store, "orders").retention_ms == 5
    with ChannelWriter(store, SPEC, "me") as writer:
        writer.publish(b"x")
    assert delete_channel(store, "orders") == 3
    assert list_channels(store) == ["other"]
    with pytest.raises(ChannelMissingError, match="'odradek channel list"):
        load_channel(store, "orders")
    store.put(spec_key("other"), json.dumps({"name": "other"}).encode())
    with pytest.raises(DamagedObjectError, match="cannot be read"):
        load_channel(store, "other")


def test_the_names_of_the_package_are_found_when_they_are_asked_for() -> None:
    import odradek.objects as package

    assert dir(package) == sorted(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018
