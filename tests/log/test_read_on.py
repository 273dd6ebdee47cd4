"""A reader that goes on where a read ended: it needs no look at the index, and is never led astray by what it knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.backends.file_segment import FileSegment
from odradek.log.index import OffsetIndex
from odradek.log.segment import Chunk
from tests.log.support import BASE, SegmentOnDisk, Stored, agrees, put, stored


def _row(first: int, count: int, size: int) -> list[Stored]:
    return [stored(first + number, size=size) for number in range(count)]


def _read(segment: FileSegment, offset: int, max_bytes: int, *, nowait: bool = False) -> Chunk:
    chunk = segment.read(offset, max_bytes, segment.next_offset, nowait=nowait)
    assert chunk is not None
    return chunk


@pytest.mark.parametrize("nowait", [True, False])
def test_who_goes_on_where_a_read_ended_does_not_ask_the_index(monkeypatch: pytest.MonkeyPatch, nowait: bool) -> None:
    batches = [*_row(BASE, 20, 3000), stored(BASE + 20, size=50_000)]
    segment = SegmentOnDisk(batches).segment
    floor, asked = OffsetIndex.floor, list[int]()

    def counted(self: OffsetIndex, relative_offset: int, *, nowait: bool = False) -> tuple[int, int] | None:
        asked.append(relative_offset)
        return floor(self, relative_offset, nowait=nowait)

    monkeypatch.setattr(OffsetIndex, "floor", counted)
    offset = BASE
    while offset < segment.next_offset:
        chunk = _read(segment, offset, 10_000, nowait=nowait)
        agrees(chunk, batches, offset, 10_000, segment.next_offset)
        offset = chunk.next_offset
    assert not _read(segment, offset, 10_000, nowait=nowait).data
    more = stored(offset, size=70)
    put(segment, more)
    assert bytes(_read(segment, offset, 10_000, nowait=nowait).data) == more.data
    assert asked == [0], "only the first read had to look"


def test_what_an_earlier_process_left_is_checked_also_behind_what_was_read() -> None:
    batches = _row(BASE, 6, 5000)
    on_disk = SegmentOnDisk(batches)
    segment = on_disk.next_process()
    _read(segment, BASE, 11_000)  # checks two of them
    _read(segment, BASE, 5000)
    ended_at = _read(segment, BASE + 1, 1).next_offset
    assert ended_at == BASE + 2
    assert segment.read(ended_at, 11_000, BASE + 6, nowait=True) is None, "not checked yet"
    agrees(segment.read(ended_at, 11_000, BASE + 6), batches, ended_at, 11_000, BASE + 6)


@pytest.mark.parametrize("interval", [1, 300, 4096])
@pytest.mark.parametrize("max_bytes", [1, 900, 2500, 1 << 20])
def test_few_batches_are_walked_over_and_many_are_jumped_over_with_the_same_result(
    interval: int, max_bytes: int
) -> None:
    batches = _row(BASE, 30, 60)
    segment = SegmentOnDisk(batches, index_interval_bytes=interval).segment
    for upto in range(BASE, BASE + 31):
        for offset in (BASE, BASE + 7, BASE + 29):
            agrees(segment.read(offset, max_bytes, upto), batches, offset, max_bytes, upto)


@given(st.data())
def test_readers_that_go_on_agree_with_a_list_while_it_grows_and_is_cut(data: st.DataObject) -> None:
    sizes = st.sampled_from((1, 60, 500, 5000))
    on_disk = SegmentOnDisk(_row(BASE, 5, data.draw(sizes)), index_interval_bytes=data.draw(st.sampled_from((1, 1000))))
    segment, batches = on_disk.segment, on_disk.batches
    readers = [BASE, BASE + 2]
    for _ in range(12):
        step = data.draw(st.sampled_from(("read", "read", "append", "cut")))
        if step == "append":
            put(segment, *(more := _row(segment.next_offset, data.draw(st.integers(1, 12)), data.draw(sizes))))
            batches += more
        elif step == "cut":
            end = data.draw(st.integers(BASE, segment.next_offset))
            segment.truncate(end)
            batches[:] = [one for one in batches if one.last < end]
        else:
            number, max_bytes = data.draw(st.integers(0, 1)), data.draw(st.sampled_from((1, 200, 6000)))
            offset = min(readers[number], segment.next_offset)
            chunk = segment.read(offset, max_bytes, segment.next_offset)
            agrees(chunk, batches, offset, max_bytes, segment.next_offset)
            assert chunk is not None
            readers[number] = chunk.next_offset


def test_where_a_read_ended_is_void_when_the_segment_was_cut_meanwhile() -> None:
    before, after = _row(BASE, 4, 200), _row(BASE + 1, 3, 90)
    segment = SegmentOnDisk(before).segment
    file = segment.file

    class CutAfterwards:
        path = file.path

        def read(self, length: int, at: int) -> bytes:
            data = file.read(length, at)
            segment.file = file
            segment.truncate(BASE + 1)  # what the log's owner does while this thread has just read
            put(segment, *after)
            return data

    segment.file = CutAfterwards()  # type: ignore[assignment]
    ended_at = _read(segment, BASE, 600).next_offset
    assert ended_at == BASE + 2, "two of the old ones"
    agrees(segment.read(ended_at, 600, BASE + 4), [before[0], *after], ended_at, 600, BASE + 4)
