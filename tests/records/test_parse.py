"""Tests of odradek.records.parse."""

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.build import build_batch
from odradek.records.compression import Codec, compress
from odradek.records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    RecordError,
    UnsupportedCodecError,
)
from odradek.records.header import HEADER, BatchHeader
from odradek.records.parse import iter_keys, iter_values, parse_batch
from odradek.records.record import Header, NewRecord, Record
from odradek.records.varint import encode_varint, encode_varlong

from .samples import NOW_MS, SAMPLES, SIZE_MAX, batch_of, codecs, new_records, resealed


def batch_with(
    payload: bytes, *, record_count: int = 1, last_offset_delta: int = 0, attributes: int = 0, base_timestamp: int = 0
) -> bytes:
    """Put a head with a good CRC before any bytes."""
    head = BatchHeader(
        0, 49 + len(payload), 0, 2, 0, attributes, last_offset_delta, base_timestamp, 77, -1, -1, -1, record_count
    )
    return resealed(HEADER.pack(*head) + payload)


def framed(body: bytes) -> bytes:
    out = bytearray()
    encode_varint(out, len(body))
    return bytes(out) + body


def record_with(
    *,
    attributes: int = 0,
    timestamp: str = "00",
    offset: str = "00",
    key: str = "01",
    value: str = "01",
    headers: str = "00",
) -> bytes:
    """Write a record from the hexadecimal digits of its parts, right or wrong."""
    return framed(bytes([attributes]) + bytes.fromhex(timestamp + offset + key + value + headers))


def both_refuse(batch: bytes, words: str | None = None) -> None:
    with pytest.raises(InvalidRecordError, match=words):
        parse_batch(batch, check_crc=True)
    with pytest.raises(InvalidRecordError, match=words):
        list(iter_keys(batch))


def test_the_smallest_record_is_read() -> None:
    assert parse_batch(batch_with(record_with())) == [Record(0, 0, None, None)]


def test_a_record_is_read_from_any_buffer_at_any_place() -> None:
    kinds: list[Callable[[bytes], bytes | bytearray | memoryview]] = [bytes, bytearray, memoryview]
    for kind in kinds:
        for batch in SAMPLES.values():
            data = kind(b"abc" + batch + b"more")
            assert parse_batch(data, 3, check_crc=True) == parse_batch(batch)
            assert list(iter_keys(data, 3)) == list(iter_keys(batch))
            assert list(iter_values(data, 3)) == list(iter_values(batch))


def test_keys_values_and_header_values_are_bytes_of_their_own() -> None:
    data = bytearray(SAMPLES["none"])
    records = parse_batch(memoryview(data))
    data[:] = bytes(len(data))
    assert records[1].key == b"key"
    assert {type(part) for record in records for part in (record.key, record.value)} == {bytes, type(None)}
    assert records[1].headers == (Header("trace", b"\x00\x01"), Header("é", None), Header("", b""))


def test_records_of_a_log_append_time_batch_have_its_time() -> None:
    payload = record_with(timestamp="02") + record_with(timestamp="04", offset="02")
    batch = batch_with(payload, record_count=2, last_offset_delta=1, attributes=0x08)
    assert [record.timestamp for record in parse_batch(batch)] == [77, 77]
    assert [timestamp for _, timestamp, _, _ in iter_keys(batch)] == [77, 77]
    assert [timestamp for _, timestamp, _ in iter_values(batch)] == [77, 77]


def test_a_compacted_batch_may_have_gaps() -> None:
    payload = record_with(offset="04") + record_with(offset="0a")
    batch = batch_with(payload, record_count=2, last_offset_delta=9)
    assert [record.offset for record in parse_batch(batch)] == [2, 5]


@given(new_records, codecs)
def test_keys_are_those_of_the_records(records: list[NewRecord], codec: Codec) -> None:
    batch = build_batch(records, codec=codec, base_offset=3)
    expected = [(record.offset, record.timestamp, record.key, record.value is None) for record in parse_batch(batch)]
    assert list(iter_keys(batch)) == expected


@given(new_records, codecs)
def test_values_are_those_of_the_records_and_null_ones_have_no_bytes(records: list[NewRecord], codec: Codec) -> None:
    batch = build_batch(records, codec=codec, base_offset=3)
    expected = [(record.offset, record.timestamp, record.value or b"") for record in parse_batch(batch)]
    assert list(iter_values(batch)) == expected


@pytest.mark.parametrize("value", ["03", "20aa", "8001", "fe7f"])
def test_a_value_that_says_more_bytes_than_its_record_has_is_not_read(value: str) -> None:
    with pytest.raises(InvalidRecordError, match="bytes of value"):
        list(iter_values(batch_with(record_with(value=value))))


@pytest.mark.parametrize(
    ("fault", "record", "words"),
    [
        ("no room", framed(b"\x00" * 5), "bytes for them"),
        ("a negative length", b"\x01" + bytes(6), "says -1 bytes"),
        ("a length beyond the batch", b"\x7e" + bytes(6), "says 63 bytes, 6 are left"),
        ("a length of 2 GiB", b"\xfe\xff\xff\xff\x0f" + bytes(6), "says 2147483647 bytes"),
        ("an overlong length", b"\x80\x80\x80\x80\x80\x00" + bytes(6), "more than 5 bytes"),
        ("an overlong timestamp", record_with(timestamp="80" * 10 + "00"), "more than 10 bytes"),
        ("an overlong offset", record_with(offset="80" * 5 + "00"), "more than 5 bytes"),
        ("a negative offset", record_with(offset="01"), "offset delta -1"),
        ("an offset beyond the last", record_with(offset="02"), "offset delta 1"),
        ("a key length of -2", record_with(key="03"), "-2 bytes of key"),
        ("an overlong key length", record_with(key="80" * 5 + "00"), "more than 5 bytes"),
        ("a key beyond the record", record_with(key="40"), "32 bytes of key, 2 are left"),
        ("a key of 2 GiB", record_with(key="feffffff0f"), "2147483647 bytes of key"),
        ("a key that leaves no value", framed(bytes.fromhex("000000060000 00")), "no room for a value"),
        ("bytes behind the last record", record_with() + b"\x00", "1 bytes follow"),
        ("a second record", record_with() + record_with(), "7 bytes follow"),
    ],
)
def test_a_fault_before_the_value_is_found_by_both_readers(fault: str, record: bytes, words: str) -> None:
    both_refuse(batch_with(record), words)


@pytest.mark.parametrize(
    ("fault", "record", "words"),
    [
        ("a value length of -2", record_with(value="03"), "-2 bytes of value"),
        ("an overlong value length", record_with(value="80" * 5 + "00"), "more than 5 bytes"),
        ("a value beyond the record", record_with(value="40"), "32 bytes of value, 1 are left"),
        ("a value of 2 GiB", record_with(value="feffffff0f"), "2147483647 bytes of value"),
        ("a value that leaves no headers", record_with(value="0200", headers=""), "inside a record|instead of"),
        ("a negative number of headers", record_with(headers="01"), "says -1 headers"),
        ("more headers than bytes", record_with(headers="04000100"), "says 2 headers, 3 bytes"),
        ("2 ** 31 headers", record_with(headers="feffffff0f"), "says 2147483647 headers"),
        ("an overlong number of headers", record_with(headers="80" * 5 + "00"), "more than 5 bytes"),
        ("a header without a name", record_with(headers="020101"), "-1 bytes of header name"),
        ("a header name beyond the record", record_with(headers="020a01"), "5 bytes of header name"),
        ("a header name that is no text", record_with(headers="0202ff01"), "not UTF-8"),
        ("a header value length of -2", record_with(headers="020003"), "-2 bytes of header value"),
        ("a header value beyond the record", record_with(headers="020006ff"), "3 bytes of header value"),
        ("bytes left in the record", record_with(headers="0000"), "instead of"),
    ],
)
def test_a_fault_behind_the_key_is_found(fault: str, record: bytes, words: str) -> None:
    with pytest.raises(InvalidRecordError, match=words):
        parse_batch(batch_with(record))


def test_a_number_that_reaches_into_the_next_record_is_refused() -> None:
    payload = framed(bytes.fromhex("00 00 00 01 01 80")) + record_with(offset="02")
    with pytest.raises(InvalidRecordError):
        parse_batch(batch_with(payload, record_count=2, last_offset_delta=1))
    payload = framed(bytes.fromhex("00 80 80 80 80 80")) + record_with(offset="02")
    both_refuse(batch_with(payload, record_count=2, last_offset_delta=1))


@pytest.mark.parametrize("offsets", [("00", "00"), ("02", "00")])
def test_offsets_that_do_not_rise_are_refused(offsets: tuple[str, str]) -> None:
    payload = b"".join(record_with(offset=offset) for offset in offsets)
    both_refuse(batch_with(payload, record_count=2, last_offset_delta=5), "has the offset delta 0")


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (2**62, 2**62)])
def test_a_time_of_more_than_64_bits_is_refused(base: int, delta: int) -> None:
    timestamp = bytearray()
    encode_varlong(timestamp, delta)
    both_refuse(batch_with(record_with(timestamp=timestamp.hex()), base_timestamp=base), "more than 64 bits")


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [0, 1, 3, 2**31 - 1])
def test_a_record_count_that_differs_from_the_records_is_refused(codec: Codec, count: int) -> None:
    payload = compress(codec, record_with() + record_with(offset="02"))
    both_refuse(batch_with(payload, record_count=count, last_offset_delta=9, attributes=codec))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCodecError):
        parse_batch(batch_with(record_with(), attributes=codec))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_grows_beyond_the_cap_is_refused(codec: Codec) -> None:
    batch = build_batch([NewRecord(bytes(5000))], codec=codec)
    assert len(parse_batch(batch, size_max=5100)) == 1
    with pytest.raises(BatchTooLargeError):
        parse_batch(batch, size_max=5000)
    with pytest.raises(BatchTooLargeError):
        list(iter_keys(batch, size_max=5000))
    with pytest.raises(BatchTooLargeError):
        list(iter_values(batch, size_max=5000))


def test_the_crc_is_checked_when_asked_for() -> None:
    damaged = SAMPLES["none"].replace(b"vvv", b"vwv", 1)
    assert len(parse_batch(damaged)) == 4
    with pytest.raises(CorruptBatchError):
        parse_batch(damaged, check_crc=True)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_batch_cut_at_any_byte_is_refused(name: str) -> None:
    batch = SAMPLES[name]
    for cut in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            parse_batch(batch[:cut])
        if cut >= 61:  # the same cut, but the head agrees with it
            shorter = bytearray(batch[:cut])
            struct.pack_into(">i", shorter, 8, cut - 12)
            with pytest.raises(RecordError):
                parse_batch(resealed(shorter), check_crc=True)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_flipped_bit_under_a_good_crc_raises_nothing_but_record_errors(name: str) -> None:
    batch = SAMPLES[name]
    for at in range(21, len(batch)):
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[at] ^= 1 << bit
            for read in (parse_batch, lambda data: list(iter_keys(data)), lambda data: list(iter_values(data))):
                with contextlib.suppress(RecordError):
                    read(damaged)


@given(st.binary(max_size=200), st.integers(0, 100), st.integers(0, 20), st.integers(0, 0x7F))
def test_any_bytes_behind_a_good_head_raise_only_record_errors(
    payload: bytes, last_delta: int, count: int, attributes: int
) -> None:
    batch = batch_with(payload, record_count=count, last_offset_delta=last_delta, attributes=attributes)
    for read in (parse_batch, lambda data: list(iter_keys(data)), lambda data: list(iter_values(data))):
        with contextlib.suppress(RecordError):
            read(batch)


@given(st.binary(max_size=200), st.integers(0, 10))
def test_any_bytes_at_all_raise_only_record_errors(data: bytes, at: int) -> None:
    with contextlib.suppress(RecordError):
        parse_batch(data, at)
    with contextlib.suppress(RecordError):
        list(iter_keys(data, at))
    with contextlib.suppress(RecordError):
        list(iter_values(data, at))


@given(new_records, codecs, st.data())
def test_damage_under_a_good_crc_raises_only_record_errors(
    records: list[NewRecord], codec: Codec, data: st.DataObject
) -> None:
    damaged = build_batch(records, codec=Codec.NONE)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(61, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    payload = compress(codec, damaged[61:])
    batch = batch_with(payload, record_count=len(records), last_offset_delta=len(records) - 1, attributes=codec)
    try:
        parsed = parse_batch(batch, size_max=SIZE_MAX)
    except RecordError:
        return
    assert [record.offset for record in parsed] == list(range(len(records)))


def test_time_goes_backwards_and_far_in_one_batch() -> None:
    times = [NOW_MS, NOW_MS - 1, NOW_MS + 64, NOW_MS - 8193, 0, -1, 2**62]
    batch = build_batch([NewRecord(b"", timestamp=time) for time in times])
    assert [record.timestamp for record in parse_batch(batch)] == times
    assert batch_of(Codec.NONE) == SAMPLES["none"]
