"""Varints and tagged fields as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.errors import DecodeError
from odradek.wire.primitives import (
    FEW,
    UNKNOWN_TAGS_MAX,
    decode_length,
    decode_uvarint,
    encode_uvarint,
    few_packers,
    few_unpackers,
    pack_many,
    skip_tags,
    unpacker,
)

GOLDEN = [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (16384, "808001"),
          (2**28 - 1, "ffffff7f"), (2**28, "8080808001"), (2**32 - 1, "ffffffff0f")]  # fmt: skip


@pytest.mark.parametrize(("value", "encoded"), GOLDEN)
def test_a_varint_has_seven_bits_a_byte_lowest_first(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded
    assert decode_uvarint(b"\xff" + bytes.fromhex(encoded) + b"\xff", 1) == (value, 1 + len(encoded) // 2)


@given(st.integers(0, 2**32 - 1))
def test_a_varint_comes_back(value: int) -> None:
    encoded = encode_uvarint(value)
    assert decode_uvarint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("value", [-1, 2**32, 2**64])
def test_a_number_beyond_32_bits_is_not_written(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_uvarint(value)


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffff7f", "808080808000", "ffffffffffffffff01", "8080808080"])
def test_an_overlong_varint_is_refused(encoded: str) -> None:
    with pytest.raises(DecodeError, match="varint at byte 0"):
        decode_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_a_varint_that_is_cut_off_is_an_index_error_for_the_caller_to_translate(encoded: str) -> None:
    with pytest.raises(IndexError):
        decode_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["00", "8000"])
def test_a_length_of_null_is_refused_with_the_name_of_its_field(encoded: str) -> None:
    with pytest.raises(DecodeError, match=r"metadata\.Request\.topics is null"):
        decode_length(bytes.fromhex(encoded), 0, "metadata.Request.topics")
    assert decode_length(b"\x81\x01", 0, "x") == (129, 2)


def test_unknown_tags_are_passed_over() -> None:
    assert skip_tags(bytes.fromhex("ee 00 02 aabb 8101 00 ff"), 1, 2, "x") == 8


def test_unknown_tags_are_counted() -> None:
    tags = b"\x05\x00" * 1000
    assert skip_tags(tags, 0, UNKNOWN_TAGS_MAX, "x") == 2 * UNKNOWN_TAGS_MAX
    with pytest.raises(DecodeError, match="x has 129 tagged fields: at most 128"):
        skip_tags(tags, 0, UNKNOWN_TAGS_MAX + 1, "x")


@pytest.mark.parametrize("count", [0, 1, FEW - 1, FEW, 100])
def test_runs_of_numbers_come_back(count: int) -> None:
    numbers = [index - 2 for index in range(count)]
    packed = pack_many("i", numbers)
    assert unpacker("i", count)(b"\xff" + packed, 1) == tuple(numbers)
    if count < FEW:
        assert few_packers("i")[count](*numbers) == packed
        assert few_unpackers("i")[count](packed, 0) == tuple(numbers)
