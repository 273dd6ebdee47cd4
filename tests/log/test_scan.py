"""Walking over batches: whole ones, damaged ones, and finding the way back."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.disk.interface import Buffer
from odradek.disk.memory import MemoryDisk, MemoryFile
from odradek.log import scan as scan_module
from odradek.log.errors import DamagedLogError
from odradek.log.scan import OFFSET_SPAN_MAX, Damage, next_whole_batch, scan, survey
from odradek.log.segment import Placed
from odradek.records.build import build_batch
from odradek.records.header import BatchHeader
from odradek.records.record import NewRecord

ANY_OFFSET = (-1, 1 << 63)


def file_of(*batches: Buffer) -> MemoryFile:
    disk = MemoryDisk()
    file = disk.open("a.log", create=True)
    for one in batches:
        file.append(one)
    return file


def batch_at(offset: int, count: int = 1, size: int = 50) -> bytearray:
    return build_batch([NewRecord(b"v" * size)] * count, base_offset=offset, leader_epoch=0)


def no_objection(header: BatchHeader, expected: int | None) -> str | None:
    return None


def in_order(header: BatchHeader, expected: int | None) -> str | None:
    return None if expected in (None, header.base_offset) else f"{header.base_offset} is not {expected}"


def places(found: list[Placed | Damage]) -> list[object]:
    """Offsets of batches, and where damage begins and what follows it."""
    return [
        (one.position, one.resumes.header.base_offset if one.resumes else None)
        if isinstance(one, Damage)
        else one.header.base_offset
        for one in found
    ]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 400)), max_size=12), st.integers(100, 2000))
def test_every_batch_is_found_whatever_the_blocks(shapes: list[tuple[int, int]], block_bytes: int) -> None:
    offset, batches = 10, []
    for count, size in shapes:
        batches.append(batch_at(offset, count, size))
        offset += count
    file = file_of(*batches)
    patch = pytest.MonkeyPatch()
    patch.setattr(scan_module, "BLOCK_BYTES", block_bytes)
    try:
        found = list(scan(file, 0, file.size(), in_order, 10))
    finally:
        patch.undo()
    position = 0
    for placed, one in zip(found, batches, strict=True):
        assert placed.position == position
        assert placed.header.size_bytes == len(one)
        position += len(one)


def test_a_walk_may_begin_and_end_between_any_batches() -> None:
    batches = [batch_at(offset) for offset in range(5)]
    file, size = file_of(*batches), len(batches[0])
    assert [placed.header.base_offset for placed in scan(file, size, 3 * size, in_order, 1)] == [1, 2]
    assert list(scan(file, size, size, in_order, None)) == []


@pytest.mark.parametrize("left", [1, 60, 61, 100])
def test_a_batch_that_is_cut_off_is_damage(left: int) -> None:
    file = file_of(batch_at(0), batch_at(1)[:left])
    found = list(survey(file, 0, file.size(), in_order, 0, None))
    assert places(found) == [0, (len(batch_at(0)), None)]


@pytest.mark.parametrize("crc", [True, False])
def test_the_crc_is_asked_only_if_wanted(crc: bool) -> None:
    broken = batch_at(1)
    broken[-1] ^= 1
    file = file_of(batch_at(0), broken, batch_at(2))
    found = places(list(survey(file, 0, file.size(), in_order, 0, None, crc=crc)))
    assert found == ([0, (len(broken), 2), 2] if crc else [0, 1, 2])


def test_what_the_check_objects_to_is_damage_with_its_reason() -> None:
    file = file_of(batch_at(0), batch_at(7), batch_at(2))
    found = list(survey(file, 0, file.size(), in_order, 0, None))
    assert places(found) == [0, (len(batch_at(0)), 2), 2]
    assert isinstance(found[1], Damage) and found[1].reason == "7 is not 1"
    with pytest.raises(DamagedLogError, match=f"a.log is damaged at byte {len(batch_at(0))}: 7 is not 1"):
        list(scan(file, 0, file.size(), in_order, 0))


@given(st.binary(min_size=1, max_size=300), st.integers(1, 3))
def test_whole_batches_are_found_behind_any_garbage(garbage: bytes, behind: int) -> None:
    file = file_of(batch_at(0), garbage, *(batch_at(5 + number) for number in range(behind)))
    found = places(list(survey(file, 0, file.size(), no_objection, 0, None)))
    assert found[0] == 0
    assert [one for one in found if isinstance(one, int)] == [0, *range(5, 5 + behind)]


def test_damage_in_many_places_is_met_one_by_one() -> None:
    broken = batch_at(1)
    broken[-1] ^= 1
    third = batch_at(3)
    third[16] = 9
    file = file_of(batch_at(0), broken, batch_at(2), third, batch_at(4), batch_at(5)[:-1])
    size = len(broken)
    found = places(list(survey(file, 0, file.size(), in_order, 0, None)))
    assert found == [0, (size, 2), 2, (3 * size, 4), 4, (5 * size, None)]


def test_a_batch_with_an_earlier_offset_is_not_what_follows() -> None:
    broken = batch_at(5)
    broken[-1] ^= 1
    file = file_of(batch_at(4), broken, batch_at(2), batch_at(6))
    found = places(list(survey(file, 0, file.size(), in_order, 4, None)))
    assert found == [4, (len(broken), 6), 6]


def test_a_batch_across_two_blocks_is_found_behind_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "BLOCK_BYTES", 100)
    for padding in range(1, 210):
        file = file_of(b"\x01" * padding, batch_at(3, size=500), batch_at(4))
        placed = next_whole_batch(file, 0, file.size(), no_objection, ANY_OFFSET)
        assert placed is not None
        assert (placed.position, placed.header.base_offset) == (padding, 3)


@pytest.mark.parametrize("claim", [2**30 - 12, 2**31 - 1, -1, -(2**31), 0, 48])
def test_an_absurd_length_costs_no_memory(claim: int) -> None:
    absurd = batch_at(1)
    absurd[8:12] = claim.to_bytes(4, "big", signed=True)
    file = file_of(batch_at(0), absurd, batch_at(2))
    tracemalloc.start()
    try:
        found = places(list(survey(file, 0, file.size(), in_order, 0, None)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [0, (len(absurd), 2), 2]
    assert peak < 1 << 20


def test_random_bytes_are_searched_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "BLOCK_BYTES", 4096)
    file = file_of(b"\x02" * 20_000)
    assert next_whole_batch(file, 0, file.size(), no_objection, ANY_OFFSET) is None


class Counted:
    """A file that tells after many reads that nobody gets anywhere."""

    def __init__(self, file: MemoryFile) -> None:
        self.reads = 0
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read(self, length: int, at: int) -> bytes:
        self.reads += 1
        assert self.reads < 1000, "an endless loop"
        return self._file.read(length, max(0, at))


@pytest.mark.parametrize(
    ("left", "reason"),
    [(0, "the file ends here, although it was longer"), (30, "30 bytes are too few for a batch"), (100, "is cut off")],
)
def test_a_file_that_became_shorter_ends_the_walk_with_a_word_on_it(left: int, reason: str) -> None:
    file = file_of(batch_at(0), batch_at(1), batch_at(2))
    size, end = len(batch_at(0)), file.size()
    file.truncate(size + left)
    counted = Counted(file)
    found = list(survey(counted, 0, end, in_order, 0, None))  # type: ignore[arg-type]
    assert places(found) == [0, (size, None)]
    assert isinstance(found[1], Damage) and reason in found[1].reason


def test_a_file_that_is_gone_but_for_its_name_is_damage_at_once() -> None:
    with pytest.raises(
        DamagedLogError, match=r"a\.log is damaged at byte 0: the file ends here, although it was longer"
    ):
        list(scan(file_of(), 0, 100, no_objection, None))


# Offsets that a segment can hold.


@pytest.mark.parametrize("base", [10, None])
def test_only_offsets_that_belong_into_the_segment_are_found_behind_damage(base: int | None) -> None:
    broken = batch_at(10)
    broken[-1] ^= 1
    strangers = [batch_at(9), batch_at(10 + OFFSET_SPAN_MAX)]
    file = file_of(broken, *strangers, batch_at(11))
    found = places(list(survey(file, 0, file.size(), no_objection, 10, base)))
    if base is None:
        assert found == [(0, 9), 9, 10 + OFFSET_SPAN_MAX, 11], (
            "nothing is known of the segment: all that is whole counts"
        )
    else:
        assert found == [(0, 11), 11]


def test_both_limits_of_a_search_are_exclusive() -> None:
    file, size = file_of(batch_at(3), batch_at(4), batch_at(5, count=2), batch_at(7)), len(batch_at(3))

    def first_between(after: int, limit: int) -> int | None:
        placed = next_whole_batch(file, 0, file.size(), no_objection, (after, limit))
        return None if placed is None else placed.header.base_offset

    assert first_between(2, 4) == 3 and first_between(2, 3) is None
    assert first_between(3, 5) == 4 and first_between(4, 7) == 5
    assert first_between(4, 6) is None, "the last offset of a batch counts, too"
    placed = next_whole_batch(file, 1, file.size(), no_objection, ANY_OFFSET)
    assert placed is not None and placed.position == size


def test_a_reason_does_not_speak_of_places_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "BLOCK_BYTES", 1000)
    broken = batch_at(20)
    broken[-1] ^= 1
    file = file_of(*(batch_at(offset) for offset in range(20)), broken)
    with pytest.raises(DamagedLogError) as caught:
        list(scan(file, 0, file.size(), in_order, 0))
    assert caught.value.position == 20 * len(broken)
    assert caught.value.reason.startswith("the batch (offset 20) has the CRC ")
