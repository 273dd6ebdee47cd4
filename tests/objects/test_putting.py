"""A retry, a crash after any PUT, other flushes, other leaders: every record is in the store once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.objects.errors import StoreUnavailableError
from odradek.objects.keys import frontier_key, publisher_hash
from odradek.objects.putting import Frontier, Job, read_checkpoint
from odradek.objects.slices import Message
from odradek.objects.spec import ChannelSpec
from tests.objects.support import NOW_MS, PUBLISHER, SPEC, TestStore, frontier, message

SMALL = replace(SPEC, slice_bytes=60)  # two or three records an object


def check_once(store: TestStore, records: list[Message]) -> None:
    """All records are there, as they were, and none is there twice."""
    found = store.messages()
    assert Counter(each.sequence for each in found) == Counter(each.sequence for each in records)
    assert sorted(found) == records


def records_of(slices: list[int]) -> list[Message]:
    """A log: one record an entry, which says its slice."""
    return [message(sequence, 1_000 * number + sequence % 1_000) for sequence, number in enumerate(slices)]


def test_two_publishers_in_one_tick_do_not_overwrite_each_other() -> None:
    store = TestStore()
    for name in ("a", "b"):
        frontier(store, publisher=publisher_hash(name)).put([message(0, value=name.encode())])
    assert sorted(each.value for each in store.messages() if each.value) == [b"a", b"b"]


def test_one_object_a_slice_and_the_checkpoint_is_read_again() -> None:
    store = TestStore()
    first = frontier(store)
    assert first.put([message(0), message(1), message(2, 1_000)]) == 2
    assert first.put([message(3, 1_000)], end=7) == 1
    assert first.save()
    assert not first.save(), "nothing has changed"
    assert frontier(store).next == 7
    assert read_checkpoint(store, SPEC, PUBLISHER) == (7, NOW_MS)


def test_a_checkpoint_that_cannot_be_read_is_none() -> None:
    store = TestStore()
    for content in (b"", b"[]", b"{}", b'{"next": null, "time": 1}'):
        store.put(frontier_key(SPEC.name, PUBLISHER), content)
        assert frontier(store).next == 0


def test_the_same_records_again_change_nothing() -> None:
    store = TestStore()
    records = records_of([0, 1, 0, 2, 2, 1, 0])
    frontier(store).put(records)
    before = dict(store.objects)
    assert frontier(store).put(records) == 0
    assert store.objects == before


def test_the_store_fails_at_every_put_and_the_same_process_tries_again() -> None:
    """Before or after it took the object, at each of the PUTs of a flush; then twice in a row."""
    records = records_of([0, 1, 0, 2, 2, 1, 0, 0, 0, 1, 1, 2] * 2)
    for after in (False, True):
        for number in range(12):
            store = TestStore()
            uploading = frontier(store, SMALL)
            for again in (number, 1):
                store.fail_at(again, after=after)
                try:
                    uploading.put(records)
                except StoreUnavailableError:
                    assert uploading.next == 0
            store.heal()
            uploading.put(records)
            check_once(store, records)
            assert uploading.next == len(records)


def test_a_crash_at_every_put_and_a_restart_with_any_other_flush() -> None:
    """Exhaustive: where it crashed, before or after the store took the object, and how far the next flush goes."""
    records = records_of([0, 1, 0, 2, 2, 1, 0, 0, 1, 2])
    for number in range(8):
        for after in (False, True):
            for length in range(1, len(records) + 1):
                store = TestStore()
                store.fail_at(number, after=after)
                crashing = frontier(store, SMALL)
                with_crash(crashing, [records[:6], records[6:]])
                store.heal()
                following = frontier(store, SMALL)
                for at in range(following.next, len(records), length):
                    following.put(records[at : at + length])
                    following.save()
                check_once(store, records)


def with_crash(crashing: Frontier, flushes: list[list[Message]]) -> None:
    try:
        for flush in flushes:
            crashing.put(flush)
            crashing.save()
    except StoreUnavailableError:
        return


class Leader:
    """One of several leaders of a partition, each with a frontier of its own, who crash and come back."""

    def __init__(self, store: TestStore, log: list[Message], spec: ChannelSpec) -> None:
        self.store, self.log, self.spec = store, log, spec
        self.frontier = frontier(store, spec)

    def flush(self, count: int, *, save: bool) -> None:
        self.frontier.put(self.log[self.frontier.next : self.frontier.next + count])
        if save:
            self.frontier.save()


crashes = st.none() | st.tuples(st.integers(0, 6), st.booleans())
rounds = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 12), st.booleans(), crashes, st.sampled_from([1, 60, 100, 10_000])),
    max_size=12,
)


@given(slices=st.lists(st.integers(0, 3), min_size=1, max_size=24), history=rounds, late=st.booleans())
def test_any_history_of_leaders_flushes_and_crashes_leaves_every_record_once(
    slices: list[int], history: list[tuple[int, int, bool, tuple[int, bool] | None, int]], late: bool
) -> None:
    """Leaders take turns at any time, so each may go on with an old frontier after others have gone further."""
    store = TestStore()
    if late:
        store.clock.advance(10_000_000)
    log = records_of(slices)
    leaders = [Leader(store, log, SPEC) for _ in range(3)]
    for which, count, save, crash, slice_bytes in history:
        leader = leaders[which]
        leader.frontier.spec = replace(SPEC, slice_bytes=slice_bytes)
        if crash is not None:
            store.fail_at(crash[0], after=crash[1])
        try:
            leader.flush(count, save=save)
        except StoreUnavailableError:
            leaders[which] = Leader(store_of(store), log, SPEC)
        store.heal()
    last = Leader(store, log, SPEC)
    while last.frontier.next < len(log):
        last.flush(5, save=True)
    check_once(store, log)
    if late:
        assert set(store.marks()) >= set(store.slice_keys()), "whoever tails finds all of them"


def store_of(store: TestStore) -> TestStore:
    store.heal()
    return store


def test_the_checkpoint_waits_where_an_object_reaches_across() -> None:
    store = TestStore()
    log = records_of([0] * 10)
    frontier(store).put(log)  # an earlier leader, which died before its checkpoint
    following = frontier(store)
    following.put(log[:4])
    assert not following.save(), "the object that holds the fourth holds the fifth, too"
    following.put(log[4:])
    assert following.save()
    check_once(store, log)


def test_two_who_upload_at_the_same_time_yield_to_each_other() -> None:
    log = records_of([number % 3 for number in range(60)])
    store = TestStore()

    def upload(length: int) -> None:
        mine = frontier(store, replace(SPEC, slice_bytes=40 * length))
        while mine.next < len(log):
            mine.put(log[mine.next : mine.next + length])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upload, [1, 3, 7, 20]))
    check_once(store, log)


def test_slices_go_in_parallel_when_there_are_threads_and_one_after_another_in_fifo() -> None:
    for fifo in (False, True):
        store = TestStore()
        counts: list[int] = []

        def run_all(jobs: list[Job], counts: list[int] = counts) -> None:
            counts.append(len(jobs))
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda job: job(), jobs))

        uploading = Frontier(store, replace(SPEC, fifo=fifo), PUBLISHER, store.clock.now_ms, run_all)
        log = records_of([0, 1, 2, 3])
        uploading.put(log)
        assert counts == ([] if fifo else [4])
        check_once(store, log)


def test_records_that_differ_from_those_stored_go_beside_them() -> None:
    store = TestStore()
    frontier(store).put([message(0, value=b"lost by the log"), message(1, value=b"this, too")])
    log = [message(0), message(1), message(2)]
    for length in (1, 2, 3):  # and to do so again changes nothing
        again = frontier(store)
        for at in range(0, 3, length):
            again.put(log[at : at + length])
    values = Counter(each.value for each in store.messages())
    assert values == Counter([b"lost by the log", b"this, too", b"value 0", b"value 1", b"value 2"])


def test_an_object_that_comes_too_late_is_marked_before_it_is_there() -> None:
    store = TestStore()
    order: list[str] = []
    store.after_put = order.append
    store.clock.advance(1_000 + SPEC.grace_ms // 2)
    frontier(store).put([message(0)])
    assert store.marks() == [], "just in time"
    store.clock.advance(1)
    frontier(store, publisher=publisher_hash("late")).put([message(0)])
    late = order[-1]
    assert store.marks() == [late]
    assert "!late" in order[-2]


def test_what_was_there_in_time_is_not_marked_by_one_who_comes_later() -> None:
    store = TestStore()
    frontier(store).put([message(0)])
    store.clock.advance(3_600_000)
    frontier(store).put([message(0), message(1, 3_600_000)])
    assert store.marks() == []


def test_a_put_that_began_in_time_and_ended_late_is_marked() -> None:
    store = TestStore()
    store.after_put = lambda key: None if "!late" in key else store.clock.advance(60_000)
    frontier(store).put([message(0)])
    assert store.marks() == store.slice_keys()


@pytest.mark.parametrize("has_mark", [False, True])
def test_a_mark_that_a_dead_publisher_did_not_write_is_written_by_the_next(has_mark: bool) -> None:
    store = TestStore()

    def die(key: str) -> None:
        store.clock.advance(60_000)
        raise StoreUnavailableError("dead")

    store.before_put = lambda key: store.clock.advance(60_000)
    if not has_mark:
        store.after_put = die
    with_crash(frontier(store), [[message(0)]])
    assert len(store.marks()) == has_mark
    store.heal()
    store.clock.advance(60_000)
    for _ in range(2):
        frontier(store).put([message(0)])
        assert store.marks() == store.slice_keys()


def test_another_upload_under_way_is_tried_again() -> None:
    store = TestStore()
    uploading = frontier(store)

    def conflict(key: str) -> None:
        from odradek.objects.errors import ObjectExistsError

        raise ObjectExistsError(f"{key} is there already")

    store.before_put = conflict
    with pytest.raises(StoreUnavailableError, match="another upload is under way; try again"):
        uploading.put([message(0)])
    store.heal()
    uploading.put([message(0)])
    check_once(store, [message(0)])


def test_nothing_to_put_is_no_request() -> None:
    store = TestStore()
    uploading = frontier(store)
    before = replace(store.requests)
    assert uploading.put([], end=5) == 0
    assert (uploading.next, store.requests) == (5, before)
