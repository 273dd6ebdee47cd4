"""Tests of odradek.records.varint."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.errors import InvalidRecordError, RecordError
from odradek.records.varint import (
    SMALL,
    SMALL_VARINTS,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)

from .oracles import kafka_python_util

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
Decode = Callable[[bytes, int], tuple[int, int]]


def varint(value: int) -> bytes:
    out = bytearray()
    encode_varint(out, value)
    return bytes(out)


def varlong(value: int) -> bytes:
    out = bytearray()
    encode_varlong(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_numbers_have_known_bytes(value: int, encoded: str) -> None:
    assert varint(value).hex() == varlong(value).hex() == encoded


@given(int32s, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_comes_back_from_between_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = varint(value)
    end = len(before) + len(encoded)
    assert decode_varint(before + encoded + after, len(before)) == (value, end)


@given(int64s, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varlong_comes_back_from_between_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = varlong(value)
    end = len(before) + len(encoded)
    assert decode_varlong(before + encoded + after, len(before)) == (value, end)


@given(int64s)
def test_kafka_python_writes_the_same_bytes(value: int) -> None:
    theirs = bytearray()
    kafka_python_util.encode_varint(value, theirs.append)
    assert varlong(value) == theirs


@given(int64s)
def test_a_number_cut_anywhere_is_refused(value: int) -> None:
    encoded = varlong(value)
    for cut in range(len(encoded)):
        with pytest.raises(InvalidRecordError, match="cut off"):
            decode_varlong(encoded[:cut], 0)
        with pytest.raises(InvalidRecordError):
            decode_varint(encoded[:cut], 0)


@pytest.mark.parametrize(("decode", "most"), [(decode_varint, 5), (decode_varlong, 10)])
def test_a_number_of_too_many_bytes_is_refused(decode: Decode, most: int) -> None:
    assert decode(b"\x80" * (most - 1) + b"\x00", 0) == (0, most)
    with pytest.raises(InvalidRecordError, match=f"more than {most} bytes"):
        decode(b"\x80" * most + b"\x00", 0)


@pytest.mark.parametrize(("decode", "encoded"), [(decode_varint, "ffffffff10"), (decode_varlong, "ff" * 9 + "02")])
def test_bits_beyond_the_type_are_refused(decode: Decode, encoded: str) -> None:
    with pytest.raises(InvalidRecordError, match="does not fit"):
        decode(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_varint_of_more_than_32_bits_is_not_written(value: int) -> None:
    with pytest.raises(InvalidRecordError):
        varint(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_varlong_of_more_than_64_bits_is_not_written(value: int) -> None:
    with pytest.raises(InvalidRecordError):
        varlong(value)


def test_the_table_of_small_numbers_holds_their_encodings() -> None:
    assert [varint(value) for value in range(SMALL)] == list(SMALL_VARINTS)


@pytest.mark.parametrize("decode", [decode_varint, decode_varlong])
@given(data=st.binary(max_size=12), at=st.integers(0, 12))
def test_any_bytes_give_a_number_or_a_record_error(decode: Decode, data: bytes, at: int) -> None:
    try:
        _, end = decode(data, at)
    except RecordError:
        return
    assert at < end <= len(data)
