"""Tests of odradek.records.header."""

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records import header as module
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.errors import CorruptBatchError, RecordError
from odradek.records.header import (
    HEADER,
    BatchHeader,
    check_batch,
    check_frame,
    iter_headers,
    read_header,
    reseal,
    stamp_log_append_time,
    stamp_offset,
)
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord

from .samples import NOW_MS, SAMPLES, batch_of, resealed

PLAIN = SAMPLES["none"]
BLANK = BatchHeader(0, 49, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
# What a broker writes on arrival, and so what the CRC leaves out.
OUTSIDE_THE_CRC = {*range(8), *range(12, 16)}


def test_the_head_has_the_size_and_order_of_the_wire() -> None:
    assert HEADER.size == module.HEADER_BYTES == 61
    assert read_header(bytes(HEADER.pack(*range(13)))) == BatchHeader(*range(13))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_head_is_read_from_any_buffer_at_any_place(kind: Callable[[bytes], bytes]) -> None:
    header = read_header(kind(b"xyz" + PLAIN + b"rest"), 3)
    assert header == read_header(PLAIN)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (1000, 3, 4)
    assert (header.size_bytes, header.last_offset, header.next_offset) == (len(PLAIN), 1003, 1004)


@pytest.mark.parametrize(
    ("bit", "name"),
    [
        (0x08, "uses_log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "has_delete_horizon"),
    ],
)
def test_each_attribute_bit_has_its_property(bit: int, name: str) -> None:
    assert getattr(BLANK._replace(attributes=bit), name) is True
    assert getattr(BLANK._replace(attributes=~bit & 0x7FFF), name) is False


def test_the_codec_is_three_raw_bits() -> None:
    assert [BLANK._replace(attributes=0x78 | bits).codec for bits in range(8)] == list(range(8))


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(-1, 5, -1), (0, 0, 0), (10, 5, 15), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 7, 4)],
)
def test_sequences_run_from_zero_again_after_the_largest(base: int, delta: int, last: int) -> None:
    assert BLANK._replace(base_sequence=base, last_offset_delta=delta).last_sequence == last


@pytest.mark.parametrize("name", SAMPLES)
def test_a_batch_cut_anywhere_is_corrupt(name: str) -> None:
    batch = SAMPLES[name]
    assert check_batch(batch) == read_header(batch)
    for cut in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            check_batch(batch[:cut])


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("tail", [b"", bytes(300), PLAIN])
def test_a_flipped_bit_anywhere_the_crc_covers_is_found(name: str, tail: bytes) -> None:
    batch = SAMPLES[name]
    for at in range(len(batch)):
        for bit in range(8):
            damaged = bytearray(batch + tail)
            damaged[at] ^= 1 << bit
            if at in OUTSIDE_THE_CRC:
                check_batch(damaged)
            else:
                with pytest.raises(CorruptBatchError):
                    check_batch(damaged)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("magic", 1, "magic 1"),
        ("magic", 0, "magic 0"),
        ("magic", 3, "magic 3"),
        ("batch_length", 48, "length 48"),
        ("batch_length", -1, "length -1"),
        ("batch_length", 2**31 - 1, "cut off"),
        ("record_count", -1, "-1 records"),
        ("last_offset_delta", -1, "before it begins"),
    ],
)
def test_a_head_that_cannot_be_is_corrupt(field: str, value: int, words: str) -> None:
    batch = bytearray(b"ab" + PLAIN)
    HEADER.pack_into(batch, 2, *read_header(batch, 2)._replace(**{field: value}))
    for check in (check_frame, check_batch):
        with pytest.raises(CorruptBatchError, match=words):
            check(batch, 2)


def test_a_wrong_crc_is_named_with_the_offset() -> None:
    damaged = bytearray(PLAIN)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match=r"offset 1000.*CRC"):
        check_batch(damaged)
    check_frame(damaged)


def test_headers_of_a_fetch_stop_before_the_batch_that_is_cut_off() -> None:
    first, second = SAMPLES["none"], SAMPLES["zstd"]
    both = first + second
    for cut in range(len(both) + 1):
        expected = [0] * (cut >= len(first)) + [len(first)] * (cut == len(both))
        assert [at for at, _ in iter_headers(memoryview(both)[:cut])] == expected
    assert [header for _, header in iter_headers(both)] == [read_header(first), read_header(second)]


def test_headers_of_a_fetch_stop_with_an_error_at_a_batch_that_cannot_be() -> None:
    headers = iter_headers(PLAIN + bytes(61))
    next(headers)
    with pytest.raises(CorruptBatchError, match=f"byte {len(PLAIN)} has the magic 0"):
        next(headers)


def test_the_broker_stamps_offset_and_epoch_without_touching_the_crc() -> None:
    data = bytearray(b"abc" + PLAIN)
    stamp_offset(memoryview(data), 2**40, 77, at=3)
    header = check_batch(data, 3)
    assert header == read_header(PLAIN)._replace(base_offset=2**40, leader_epoch=77)
    assert data[:3] == b"abc"
    assert data[3 + 16 :] == PLAIN[16:]


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_is_stamped_on_every_record(codec: Codec) -> None:
    data = bytearray(b"abc" + batch_of(codec))
    stamp_log_append_time(data, NOW_MS + 99, at=3)
    header = check_batch(data, 3)
    assert header.uses_log_append_time
    assert header.max_timestamp == NOW_MS + 99
    assert {record.timestamp for record in parse_batch(data, 3)} == {NOW_MS + 99}


def test_resealing_heals_the_crc_of_a_changed_batch_only() -> None:
    data = bytearray(PLAIN + PLAIN)
    struct.pack_into(">q", data, len(PLAIN) + 43, 1234)
    with pytest.raises(CorruptBatchError):
        check_batch(data, len(PLAIN))
    reseal(data, len(PLAIN))
    assert check_batch(data, len(PLAIN)).producer_id == 1234
    assert data[: len(PLAIN)] == PLAIN
    assert resealed(PLAIN) == PLAIN


def test_a_cut_batch_is_not_resealed() -> None:
    with pytest.raises(CorruptBatchError):
        reseal(bytearray(PLAIN[:-1]))
    with pytest.raises(CorruptBatchError):
        stamp_log_append_time(bytearray(PLAIN[:-1]), 0)


@given(st.binary(max_size=150), st.integers(0, 10))
def test_any_bytes_are_a_batch_or_raise_a_record_error(data: bytes, at: int) -> None:
    for read in (read_header, check_frame, check_batch):
        with contextlib.suppress(RecordError):
            read(data, at)
    with contextlib.suppress(RecordError):
        list(iter_headers(data))


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5), st.integers(0, 2**50), st.integers(0, 2**31 - 1))
def test_a_stamped_batch_is_the_batch_built_there(values: list[bytes], offset: int, epoch: int) -> None:
    records = [NewRecord(value) for value in values]
    batch = build_batch(records)
    stamp_offset(batch, offset, epoch)
    assert batch == build_batch(records, base_offset=offset, leader_epoch=epoch)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_a_batch_with_a_stamped_producer_is_the_batch_built_by_it(
    values: list[bytes], producer_id: int, epoch: int
) -> None:
    records = [NewRecord(value) for value in values]
    data = bytearray(b"before") + build_batch(records)
    module.stamp_producer(data, producer_id, epoch, 2**31 - 1, at=6)
    module.reseal(data, at=6)
    built = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=2**31 - 1)
    assert data == b"before" + built
