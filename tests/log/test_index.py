"""Sparse indexes: Kafka's bytes, lookups against a naive model, the cache's bound, lookups while entries come in."""

from __future__ import annotations

import struct
from array import array
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.disk.errors import DiskError
from odradek.disk.memory import MemoryDisk
from odradek.log.index import TAIL_ENTRIES_MAX, Entries, IndexCache, OffsetIndex, SparseIndex, TimeIndex

BASE_TIME = 1_700_000_000_000


def empty_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("d")
    return disk


def offset_index(disk: MemoryDisk, *, cache: IndexCache | None = None, name: str = "a.index") -> OffsetIndex:
    """The index in a file, as a process that has just begun sees it."""
    data = disk.read_file(f"d/{name}") or b""
    return OffsetIndex(disk, cache or IndexCache(1 << 20), f"d/{name}", len(data))


def time_index(disk: MemoryDisk, *, cache: IndexCache | None = None, name: str = "a.timeindex") -> TimeIndex:
    data = disk.read_file(f"d/{name}") or b""
    return TimeIndex(disk, cache or IndexCache(1 << 20), f"d/{name}", len(data))


def rising(draw: st.DrawFn, count: int, gap_max: int) -> list[int]:
    gaps = draw(st.lists(st.integers(1, gap_max), min_size=count, max_size=count))
    return [sum(gaps[: number + 1]) for number in range(count)]


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Pairs that rise on both sides."""
    count = draw(st.integers(0, 12))
    return list(zip(rising(draw, count, 9), rising(draw, count, 500), strict=True))


def fill(index: SparseIndex, pairs: list[tuple[int, int]], written: int) -> None:
    """Add entries; the first `written` of them go to the file, the others stay in memory."""
    for number, (key, value) in enumerate(pairs):
        if number == written:
            index.write_out()
        index.append(key, value)
    if written >= len(pairs):
        index.write_out()


# The files.


def test_the_offset_index_has_kafkas_eight_bytes_an_entry() -> None:
    disk = empty_disk()
    fill(offset_index(disk), [(9, 4096), (2**31 - 1, 2**31 - 2)], 2)
    assert disk.read_file("d/a.index") == struct.pack(">iiii", 9, 4096, 2**31 - 1, 2**31 - 2)


def test_the_time_index_has_kafkas_twelve_bytes_an_entry() -> None:
    disk = empty_disk()
    fill(time_index(disk), [(BASE_TIME, 9), (2**62, 2**31 - 1)], 2)
    assert disk.read_file("d/a.timeindex") == struct.pack(">qiqi", BASE_TIME, 9, 2**62, 2**31 - 1)


@given(entries(), st.integers(0, 12))
def test_what_was_written_out_is_there_for_the_next_process(pairs: list[tuple[int, int]], written: int) -> None:
    for make in (offset_index, time_index):
        disk = empty_disk()
        index: SparseIndex = make(disk)
        fill(index, pairs, written)
        assert len(index) == len(pairs) and index.size_bytes == len(pairs) * index.entry_bytes
        assert index.last() == (pairs[-1] if pairs else None)
        again = make(disk)
        loaded = again.entries()
        assert loaded is not None
        assert list(zip(loaded.keys, loaded.values, strict=True)) == pairs[:written]
        assert again.last() == (pairs[:written][-1] if pairs[:written] else None)


def test_entries_are_written_out_in_blocks_and_nothing_before() -> None:
    disk = empty_disk()
    index = offset_index(disk)
    for number in range(TAIL_ENTRIES_MAX - 1):
        index.append(number, number * 10)
    assert not disk.exists("d/a.index")
    index.append(TAIL_ENTRIES_MAX - 1, 10 * (TAIL_ENTRIES_MAX - 1))
    assert len(disk.read_file("d/a.index") or b"") == 8 * TAIL_ENTRIES_MAX
    assert index.written == TAIL_ENTRIES_MAX and not index.tail.keys
    for number in range(TAIL_ENTRIES_MAX, 2 * TAIL_ENTRIES_MAX + 5):
        index.append(number, number * 10)
    assert index.written == 2 * TAIL_ENTRIES_MAX and len(index) == index.written + 5
    for number in (0, TAIL_ENTRIES_MAX - 1, TAIL_ENTRIES_MAX, 2 * TAIL_ENTRIES_MAX, 2 * TAIL_ENTRIES_MAX + 4):
        assert index.floor(number) == (number, number * 10)


def test_a_file_that_ends_inside_an_entry_goes_on_behind_the_last_whole_one() -> None:
    disk = empty_disk()
    fill(offset_index(disk), [(1, 10), (2, 20)], 2)
    disk.open("d/a.index").append(b"\x00\x00\x00")
    index = offset_index(disk)
    assert len(index) == 2 and index.last() == (2, 20) and index.floor(5) == (2, 20)
    index.append(3, 30)
    index.write_out()
    assert disk.read_file("d/a.index") == struct.pack(">IIIIII", 1, 10, 2, 20, 3, 30)


@given(entries(), st.integers(0, 12), st.integers(0, 14))
def test_a_cut_keeps_the_first_entries_wherever_they_are(
    pairs: list[tuple[int, int]], written: int, count: int
) -> None:
    disk = empty_disk()
    index = offset_index(disk)
    fill(index, pairs, written)
    index.floor(0)
    index.cut(count)
    left = pairs[:count]
    assert len(index) == len(left) and index.last() == (left[-1] if left else None)
    for key in range(0, 120, 3):
        assert index.floor(key) == naive_floor(left, key)
    index.append(1000, 100_000)
    index.write_out()
    assert disk.read_file("d/a.index") == b"".join(struct.pack(">II", *pair) for pair in [*left, (1000, 100_000)])


def test_clearing_begins_anew() -> None:
    disk = empty_disk()
    index = offset_index(disk)
    fill(index, [(1, 10), (2, 20), (3, 30)], 2)
    assert index.floor(9) == (3, 30)
    index.clear()
    assert len(index) == 0 and index.last() is None and index.floor(9) == (-1, 0)
    assert disk.read_file("d/a.index") == b""
    index.append(5, 50)
    index.write_out()
    assert disk.read_file("d/a.index") == struct.pack(">II", 5, 50)


def test_deleting_removes_the_file() -> None:
    disk = empty_disk()
    index = offset_index(disk)
    fill(index, [(1, 10)], 1)
    index.delete()
    assert not disk.exists("d/a.index")


def test_syncing_what_was_never_written_out_is_fine_and_other_failures_are_not() -> None:
    disk = empty_disk()
    index = offset_index(disk)
    index.sync()
    fill(index, [(1, 10)], 1)
    disk.fail_next("flush", 5)
    with pytest.raises(DiskError, match=r"cannot flush d/a\.index"):
        index.sync()


# Looking up.


def naive_floor(pairs: list[tuple[int, int]], key: int) -> tuple[int, int]:
    return max((pair for pair in pairs if pair[0] <= key), default=(-1, 0))


@given(entries(), st.integers(0, 12), st.booleans())
def test_offsets_are_found_as_in_a_naive_list(pairs: list[tuple[int, int]], written: int, restart: bool) -> None:
    disk = empty_disk()
    index = offset_index(disk)
    fill(index, pairs, written)
    if restart:
        index, pairs = offset_index(disk), pairs[:written]
    for key in range(-2, 120):
        assert index.floor(key) == naive_floor(pairs, key)
    for position in {-1, 0, *(value + near for _, value in pairs for near in (-1, 0, 1))}:
        assert index.floor_position(position) == max((p for p in pairs if p[1] <= position), default=(-1, 0))
        assert index.count_before_position(position) == sum(value < position for _, value in pairs)


@given(entries(), st.integers(0, 12), st.booleans())
def test_times_are_found_as_in_a_naive_list(pairs: list[tuple[int, int]], written: int, restart: bool) -> None:
    pairs = [(BASE_TIME + key, value) for key, value in pairs]
    disk = empty_disk()
    index = time_index(disk)
    fill(index, pairs, written)
    if restart:
        index, pairs = time_index(disk), pairs[:written]
    for time in range(BASE_TIME - 2, BASE_TIME + 120):
        assert index.before(time) == max((pair for pair in pairs if pair[0] < time), default=None)
    for offset in {0, *(value + near for _, value in pairs for near in (-1, 0, 1))}:
        assert index.count_below_offset(offset) == sum(value < offset for _, value in pairs)


def test_without_waiting_only_what_is_loaded_is_asked() -> None:
    disk = empty_disk()
    fill(offset_index(disk), [(1, 10), (5, 50)], 2)
    index = offset_index(disk)
    index.append(9, 90)
    assert index.floor(9, nowait=True) == (9, 90), "the newest entries are in memory"
    assert index.floor(5, nowait=True) is None
    assert index.floor_position(50, nowait=True) == (-1, 0)
    assert index.floor(5) == (5, 50)
    assert index.floor(5, nowait=True) == (5, 50)
    index.forget()
    assert index.floor(5, nowait=True) is None
    assert offset_index(empty_disk()).floor(5, nowait=True) == (-1, 0), "an index without entries is known"


def test_a_file_that_has_become_shorter_is_no_reason_to_fail() -> None:
    disk = empty_disk()
    fill(offset_index(disk), [(1, 10), (5, 50), (9, 90)], 3)
    index = offset_index(disk)
    disk.open("d/a.index").truncate(8)
    assert index.floor(9) == (1, 10)
    disk.remove("d/a.index")
    assert offset_index(disk).floor(9) == (-1, 0)


# The cache.


def cached_indexes(cache: IndexCache, disk: MemoryDisk, count: int, size: int) -> list[OffsetIndex]:
    indexes = []
    for number in range(count):
        fill(offset_index(disk, name=f"{number}.index"), [(key, 10 * key) for key in range(size)], size)
        indexes.append(offset_index(disk, cache=cache, name=f"{number}.index"))
    return indexes


def test_the_cache_stays_within_its_bytes_and_forgets_what_was_not_used() -> None:
    cache, disk = IndexCache(5 * 800), empty_disk()
    indexes = cached_indexes(cache, disk, 20, 100)
    for index in indexes:
        assert index.floor(50) == (50, 500)
        assert indexes[0].floor(50, nowait=True) == (50, 500), "it is used all the time"
        assert cache.bytes_used <= cache.bytes_max
    assert cache.bytes_used == 5 * 800
    loaded = [number for number, index in enumerate(indexes) if index.floor(1, nowait=True) is not None]
    assert loaded == [0, 16, 17, 18, 19]
    for index in indexes:
        index.forget()
    assert cache.bytes_used == 0


def test_one_index_may_be_larger_than_the_whole_cache_but_only_one() -> None:
    cache, disk = IndexCache(1000), empty_disk()
    first, second = cached_indexes(cache, disk, 2, 500)
    for _ in range(3):
        for index in (first, second):
            assert index.floor(77) == (77, 770)
            assert cache.bytes_used == 4000


def test_what_is_counted_is_what_grows_with_the_index() -> None:
    cache, disk = IndexCache(1 << 20), empty_disk()
    index = offset_index(disk, cache=cache)
    fill(index, [(1, 10), (2, 20)], 2)
    index.floor(1)
    assert cache.bytes_used == 16
    index.append(3, 30)
    index.write_out()
    assert cache.bytes_used == 24 and index.floor(2, nowait=True) == (2, 20)
    times = time_index(disk, cache=cache)
    fill(times, [(BASE_TIME, 1)], 1)
    times.before(BASE_TIME + 1)
    assert cache.bytes_used == 24 + 12
    index.delete()
    times.forget()
    assert cache.bytes_used == 0


# Other threads.


def test_a_thread_finds_what_was_entered_while_more_comes_in() -> None:
    disk, cache = empty_disk(), IndexCache(100_000)
    index = offset_index(disk, cache=cache)
    entered, stop, wrong = [-1], Event(), list[object]()

    def look_up() -> None:
        step = 0
        while not stop.is_set() and not wrong:
            step = (step * 31 + 7) % 1_000_003
            known = entered[0]
            if known < 0:
                continue
            key = step % (known + 1)
            found = index.floor(key)
            # While a block is written out an earlier entry may be found: never a later one, never a wrong position.
            if found is None or found[0] > key or (found[0] >= 0 and found[1] != 10 * found[0]):
                wrong.append((key, found))

    thread = Thread(target=look_up)
    thread.start()
    for number in range(6 * TAIL_ENTRIES_MAX):
        index.append(number, number * 10)
        entered[0] = number
    stop.set()
    thread.join()
    assert wrong == []
    assert index.floor(5 * TAIL_ENTRIES_MAX) == (5 * TAIL_ENTRIES_MAX, 50 * TAIL_ENTRIES_MAX)


def test_an_entry_is_seen_whole_or_not_at_all() -> None:
    index = offset_index(empty_disk())

    class Interrupted(array):  # type: ignore[type-arg]
        """Another thread looks up right behind each append."""

        def append(self, number: int) -> None:
            super().append(number)
            assert index.floor(7) in ((-1, 0), (7, 70))

    index.tail = Entries(Interrupted("I"), Interrupted("I"))
    index.append(7, 70)
    assert index.floor(7) == (7, 70)


def test_entries_that_are_cut_off_while_a_thread_loads_them_do_not_come_back() -> None:
    disk = empty_disk()
    fill(offset_index(disk), [(1, 10), (5, 50), (9, 90)], 3)
    index = offset_index(disk)
    decode = OffsetIndex._decode

    class Interrupted(OffsetIndex):
        """The owner cuts the index right behind the read."""

        def _decode(self, data: bytes) -> Entries:
            if self.written == 3:
                self.cut(1)
            return decode(self, data)

    index = Interrupted(disk, IndexCache(1 << 20), "d/a.index", 24)
    index.floor(9)
    assert index.floor(9) == (1, 10)
