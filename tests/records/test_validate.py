"""Tests of odradek.records.validate."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.build import build_batch, rebuild_batch
from odradek.records.compression import Codec
from odradek.records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    RecordError,
    UnsupportedCodecError,
)
from odradek.records.header import HEADER, check_batch, read_header
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord
from odradek.records.validate import validate_batch

from .samples import SAMPLES, SIZE_MAX, codecs, new_records, resealed

PLAIN = SAMPLES["none"]


def with_fields(batch: bytes, **fields: int) -> bytes:
    """Return the batch with other fields in its head and a CRC that agrees."""
    return resealed(HEADER.pack(*read_header(batch)._replace(**fields)) + batch[61:])


@given(new_records, codecs)
def test_what_a_producer_builds_is_valid(records: list[NewRecord], codec: Codec) -> None:
    batch = build_batch(records, codec=codec)
    assert validate_batch(b"ab" + batch, 2, size_max=SIZE_MAX) == check_batch(batch)


def test_a_bad_crc_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError):
        validate_batch(PLAIN[:-1] + b"\xff", size_max=SIZE_MAX)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"last_offset_delta": 4}, "room for 5"),
        ({"record_count": 3}, "holds 3 records"),
        ({"record_count": 3, "last_offset_delta": 2}, "offset delta 3|bytes follow"),
        ({"record_count": 5, "last_offset_delta": 4}, "inside a record"),
        ({"attributes": 0x20}, "only brokers"),
        ({"attributes": 0x40}, "only compaction"),
        ({"base_sequence": -1}, "sequence -1"),
        ({"producer_epoch": -1}, "epoch -1"),
        ({"attributes": 0x10, "producer_id": -1}, "no producer id"),
    ],
)
def test_a_head_that_breaks_a_rule_is_refused(fields: dict[str, int], words: str) -> None:
    with pytest.raises(InvalidRecordError, match=words):
        validate_batch(with_fields(PLAIN, **fields), size_max=SIZE_MAX)


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="holds 0 records"):
        validate_batch(rebuild_batch(check_batch(PLAIN), []), size_max=SIZE_MAX)


def test_a_batch_with_gaps_is_refused() -> None:
    records = parse_batch(PLAIN)
    with pytest.raises(InvalidRecordError, match="no gaps"):
        validate_batch(rebuild_batch(check_batch(PLAIN), [records[0], records[3]]), size_max=SIZE_MAX)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedCodecError):
        validate_batch(with_fields(PLAIN, attributes=5), size_max=SIZE_MAX)


def test_a_bomb_is_refused() -> None:
    batch = build_batch([NewRecord(bytes(5000))], codec=Codec.ZSTD)
    with pytest.raises(BatchTooLargeError):
        validate_batch(batch, size_max=4000)


def test_a_marker_is_valid_only_where_control_batches_are_allowed() -> None:
    assert validate_batch(SAMPLES["control"], size_max=SIZE_MAX, control_allowed=True).is_control
    with pytest.raises(InvalidRecordError, match="only brokers"):
        validate_batch(SAMPLES["control"], size_max=SIZE_MAX)


def test_a_compacted_topic_needs_keys() -> None:
    keyed = build_batch([NewRecord(b"v", b""), NewRecord(None, b"k")])
    validate_batch(keyed, size_max=SIZE_MAX, keys_required=True)
    unkeyed = build_batch([NewRecord(b"v", b""), NewRecord(b"v", None)], base_offset=100)
    validate_batch(unkeyed, size_max=SIZE_MAX)
    with pytest.raises(InvalidRecordError, match="record 1 of the batch has no key"):
        validate_batch(unkeyed, size_max=SIZE_MAX, keys_required=True)


def test_a_time_before_1970_is_refused() -> None:
    validate_batch(build_batch([NewRecord(b"", timestamp=-1), NewRecord(b"", timestamp=0)]), size_max=SIZE_MAX)
    with pytest.raises(InvalidRecordError, match="record 1 of the batch has the timestamp -2"):
        validate_batch(build_batch([NewRecord(b""), NewRecord(b"", timestamp=-2)]), size_max=SIZE_MAX)


@pytest.mark.parametrize("name", [codec.label for codec in Codec])
def test_a_flipped_bit_anywhere_under_a_good_crc_raises_only_record_errors(name: str) -> None:
    for at in range(21, len(SAMPLES[name])):
        for bit in range(8):
            damaged = bytearray(SAMPLES[name])
            damaged[at] ^= 1 << bit
            with contextlib.suppress(RecordError):
                validate_batch(resealed(damaged), size_max=SIZE_MAX)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_any_bytes_raise_only_record_errors(data: bytes, at: int) -> None:
    with pytest.raises(RecordError):
        validate_batch(data, at, size_max=SIZE_MAX)
