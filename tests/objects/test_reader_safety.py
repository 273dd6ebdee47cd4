"""What a reader must not skip when clocks jump, when much comes late at once, and when gaps are filled after all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from odradek.objects import reader as reader_module
from odradek.objects.ordered import InOrder
from odradek.objects.queue import QueueReader
from odradek.objects.reader import ChannelReader, ReadMessage, expire_channel
from odradek.objects.slices import cut
from tests.objects.support import NOW_MS, PUBLISHER, SPEC, TestStore, frontier, message, with_channel

HOUR_MS = 3_600_000


def sequences(found: list[ReadMessage]) -> list[int]:
    return [each.sequence for each in found]


def tail(store: TestStore) -> ChannelReader:
    return ChannelReader(store, SPEC.name, start=NOW_MS, clock=store.clock)


def test_a_clock_that_was_wrong_for_a_moment_hides_nothing() -> None:
    store = with_channel()
    reader, publisher = tail(store), frontier(store)
    publisher.put([message(0)])
    assert sequences(reader.poll()) == [0]
    store.clock.advance(HOUR_MS)
    assert reader.poll() == []
    store.clock.advance(-HOUR_MS + 1_000)
    publisher.put([message(1, 1_000)])
    assert 1 in sequences(reader.poll())


def test_marks_that_were_made_while_the_clock_was_ahead_are_seen() -> None:
    store = with_channel()
    publisher = frontier(store)
    store.clock.advance(HOUR_MS)
    reader = tail(store)
    store.clock.advance(HOUR_MS)
    assert reader.poll() == []
    store.clock.advance(-HOUR_MS)
    publisher.put([message(0)])  # an hour late: it has a mark
    assert len(store.marks()) == 1
    store.clock.advance(SPEC.grace_ms)
    assert sequences(reader.poll()) == [0]


def test_a_position_waits_for_late_objects_that_did_not_fit_into_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "POLL_OBJECTS_MAX", 10)
    store = with_channel()
    publisher = frontier(store)
    reader = tail(store)
    store.clock.advance(HOUR_MS)
    reader.poll()
    publisher.put([message(number, 1_000 * number) for number in range(25)])
    got: list[int] = []
    store.clock.advance(SPEC.grace_ms)
    got += sequences(reader.poll())
    assert len(got) == 10
    store.clock.advance(10 * 60_000)  # the caller takes his time
    got += sequences(reader.poll())
    assert len(got) == 20
    resumed = ChannelReader(store, SPEC.name, start=reader.position, clock=store.clock)
    got += sequences(resumed.poll())
    got += sequences(resumed.poll())
    got += sequences(resumed.poll())
    assert set(got) == set(range(25))
    reader.poll()
    assert reader.position.time_ms > NOW_MS + HOUR_MS + 10 * 60_000


def test_what_comes_after_its_gap_was_given_up_makes_no_new_gap() -> None:
    order = InOrder(1_000)
    keys = {first: cut(SPEC, PUBLISHER, [message(first)])[0].key for first in (0, 10, 20, 30)}

    def release(*firsts: int, now_ms: int) -> list[int]:
        read = [(keys[first], [message(first + each) for each in range(10)]) for first in firsts]
        return [messages[0].sequence for _, messages in order.release(read, now_ms)]

    assert release(0, 20, now_ms=0) == [0]
    assert release(now_ms=1_000) == [20]
    assert release(10, now_ms=2_000) == [10]
    assert release(30, now_ms=2_001) == [30]


def test_retention_leaves_a_group_where_it_is() -> None:
    store = with_channel(replace(SPEC, retention_ms=HOUR_MS))
    frontier(store).put([message(number, 60_000 * number) for number in range(10)])
    store.clock.advance(10 * 60_000)
    group = {"group": "workers", "clock": store.clock}
    reader = QueueReader(store, SPEC.name, start_ms=NOW_MS + 5 * 60_000, **group)  # type: ignore[arg-type]
    while leased := reader.take():
        reader.done(leased)
    store.put(f"{SPEC.name}/!queue/workers/!low", json.dumps({"low": NOW_MS + 9 * 60_000}).encode())
    expire_channel(store, replace(SPEC, retention_ms=HOUR_MS), NOW_MS + HOUR_MS + 60_000)
    again = QueueReader(store, SPEC.name, **group)  # type: ignore[arg-type]
    assert again.take() is None
