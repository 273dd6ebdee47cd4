"""Competing readers: each message to one of them, again when a lease runs out, and never again when it is done."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from odradek.clock import ManualClock
from odradek.objects.channels import create_channel
from odradek.objects.errors import StoreUnavailableError
from odradek.objects.keys import queue_prefix
from odradek.objects.putting import Frontier
from odradek.objects.queue import Leased, QueueReader
from odradek.objects.stores import ObjectStore, open_store
from tests.objects.support import NOW_MS, PUBLISHER, SPEC, TestStore, frontier, message, with_channel
from tests.s3 import S3Server

SMALL = replace(SPEC, slice_bytes=30)  # an object a record


def worker(store: TestStore, owner: str, lease_ms: int = 30_000) -> QueueReader:
    return QueueReader(store, SPEC.name, "group", owner, lease_ms, store.clock)


def sequences(leased: Leased | None) -> list[int]:
    return [] if leased is None else [each.sequence for each in leased.messages]


def drain(reader: QueueReader) -> list[int]:
    """Take and finish all that is there."""
    found: list[int] = []
    while leased := reader.take():
        found += sequences(leased)
        assert reader.done(leased)
    return found


def test_messages_go_to_one_reader_in_order_and_not_again() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(number) for number in range(5)])
    one, other = worker(store, "one"), worker(store, "other")
    first, second = one.take(), other.take()
    assert first is not None and second is not None
    assert (sequences(first), sequences(second)) == ([0], [1])
    assert first.messages[0].value == b"value 0"
    assert one.done(first) and other.done(second)
    assert drain(one) == [2, 3, 4]
    assert (drain(other), drain(worker(store, "new"))) == ([], [])


def test_a_lease_that_ran_out_is_taken_by_another() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(0)])
    slow, other = worker(store, "slow"), worker(store, "other")
    leased = slow.take()
    assert leased is not None and leased.attempt == 0
    store.clock.advance(29_999)
    assert other.take() is None
    store.clock.advance(1)
    again = other.take()
    assert again is not None
    assert (sequences(again), again.attempt, again.object_key) == ([0], 1, leased.object_key)
    assert slow.take() is None, "it is the other's now"
    assert other.done(again)
    assert not slow.done(leased), "too late: the other has dealt with it"
    store.clock.advance(10**9)
    assert (slow.take(), other.take()) == (None, None)


def test_groups_do_not_share() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(0)])
    for group in ("a", "b"):
        assert drain(QueueReader(store, SPEC.name, group, clock=store.clock)) == [0]


def test_a_new_group_begins_where_it_is_told() -> None:
    store = with_channel()
    frontier(store).put([message(0), message(1, 60_000)])
    assert drain(QueueReader(store, SPEC.name, "g", clock=store.clock, start_ms=NOW_MS + 60_000)) == [1]


@pytest.mark.parametrize("kind", ["memory", "file", "s3"])
def test_several_threads_get_each_message_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    clock = ManualClock(NOW_MS)
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3")
        store: ObjectStore = open_store(server.new_url(), server.options)
    else:
        store = open_store(f"memory://queue-{os.getpid()}" if kind == "memory" else f"file://{tmp_path}")
    create_channel(store, SPEC)
    count, workers = {"memory": (200, 4), "file": (40, 4), "s3": (8, 2)}[
        kind
    ]  # SeaweedFS takes a second for some races
    Frontier(store, SMALL, PUBLISHER, clock.now_ms).put([message(number) for number in range(count)])

    def work(number: int) -> list[int]:
        return drain(QueueReader(store, SPEC.name, "group", f"worker {number}", clock=clock))

    with ThreadPoolExecutor(workers) as threads:
        taken = list(threads.map(work, range(workers)))
    assert Counter(chain.from_iterable(taken)) == Counter(range(count))


def test_readers_that_die_leave_their_messages_to_others() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(number) for number in range(20)])
    taken: list[int] = []
    for life in range(50):
        reader = worker(store, f"life {life}", 1_000)
        leased = reader.take()
        if leased is not None and life % 3 == 0:
            taken += sequences(leased)
            assert reader.done(leased)
        store.clock.advance(400)  # the others die with their lease
    store.clock.advance(1_000)
    taken += drain(worker(store, "last"))
    assert sorted(taken) == list(range(20))


def test_late_objects_are_dealt_with_also_behind_what_is_done() -> None:
    store = with_channel()
    publisher, outage = frontier(store, SMALL), frontier(store, SMALL, "f" * 16)
    reader = worker(store, "one")
    for second in range(300):
        store.clock.advance(1_000)
        publisher.put([message(second, 1_000 * second)])
        assert drain(reader) == [second]
    outage.put([message(1_000, 5_000)])
    fresh = worker(store, "fresh")  # begins where the group is
    before = replace(store.requests)
    assert drain(fresh) == [1_000]
    assert store.requests.gets - before.gets < 20, "the group's past is not read again"
    store.clock.advance(SPEC.grace_ms)
    assert (drain(reader), drain(worker(store, "last"))) == ([], [])


def test_an_object_that_comes_within_the_grace_is_found() -> None:
    store = with_channel()
    reader = worker(store, "one")
    frontier(store, SMALL).put([message(0)])
    assert drain(reader) == [0]
    for second in range(1, 4):
        store.clock.advance(5_000)
        assert drain(reader) == []
        frontier(store, publisher=f"{second:016x}").put([message(second)])
        assert drain(reader) == [second]


def test_an_idle_reader_lists_only_what_is_not_done() -> None:
    store = with_channel()
    publisher = frontier(store, SMALL)
    reader = worker(store, "one")
    for second in range(2_000):
        store.clock.advance(1_000)
        publisher.put([message(second, 1_000 * second)])
        if second % 100 == 99:
            assert len(drain(reader)) == 100
    before = replace(store.requests)
    assert reader.take() is None
    assert store.requests.lists - before.lists <= 3


def test_a_lease_whose_answer_was_lost_is_still_ours() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(0)])
    reader = worker(store, "one")
    original = store._put

    def put_twice(key: str, parts: list[bytes], only_new: bool) -> None:
        """What a client does that tries again after it heard nothing."""
        store._put = original  # type: ignore[method-assign]
        original(key, parts, only_new)
        original(key, parts, only_new)

    store._put = put_twice  # type: ignore[method-assign,assignment]
    assert sequences(reader.take()) == [0]


def test_an_object_that_retention_took_is_passed_over() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(0), message(1)])
    reader = worker(store, "one")
    assert sequences(reader.take()) == [0]
    del store.objects[store.slice_keys()[1]]
    assert reader.take() is None


def test_a_store_that_is_away_is_told_and_nothing_is_lost() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(0), message(1)])
    reader = worker(store, "one", 1_000)
    store.fail_at(1, after=True)  # how far the group is, then the lease
    with pytest.raises(StoreUnavailableError):
        reader.take()
    store.heal()
    assert drain(reader) == [1], "the lease of the first is in the store, whoever has it"
    store.clock.advance(1_000)
    assert drain(reader) == [0]


def test_what_is_no_lease_is_taken_as_run_out() -> None:
    store = with_channel()
    frontier(store, SMALL).put([message(0)])
    place = store.slice_keys()[0].partition("/")[2]
    store.put(f"{queue_prefix(SPEC.name, 'group')}{place}/00000", b"not JSON")
    assert drain(worker(store, "one")) == [0]


@pytest.mark.parametrize(("group", "lease_ms", "said"), [("a/b", 1, "group 'a/b'"), ("g", 0, "at least a millisecond")])
def test_wrong_arguments_are_refused(group: str, lease_ms: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        QueueReader(with_channel(), SPEC.name, group, "me", lease_ms)
