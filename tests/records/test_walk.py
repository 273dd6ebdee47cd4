"""The quick check of a producer's batch follows the lengths of its records and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.errors import BatchTooLargeError, InvalidRecordError, RecordError
from odradek.records.header import HEADER_BYTES, check_batch, check_frame
from odradek.records.record import NewRecord
from odradek.records.varint import encode_varint
from odradek.records.walk import check_record_lengths

SIZE_MAX = 1 << 24
LENGTHS = st.lists(
    st.one_of(st.integers(0, 300), st.sampled_from([0, 50, 57, 58, 121, 8180, 8186, 9000])), min_size=1, max_size=300
)


def batch_of(lengths: list[int], codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([NewRecord(b"v" * length, timestamp=7) for length in lengths], codec=codec)


@given(LENGTHS, st.sampled_from(list(Codec)))
def test_whatever_is_built_is_accepted(lengths: list[int], codec: Codec) -> None:
    batch = batch_of(lengths, codec)
    check_record_lengths(batch, 0, check_batch(batch), SIZE_MAX)


@given(LENGTHS, st.integers(-3, 3).filter(bool))
def test_another_number_of_records_than_the_head_says_is_refused(lengths: list[int], more: int) -> None:
    batch = batch_of(lengths)
    header = check_batch(batch)
    with pytest.raises(InvalidRecordError):
        check_record_lengths(batch, 0, header._replace(record_count=header.record_count + more), SIZE_MAX)


@given(LENGTHS, st.data())
def test_bytes_cut_off_or_added_inside_are_refused(lengths: list[int], data: st.DataObject) -> None:
    batch = batch_of(lengths)
    header = check_frame(batch)
    cut = data.draw(st.integers(1, len(batch) - HEADER_BYTES))
    shorter = header._replace(batch_length=header.batch_length - cut)
    with pytest.raises(RecordError):
        check_record_lengths(batch, 0, shorter, SIZE_MAX)
    longer = header._replace(batch_length=header.batch_length + cut)
    with pytest.raises(RecordError):
        check_record_lengths(bytes(batch) + b"\0" * cut, 0, longer, SIZE_MAX)


@pytest.mark.parametrize("position", [0, 1, 5, 63, 64, 150, 299])
@pytest.mark.parametrize("length", [-1, -70, 0, 5, 2**30])
def test_one_impossible_length_among_equal_ones_is_found(position: int, length: int) -> None:
    record, wrong = bytearray(), bytearray()
    encode_varint(record, 20)
    encode_varint(wrong, length)
    record += bytes(20)
    payload = record * position + wrong + bytes(20) + record * (299 - position)
    whole = build_batch([NewRecord(b"", timestamp=7)])[:HEADER_BYTES] + payload
    header = check_batch(build_batch([NewRecord(b"", timestamp=7)]))
    header = header._replace(batch_length=len(whole) - 12, record_count=300, last_offset_delta=299)
    with pytest.raises(InvalidRecordError):
        check_record_lengths(whole, 0, header, SIZE_MAX)


def test_a_compressed_batch_is_not_inflated_beyond_the_bound() -> None:
    batch = batch_of([1 << 20], Codec.ZSTD)
    with pytest.raises(BatchTooLargeError):
        check_record_lengths(batch, 0, check_batch(batch), 1 << 18)
