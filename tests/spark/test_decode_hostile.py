"""Damaged and hostile bytes: decoding says what is wrong, agrees with the strict parser, and reads nothing outside."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.records.build import build_batch
from odradek.records.compression import Codec, compress
from odradek.records.errors import BatchTooLargeError, CorruptBatchError, InvalidRecordError, RecordError
from odradek.records.header import HEADER, HEADER_BYTES, BatchHeader, iter_headers, stamp_offset
from odradek.records.record import Header, NewRecord
from odradek.spark.read import decode as decode_module
from odradek.spark.read.scan import scan
from tests.records.samples import SAMPLES, resealed
from tests.spark.answers import EVERYTHING, answer, batch_of_sizes, batches, expected, read

COUNTED_BY_OFFSETS = ("key", "value", "offset", "headers")


def outcome(reading: Any, data: bytes) -> Any:
    """The rows, or that there was a clear error; anything else is a crash and fails the test."""
    try:
        return [tuple(row[name] for name in COUNTED_BY_OFFSETS) for row in reading(data)]
    except (RecordError, OverflowError) as error:  # the latter of Python's datetime, in the tests' own expectation
        return type(error) if isinstance(error, RecordError) else InvalidRecordError


@pytest.mark.parametrize("codec", Codec)
def test_an_answer_cut_anywhere_gives_its_whole_batches(codec: Codec) -> None:
    bytes_ = bytes(answer([batch_of_sizes([3, 80, 0], codec), batch_of_sizes([9], codec), batch_of_sizes([1], codec)]))
    ends = [at + header.size_bytes for at, header in iter_headers(bytes_)]
    whole = expected(bytes_)
    for size in range(1, len(bytes_)):
        rows = sum(header.record_count for at, header in iter_headers(bytes_[:size]))
        if size < ends[0]:
            with pytest.raises(CorruptBatchError, match="hold no batch"):
                read(bytes_[:size])
        else:
            assert read(bytes_[:size]) == whole[:rows]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_bit_flipped_anywhere_is_found_by_the_crc_or_lies_outside_of_it(name: str) -> None:
    sample = bytes(answer([SAMPLES[name]], 1000))
    follower = bytes(answer([batch_of_sizes([5])], 1100))
    for at in range(len(sample)):
        for bit in range(8):
            damaged = bytearray(sample)
            damaged[at] ^= 1 << bit
            try:
                rows = read(damaged + follower, 1000)
            except CorruptBatchError:
                continue
            # Base offset, batch length (which may then reach over the end of all) and leader epoch are not covered.
            assert at < 16
            assert not rows or rows[-1]["value"] == b"0 vvv"


def test_offsets_that_run_backwards_are_refused() -> None:
    first, second = batch_of_sizes([1, 2]), batch_of_sizes([3])
    stamp_offset(first, 10, 0)
    stamp_offset(second, 11, 0)
    with pytest.raises(CorruptBatchError, match="out of order"):
        read(first + second, 10)


def test_an_offset_that_occurs_twice_is_found_between_two_arrow_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "ROWS_MAX", 3)
    batch = build_batch([NewRecord(b"v", timestamp=0)] * 4)
    size = (len(batch) - HEADER_BYTES) // 4
    assert batch[HEADER_BYTES + 3 * size + 3] == 6  # the offset delta of the last record, 3, as it is coded
    batch[HEADER_BYTES + 3 * size + 3] = 4
    with pytest.raises(InvalidRecordError, match="has the offset delta 2"):
        read(resealed(batch), columns=("offset",))


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_message_formats_are_refused_by_name(magic: int) -> None:
    old = bytearray(batch_of_sizes([100]))
    old[16] = magic
    with pytest.raises(CorruptBatchError, match=rf"old message format \(magic {magic}\)"):
        read(old)
    old[8:12] = (20).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError, match=rf"old message format \(magic {magic}\)"):
        read(old)


def test_a_batch_that_grows_without_end_is_refused() -> None:
    payload = compress(Codec.ZSTD, bytes(80 * 1024 * 1024))
    head = BatchHeader(0, 49 + len(payload), 0, 2, 0, Codec.ZSTD, 0, 0, 0, -1, -1, -1, 1)
    with pytest.raises(BatchTooLargeError):
        read(resealed(HEADER.pack(*head) + payload))


def test_a_batch_that_names_more_records_than_it_can_hold_is_refused_before_room_is_made() -> None:
    batch = batch_of_sizes([5, 5])
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(InvalidRecordError, match="2147483647 records"):
        read(resealed(batch))


def differs(batch: bytes, copies: int) -> None:
    """Decoding and parsing agree on a batch that stands among others; with many, all are walked in step."""
    bytes_ = bytes(answer([batch, *[batch_of_sizes([5, 6])] * (copies - 1)]))
    assert outcome(read, bytes_) == outcome(expected, bytes_)


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_any_byte_that_is_changed_under_a_good_crc_is_judged_as_the_parser_does(codec: Codec, copies: int) -> None:
    records = [
        NewRecord(b"value", b"key", 1_000, (Header("name", b"x"), Header("", None))),
        NewRecord(None, None, 70_000),
        NewRecord(b"v" * 70, b"", 900),
    ]
    good = bytes(build_batch(records, codec=codec))
    chance = random.Random(5)
    for at in range(HEADER_BYTES, len(good)):
        for _ in range(6):
            bad = bytearray(good)
            bad[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, bad[at] ^ 1, bad[at] + 2 & 0xFF, chance.randrange(256)])
            differs(resealed(bad), copies)


@given(batches(), st.data())
def test_any_damage_under_a_good_crc_is_judged_as_the_parser_does(batch: bytearray, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        if len(batch) > HEADER_BYTES:  # compaction may have left no more than the head
            batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    differs(resealed(batch), data.draw(st.sampled_from([1, 40])))


@given(st.binary(max_size=400), st.integers(1, 5))
@example(b"\xff" * 40, 1)
def test_any_bytes_at_all_are_refused_or_read_but_never_crash(payload: bytes, count: int) -> None:
    head = BatchHeader(0, 49 + len(payload), 0, 2, 0, 0, 100, 0, 0, -1, -1, -1, count)
    differs(resealed(HEADER.pack(*head) + payload), 1)
    differs(resealed(HEADER.pack(*head) + payload), 40)


@given(st.binary(min_size=1, max_size=400))
def test_bytes_that_are_no_batch_are_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        scan(memoryview(data), 0, EVERYTHING)
