"""Tests of what decoding is made of: numbers, the starts of records, and picking bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.build import build_batch
from odradek.records.errors import InvalidRecordError
from odradek.records.record import NewRecord
from odradek.records.varint import decode_varint, decode_varlong, encode_varint, encode_varlong
from odradek.spark.read import starts as starts_module
from odradek.spark.read.columns import pick
from odradek.spark.read.starts import WALKS_MIN, record_starts
from odradek.spark.read.varints import FAR, Ints, read_varints, read_varlongs
from tests.spark.answers import batch_of_sizes

HEAD = 61


@given(st.lists(st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-200, 200), st.integers(-9000, 9000))))
def test_varints_are_read_all_at_once(numbers: list[int]) -> None:
    plain, ends = bytearray(), [0]
    for number in numbers:
        encode_varint(plain, number)
        ends.append(len(plain))
    values, behind = read_varints(np.frombuffer(bytes(plain), np.uint8), np.array(ends[:-1], dtype=np.int64))
    assert values.tolist() == numbers
    assert behind.tolist() == ends[1:]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200))))
def test_varlongs_are_read_all_at_once(numbers: list[int]) -> None:
    plain, ends = bytearray(), [0]
    for number in numbers:
        encode_varlong(plain, number)
        ends.append(len(plain))
    values, behind = read_varlongs(np.frombuffer(bytes(plain), np.uint8), np.array(ends[:-1], dtype=np.int64))
    assert values.tolist() == numbers
    assert behind.tolist() == ends[1:]


@given(st.binary(min_size=1, max_size=30), st.booleans())
def test_bytes_that_are_no_number_lead_far_away(data: bytes, is_long: bool) -> None:
    plain = np.frombuffer(data + bytes(12), np.uint8)
    values, behind = (read_varlongs if is_long else read_varints)(plain, np.arange(len(data)))
    for at in range(len(data)):
        try:
            number = (decode_varlong if is_long else decode_varint)(data + bytes(12), at)
        except InvalidRecordError:
            assert behind[at] >= FAR
        else:
            assert (values[at], behind[at]) == number


def test_a_position_outside_of_the_bytes_is_not_read() -> None:
    plain = np.frombuffer(b"\x80\x80", np.uint8)
    _, behind = read_varints(plain, np.array([1, 5, FAR]))
    assert (behind > 2).all()


def positions(batches: list[bytearray]) -> tuple[bytes, Ints, Ints, Ints, list[int]]:
    """Batches one behind the other; where their records begin, by the sizes that they were built with."""
    plain = b"".join(bytes(batch) for batch in batches)
    highs = np.cumsum([len(batch) for batch in batches])
    lows = highs - [len(batch) - HEAD for batch in batches]
    counts = np.array([int.from_bytes(batch[57:61], "big") for batch in batches], dtype=np.int64)
    found = []
    for low, count in zip(lows.tolist(), counts.tolist(), strict=True):
        at = low
        for _ in range(count):
            found.append(at)
            length, behind = decode_varint(plain, at)
            at = behind + length
    return plain, lows, highs, counts, found


SHAPES = {
    "one small batch": [[5] * 3],
    "many batches of one record": [[20]] * 200,
    "many batches of different sizes": [[number % 70] * (number % 9 + 1) for number in range(300)],
    "one large batch": [[50] * 20_000],
    "one large batch among small ones": [*[[9] * 4] * 50, [33] * 20_000, *[[8]] * 50],
    "large batches of mixed sizes": [random.Random(seed).choices(range(300), k=4_000) for seed in range(4)],
    "few large records": [[9_000, 70_000, 20]] * 3,
    "many large records": [[9_000, 70_000, 20]] * 40,
}


@pytest.mark.parametrize("fill", [b"v", b"\x00", b"\x10\x00", b"\x80\x01\x00\x00\x00\x02"])
@pytest.mark.parametrize("shape", SHAPES)
def test_records_begin_where_the_ones_before_them_end(shape: str, fill: bytes) -> None:
    plain, lows, highs, counts, found = positions([batch_of_sizes(sizes, fill=fill) for sizes in SHAPES[shape]])
    assert record_starts(np.frombuffer(plain, np.uint8), lows, highs, counts).tolist() == found


def test_values_that_look_like_records_do_not_mislead() -> None:
    inner = bytes(batch_of_sizes([20] * 40))[HEAD:]
    sizes = random.Random(3).choices(range(len(inner)), k=6_000)
    outer = build_batch([NewRecord(inner[:size], b"k", 0) for size in sizes])
    plain, lows, highs, counts, found = positions([outer, outer])
    array = np.frombuffer(plain, np.uint8)
    tops, _, _ = starts_module._stretches(array, lows, highs, counts)
    assert not set(tops.tolist()) <= set(found)  # else the case is not one: some guesses have to be wrong
    assert record_starts(array, lows, highs, counts).tolist() == found


def test_a_large_batch_is_cut_into_enough_stretches_to_be_walked_in_step() -> None:
    plain, lows, highs, counts, found = positions([batch_of_sizes([100] * 9_000)])
    tops, stops, owners = starts_module._stretches(np.frombuffer(plain, np.uint8), lows, highs, counts)
    assert len(tops) > WALKS_MIN
    assert set(tops.tolist()) <= set(found)
    assert (stops[:-1] == tops[1:]).all() and stops[-1] == highs[0] and not owners.any()


@pytest.mark.parametrize("count", [2_999, 3_001])
def test_a_batch_with_another_number_of_records_than_it_names_is_refused(count: int) -> None:
    plain, lows, highs, _, _ = positions([batch_of_sizes([10] * 3_000)])
    with pytest.raises(InvalidRecordError, match=f"the {count} records"):
        record_starts(np.frombuffer(plain, np.uint8), lows, highs, np.array([count]))


@given(st.lists(st.tuples(st.binary(max_size=9), st.one_of(st.none(), st.binary(max_size=9))), max_size=30))
def test_bytes_are_picked_from_where_they_lie(stretches: list[tuple[bytes, bytes | None]]) -> None:
    plain, at, lengths = b"", [], []
    for gap, wanted in stretches:
        plain += gap
        at.append(len(plain))
        lengths.append(-1 if wanted is None else len(wanted))
        plain += wanted or b""
    picked = pick(np.frombuffer(plain, np.uint8), np.array(at, dtype=np.int64), np.array(lengths, dtype=np.int64))
    picked.validate(full=True)
    assert picked.to_pylist() == [wanted for _, wanted in stretches]
