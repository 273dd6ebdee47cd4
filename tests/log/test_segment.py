"""One segment in files: every way to read it, what damage does to it, how it is cut, held and deleted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.disk.interface import Buffer
from odradek.log.backends.file_indexes import SegmentIndexes
from odradek.log.backends.file_segment import FileSegment, segment_path
from odradek.log.errors import DamagedLogError
from odradek.log.segment import Chunk, EndOfSegment
from odradek.records.header import iter_headers
from tests.log.support import (
    BASE,
    START_MS,
    LogOnDisk,
    SegmentOnDisk,
    Stored,
    agrees,
    batch,
    log_with_a_wrong_bit,
    put,
    read_everything,
    some_batches,
    stored,
    takes,
)

LOG, INDEX, TIME_INDEX = (segment_path("d", BASE, kind) for kind in (".log", ".index", ".timeindex"))

intervals = st.sampled_from((0, 1, 100, 500, 4096, 2**31 - 1))
WAYS = ("same process", "next process, sealed", "next process, active")

# Reading.


@given(some_batches(), intervals, st.sampled_from(WAYS), st.booleans(), st.data())
def test_a_read_gives_what_a_naive_list_gives(
    batches: list[Stored], interval: int, way: str, together: bool, data: st.DataObject
) -> None:
    on_disk = SegmentOnDisk(batches, together=together, index_interval_bytes=interval)
    segment = on_disk.segment
    if way != "same process":
        segment = on_disk.next_process(seal=way.endswith("sealed"))
    end = segment.next_offset
    for _ in range(10):
        offset = data.draw(st.integers(BASE - 1, end + 2), "offset")
        max_bytes = data.draw(st.sampled_from((0, 1, 100, 200, 500, 1000, 1 << 20)), "max_bytes")
        upto = data.draw(st.integers(BASE, end + 1), "upto")
        if data.draw(st.booleans(), "nowait"):
            chunk = segment.read(offset, max_bytes, upto, nowait=True)
            if chunk is None:
                before = sum(len(one.data) for one in batches if one.last < offset)
                assert way != "same process" or before > max_bytes, "it is known to be good, and not far to walk to"
                continue
        else:
            chunk = segment.read(offset, max_bytes, upto)
        agrees(chunk, batches, offset, max_bytes, upto)


def test_a_batch_larger_than_asked_for_comes_whole_and_alone() -> None:
    batches = [stored(BASE), stored(BASE + 1, size=5000), stored(BASE + 2)]
    for seal in (None, True, False):
        on_disk = SegmentOnDisk(batches)
        segment = on_disk.segment if seal is None else on_disk.next_process(seal=seal)
        chunk = segment.read(BASE + 1, 10, BASE + 3)
        assert chunk is not None and bytes(chunk.data) == batches[1].data
        assert (chunk.base_offset, chunk.next_offset) == (BASE + 1, BASE + 2)


def test_what_an_earlier_process_left_is_not_read_without_waiting_until_it_was_checked() -> None:
    batches = [stored(BASE + number) for number in range(4)]
    segment = SegmentOnDisk(batches).next_process()
    assert segment.read(BASE, 1 << 20, BASE + 4, nowait=True) is None
    agrees(segment.read(BASE, 1 << 20, BASE + 4), batches, BASE, 1 << 20, BASE + 4)
    agrees(segment.read(BASE, 1 << 20, BASE + 4, nowait=True), batches, BASE, 1 << 20, BASE + 4)


def test_a_reader_of_old_batches_does_not_slow_down_those_at_the_end() -> None:
    batches = [stored(BASE + number, size=5000) for number in range(10)]
    segment = SegmentOnDisk(batches).next_process(seal=False)
    segment.read(BASE, 20_000, BASE + 10)
    fresh = stored(BASE + 10)
    put(segment, fresh)
    agrees(segment.read(BASE + 10, 1, BASE + 11, nowait=True), [fresh], BASE + 10, 1, BASE + 11)


def test_what_stands_between_the_index_entry_and_the_batch_may_be_taken_off_what_was_asked_for() -> None:
    batches = [stored(BASE, size=9_000), *(stored(BASE + 1 + 2 * number, 2, size=400) for number in range(20))]
    segment, offset = SegmentOnDisk(batches).segment, BASE + 1
    chunk = segment.read(offset, 6_000, BASE + 41)
    assert chunk is not None and len(batches[1].data) <= len(chunk.data) < 5_000, "less, but at least one batch"
    seen = b""
    while (chunk := segment.read(offset, 6_000, BASE + 41)) is not None and chunk.data:
        assert chunk.base_offset == offset
        seen, offset = seen + bytes(chunk.data), chunk.next_offset
    assert seen == b"".join(one.data for one in batches[1:])


@pytest.mark.parametrize("size", [10, 5_000])
def test_one_who_waits_at_the_end_is_told_at_once_that_there_is_nothing(size: int) -> None:
    batches = [stored(BASE + number, size=size) for number in range(10)]
    segment = SegmentOnDisk(batches).segment
    chunk = segment.read(BASE + 10, 1 << 20, BASE + 10, nowait=True)
    assert chunk is not None and not chunk.data


def test_a_batch_larger_than_asked_for_and_one_at_the_limit_do_not_make_the_index_look_wrong() -> None:
    batches = [stored(BASE + number, size=300) for number in range(6)]
    segment = SegmentOnDisk(batches, index_interval_bytes=0).next_process()
    agrees(segment.read(BASE + 3, 1, BASE + 6), batches, BASE + 3, 1, BASE + 6)
    agrees(segment.read(BASE + 3, 1 << 20, BASE + 3), batches, BASE + 3, 1 << 20, BASE + 3)
    assert not segment.rebuilt


def test_a_large_index_interval_does_not_make_small_reads_large() -> None:
    on_disk = SegmentOnDisk([stored(BASE + n, size=10_000) for n in range(100)], index_interval_bytes=2**31 - 1)
    segment, reads = on_disk.segment, list[int]()
    file = segment.file

    class Noting:
        path = file.path

        def read(self, length: int, at: int) -> bytes:
            reads.append(length)
            return file.read(length, at)

    segment.file = Noting()  # type: ignore[assignment]
    segment.read(BASE, 1, BASE + 100)
    assert sum(reads) < 200_000


def test_the_headers_can_be_walked_from_any_offset() -> None:
    batches = [stored(BASE + 3 * number, 2, size=100) for number in range(20)]
    for seal in (None, True, False):
        on_disk = SegmentOnDisk(batches, index_interval_bytes=500)
        segment = on_disk.segment if seal is None else on_disk.next_process(seal=seal)
        for offset in range(BASE, BASE + 62):
            walked = [placed.header.base_offset for placed in segment.batches(offset)]
            assert walked == [one.base for one in batches if one.last >= offset]


# Appending.


@pytest.mark.parametrize("many", [False, True])
def test_a_segment_refuses_what_does_not_fit(many: bool) -> None:
    one, limits = [stored(BASE, size=500)], {"segment_bytes": 1024, "segment_ms": 100}
    left, last = 1024 - len(one[0].data), BASE + 2
    assert takes(one, left, last, many=many, **limits)
    assert not takes(one, left + 1, last, many=many, **limits)
    assert takes(one, 9, BASE + 2**31 - 1, many=many, **limits)
    assert not takes(one, 9, BASE + 2**31, many=many, **limits)
    assert takes(one, 9, last, START_MS + 100, many=many, **limits)
    assert not takes(one, 9, last, START_MS + 101, many=many, **limits)
    assert takes(one, 9, last, -1, many=many, **limits), "a record without a time is not late"
    two = [stored(BASE), stored(BASE + 1)]
    assert not takes(two, 9, last, many=many, index_interval_bytes=0, segment_index_bytes=24), "its index is full"
    assert takes(two, 9, last, many=many, index_interval_bytes=0, segment_index_bytes=36)


@pytest.mark.parametrize("many", [False, True])
def test_an_empty_segment_takes_a_batch_of_any_size_but_none_that_no_index_entry_can_hold(many: bool) -> None:
    # Several together that do not fit go one by one, each into a segment of its own if it must.
    assert takes([], 1 << 20, BASE + 2, many=many, segment_bytes=1024) is not many
    assert takes([], 9, BASE + 2**31 - 1, many=many)
    assert not takes([], 9, BASE + 2**31, many=many)


@pytest.mark.parametrize("together", [False, True])
def test_the_farthest_batch_that_is_taken_can_be_indexed_and_read(together: bool) -> None:
    batches = [stored(BASE), stored(BASE + 2**31 - 1)]
    on_disk = SegmentOnDisk(batches, together=together, index_interval_bytes=0)
    for segment in (on_disk.segment, on_disk.next_process()):
        chunk = segment.read(BASE + 2**31 - 1, 1, 1 << 40)
        assert chunk is not None and bytes(chunk.data) == batches[1].data


@given(some_batches(), st.sampled_from((0, 100, 500, 4096)))
def test_an_entry_is_made_whenever_enough_bytes_have_come(batches: list[Stored], interval: int) -> None:
    on_disk = SegmentOnDisk(batches, index_interval_bytes=interval)
    on_disk.segment.seal()
    entries, position, indexed = [], 0, 0
    for one in batches:
        if position - indexed >= interval:
            entries.append((one.last - BASE, position))
            indexed = position
        position += len(one.data)
    found = on_disk.segment.indexes.offsets.entries()
    assert found is not None and list(zip(found.keys, found.values, strict=True)) == entries


@pytest.mark.parametrize("together", [True, False])
def test_a_read_in_the_middle_of_an_append_gives_nothing_beyond_its_limit(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [stored(BASE + number) for number in range(3)]
    on_disk = SegmentOnDisk(before, index_interval_bytes=1)
    segment, note, chunks = on_disk.segment, SegmentIndexes.note, list[Chunk | None]()

    def interrupted(self: SegmentIndexes, position: int, last_offset: int, timestamp: int) -> None:
        note(self, position, last_offset, timestamp)
        chunks.append(segment.read(BASE, 1 << 20, BASE + 3))  # what another thread would read just now

    monkeypatch.setattr(SegmentIndexes, "note", interrupted)
    more = [stored(BASE + 3 + number) for number in range(3)]
    if together:
        put(segment, *more)
    else:
        for one in more:
            put(segment, one)
    assert len(chunks) == 3
    for chunk in chunks:
        agrees(chunk, before + more, BASE, 1 << 20, BASE + 3)


def test_a_read_of_the_end_in_the_middle_of_an_append_finds_nothing_without_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_disk = SegmentOnDisk([stored(BASE + number, size=600_000) for number in range(3)])
    segment, floor = on_disk.segment, type(on_disk.segment.indexes.offsets).floor
    pending = [stored(BASE + 3)]

    def interrupted(self: object, relative_offset: int, *, nowait: bool = False) -> tuple[int, int] | None:
        if pending:
            one = pending.pop()
            put(segment, one)
        return floor(segment.indexes.offsets, relative_offset, nowait=nowait)

    monkeypatch.setattr(type(segment.indexes.offsets), "floor", interrupted)
    chunk = segment.read(BASE + 3, 1 << 20, BASE + 3)
    assert chunk is not None and not chunk.data


class EndlessLoopError(AssertionError):
    """Somebody reads the same bytes again and again."""


@pytest.mark.parametrize("left", [0, 30, 100])
def test_a_read_ends_with_an_error_when_the_file_is_cut_meanwhile(left: int) -> None:
    batches = [stored(BASE + number) for number in range(4)]
    segment = SegmentOnDisk(batches).segment
    file, reads = segment.file, list[int]()

    class CutMeanwhile:
        path = file.path

        def read(self, length: int, at: int) -> bytes:
            file.truncate(len(batches[0].data) + left)
            reads.append(at)
            if len(reads) > 1000:
                raise EndlessLoopError
            return file.read(length, at)

    segment.file = CutMeanwhile()  # type: ignore[assignment]
    for offset in (BASE + 1, BASE + 2):
        with pytest.raises(DamagedLogError, match=r"the file ends here|too few for a batch|is cut off"):
            segment.read(offset, 1, BASE + 4)


def all_bytes(chunk: Chunk | None) -> Buffer:
    return chunk.data if chunk is not None else b""


# Cutting.


@given(some_batches(), intervals, st.sampled_from(WAYS), st.integers(0, 60))
def test_a_cut_removes_the_batch_that_holds_the_offset_and_all_behind_it(
    batches: list[Stored], interval: int, way: str, place: int
) -> None:
    on_disk = SegmentOnDisk(batches, index_interval_bytes=interval)
    segment = on_disk.segment if way == WAYS[0] else on_disk.next_process(seal=way.endswith("sealed"))
    offset = BASE + place % max(1, segment.next_offset - BASE)
    segment.truncate(offset)
    left = [one for one in batches if one.last < offset]
    assert segment.size_bytes == sum(len(one.data) for one in left) == len(on_disk.disk.read_file(LOG) or b"")
    assert (left[-1].last + 1 if left else BASE) <= segment.next_offset <= offset
    assert segment.max_timestamp() == max((one.timestamp for one in left), default=-1)
    fresh = stored(segment.next_offset, 2, 70, START_MS + 500)
    put(segment, fresh)
    read_everything(segment, [*left, fresh])
    assert segment.max_timestamp() == START_MS + 500
    assert segment.first_timestamp() == [*left, fresh][0].timestamp
    read_everything(on_disk.next_process(), [*left, fresh], max_bytes=1 << 20)


# Time.


@given(some_batches(), intervals, st.sampled_from(WAYS))
def test_records_are_found_by_their_time(batches: list[Stored], interval: int, way: str) -> None:
    on_disk = SegmentOnDisk(batches, index_interval_bytes=interval)
    segment = on_disk.segment if way == WAYS[0] else on_disk.next_process(seal=way.endswith("sealed"))
    assert segment.max_timestamp() == max((one.timestamp for one in batches), default=-1)
    assert segment.max_timestamp(confirmed=True) == segment.max_timestamp()
    assert segment.first_timestamp() == (batches[0].timestamp if batches else -1)
    for time in {START_MS - 9, *(one.timestamp + near for one in batches for near in (-1, 0, 1))}:
        for start in (BASE, BASE + 5):
            found = segment.offset_for_timestamp(time, start)
            wanted = [
                (one.timestamp, max(one.base, start), 0)
                for one in batches
                if one.timestamp >= time and one.last >= start
            ]
            assert found == (wanted[0] if wanted else None)


# Holding and going.


@pytest.mark.parametrize("way", ["delete", "retire"])
def test_those_who_hold_a_segment_read_on_although_it_is_gone(way: str) -> None:
    batches = [stored(BASE + number, size=300) for number in range(20)]
    for seal in (None, True):
        on_disk = SegmentOnDisk(batches, index_interval_bytes=500)
        segment = on_disk.segment if seal is None else on_disk.next_process(seal=seal)
        segment.hold()
        if way == "delete":
            segment.delete()
            assert on_disk.disk.list("d") == []
        else:
            segment.retire()
        read_everything(segment, batches)
        segment.release()


def test_sealing_syncs_and_closing_is_harmless() -> None:
    on_disk = SegmentOnDisk([stored(BASE + n, size=3000) for n in range(5)])
    segment = on_disk.segment
    segment.seal()
    segment.sync(sealed=True)
    segment.close()
    segment.close()
    names = sorted(entry.name for entry in on_disk.disk.list("d"))
    assert names == sorted(path.removeprefix("d/") for path in (LOG, INDEX, TIME_INDEX))
    read_everything(segment, on_disk.batches)


def test_a_log_gives_its_batches_as_they_were_stamped() -> None:
    log = LogOnDisk().log
    log.append(batch(b"a", b"b"))
    log.append(batch(b"c"), leader_epoch=3)
    found = [(header.base_offset, header.leader_epoch) for _, header in iter_headers(all_bytes(log.read(0, 1 << 20)))]
    assert found == [(0, 0), (2, 3)]


# Damage to the indexes.

BATCHES = [stored(BASE + 2 * n, 2, 40 * (n % 5), START_MS + 10 * n - 25 * (n % 3 == 1)) for n in range(12)]


def check_all(segment: FileSegment) -> None:
    """Everything that the indexes help with is as right as without them."""
    read_everything(segment, BATCHES)
    read_everything(segment, BATCHES, max_bytes=1 << 20)
    for offset in range(BASE, BASE + 25, 3):
        assert [p.header.base_offset for p in segment.batches(offset)] == [b.base for b in BATCHES if b.last >= offset]
    for time in {one.timestamp + near for one in BATCHES for near in (0, 1)}:
        wanted = [(one.timestamp, one.base, 0) for one in BATCHES if one.timestamp >= time]
        assert segment.offset_for_timestamp(time, BASE) == (wanted[0] if wanted else None)


@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
def test_a_wrong_bit_anywhere_in_an_index_makes_no_answer_wrong(path: str, seal: bool) -> None:
    size = len(indexed_segment(seal).disk.read_file(path) or b"")
    assert size > 50
    for at in range(size):
        on_disk = indexed_segment(seal)
        on_disk.change(path, at, at % 8)
        check_all(on_disk.open(EndOfSegment(BASE + 24, on_disk.segment.size_bytes), seal=seal))


def indexed_segment(seal: bool) -> SegmentOnDisk:
    on_disk = SegmentOnDisk(BATCHES, index_interval_bytes=150)
    on_disk.next_process(seal=seal)
    return on_disk


@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("damage", ["missing", "empty", "halved", "ragged", "garbage behind", "zeros", "noise"])
def test_an_index_that_is_lost_or_another_makes_no_answer_wrong(path: str, seal: bool, damage: str) -> None:
    on_disk = indexed_segment(seal)
    disk, data = on_disk.disk, on_disk.disk.read_file(path) or b""
    replaced = {
        "empty": b"",
        "halved": data[: len(data) // 24 * 12],
        "ragged": data[:-5],
        "garbage behind": data + bytes(range(100)),
        "zeros": bytes(len(data)),
        "noise": bytes(range(7, 7 + 48)),
    }
    disk.remove(path) if damage == "missing" else disk.write_atomic(path, replaced[damage])
    check_all(on_disk.open(EndOfSegment(BASE + 24, on_disk.segment.size_bytes), seal=seal))


def test_a_time_index_that_lost_its_end_does_not_make_a_segment_older() -> None:
    on_disk = indexed_segment(seal=True)
    data = on_disk.disk.read_file(TIME_INDEX) or b""
    on_disk.disk.write_atomic(TIME_INDEX, data[:12])
    segment = on_disk.open(EndOfSegment(BASE + 24, on_disk.segment.size_bytes))
    assert segment.max_timestamp(confirmed=True) == max(one.timestamp for one in BATCHES)


@pytest.mark.parametrize("case", ["active", "deleted"])
def test_a_segment_whose_index_cannot_be_rebuilt_is_read_without_it(case: str) -> None:
    batches = [stored(BASE + number, size=300_000) for number in range(8)]
    on_disk = SegmentOnDisk(batches)
    segment = on_disk.next_process(seal=case == "deleted")
    if case == "deleted":
        segment.hold()
        segment.delete()
    else:
        size = segment.size_bytes
        on_disk.change(INDEX, 8 * 5 + 3, bit=2)  # the last entry but one claims an earlier offset
        segment = on_disk.open(EndOfSegment(BASE + 8, size), seal=False)
    agrees(segment.read(BASE + 6, 1, BASE + 8), batches, BASE + 6, 1, BASE + 8)


# Damage to the batches.


SIZE = len(batch(b"value 0"))


@pytest.mark.parametrize("interval", [0, 4096])
@pytest.mark.parametrize("first", range(5))
def test_a_wrong_bit_anywhere_in_a_batch_is_never_served_and_all_others_are(interval: int, first: int) -> None:
    for at in range(2 * SIZE, 3 * SIZE):
        segment, good = log_with_a_wrong_bit(at, interval)
        for offset in (first, *range(5)):
            if offset == 2:
                with pytest.raises(DamagedLogError):
                    segment.read(2, 1, 5)
            else:
                assert bytes(all_bytes(segment.read(offset, 1, 5))) == good[offset * SIZE : (offset + 1) * SIZE]
        assert bytes(all_bytes(segment.read(0, 1 << 20, 5))) == good[: 2 * SIZE]


def test_a_damaged_batch_behind_checked_ones_is_not_served_where_the_index_is_sparser_than_it_should_be() -> None:
    batches = [stored(BASE + number, size=100) for number in range(6)]
    on_disk = SegmentOnDisk(batches, index_interval_bytes=4096)
    segment = on_disk.next_process()
    on_disk.change(LOG, segment.size_bytes - 10)
    segment.configure(SegmentOnDisk([], index_interval_bytes=0).config)  # as an administrator may
    agrees(segment.read(BASE, 1 << 20, BASE + 5), batches, BASE, 1 << 20, BASE + 5)
    for offset in range(BASE, BASE + 5):
        agrees(segment.read(offset, 1, BASE + 6), batches, offset, 1, BASE + 6)
    try:
        chunk = segment.read(BASE + 5, 1, BASE + 6)
    except DamagedLogError:
        return
    assert bytes(all_bytes(chunk)) in (b"", batches[-1].data), "bytes that nobody wrote"


def test_what_follows_damage_comes_batch_by_batch() -> None:
    segment, good = log_with_a_wrong_bit(3 * SIZE - 1)
    for offset in (3, 4):
        assert bytes(all_bytes(segment.read(offset, 1 << 20, 5))) == good[offset * SIZE : (offset + 1) * SIZE]


@pytest.mark.parametrize("wrong", [BASE - 1, BASE + 1])
def test_a_whole_batch_whose_offsets_do_not_belong_into_the_segment_is_not_served(wrong: int) -> None:
    on_disk = SegmentOnDisk([stored(BASE)])
    on_disk.disk.overwrite(LOG, stored(wrong).data)
    segment = on_disk.next_process()
    with pytest.raises(DamagedLogError, match="do not belong here"):
        segment.read(BASE, 1, BASE + 2)


def test_a_damaged_batch_does_not_keep_a_segment_from_telling_its_age() -> None:
    on_disk = SegmentOnDisk([stored(BASE, timestamp=START_MS), stored(BASE + 1, timestamp=START_MS + 5)])
    segment = on_disk.next_process()
    on_disk.change(LOG, segment.size_bytes - 1)
    segment.max_timestamp(confirmed=True)


def test_damage_names_the_file_and_the_byte() -> None:
    on_disk = SegmentOnDisk([stored(BASE), stored(BASE + 1)])
    size = len(on_disk.batches[0].data)
    segment = on_disk.next_process()
    on_disk.change(LOG, size + 70)
    with pytest.raises(DamagedLogError, match=rf"{BASE:020d}\.log is damaged at byte {size}: .*CRC"):
        segment.read(BASE + 1, 1, BASE + 2)
