from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.compression import Codec
from odradek.records.header import HEADER_BYTES, check_batch
from odradek.records.parse import parse_batch
from odradek.records.validate import validate_batch
from odradek.spark.write import encode as encode_module
from odradek.spark.write.encode import Batch, RowError, Rows, encode, stamp

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000

contents = st.none() | st.binary(max_size=80) | st.integers(0, 9_000).map(lambda size: b"x" * size)
header = st.fixed_dictionaries({"key": st.text(max_size=70), "value": contents})
times = st.integers(0, 2**55)
row = st.tuples(st.integers(0, 3), contents, contents, st.none() | st.lists(header, max_size=3), times)

Row = tuple[int, bytes | None, bytes | None, list[dict[str, Any]] | None, int]


def make_rows(rows: list[Row], *, keys: bool = True, headers: bool = True, timestamps: bool = True) -> Rows:
    return Rows(
        pa.array([row[2] for row in rows], pa.binary()),
        pa.array([row[1] for row in rows], pa.binary()) if keys else None,
        pa.array([row[3] for row in rows], HEADERS) if headers else None,
        np.array([row[4] for row in rows], np.int64) if timestamps else None,
    )


def seen(batches: list[Batch]) -> dict[int, list[tuple[Any, ...]]]:
    """What is in the batches of each target, with all that a broker looks at checked."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for target, count, data in batches:
        stamp(data, 77, 5, 1_000)
        header = check_batch(data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 1_000)
        assert header.record_count == count == header.last_offset_delta + 1
        validate_batch(data, size_max=2**30, keys_required=False)
        records = parse_batch(data, check_crc=True)
        assert [record.offset for record in records] == list(range(count))
        assert header.max_timestamp == max(record.timestamp for record in records)
        found.setdefault(target, []).extend(
            (record.timestamp, record.key, record.value, [tuple(item) for item in record.headers]) for record in records
        )
    return found


def expected(rows: list[Row], keys: bool, headers: bool, timestamps: bool) -> dict[int, list[tuple[Any, ...]]]:
    by_target: dict[int, list[tuple[Any, ...]]] = {}
    for target, key, value, items, time in rows:
        pairs = [(item["key"], item["value"]) for item in items or ()] if headers else []
        by_target.setdefault(target, []).append((time if timestamps else NOW, key if keys else None, value, pairs))
    return by_target


@given(st.lists(row, min_size=1, max_size=60), st.sampled_from(Codec), st.booleans(), st.booleans(), st.booleans())
def test_rows_come_back_from_their_batches(
    rows: list[Row], codec: Codec, keys: bool, headers: bool, timestamps: bool
) -> None:
    given_rows = make_rows(rows, keys=keys, headers=headers, timestamps=timestamps)
    targets = np.array([row[0] for row in rows], np.int32)
    batches = list(encode(given_rows, targets, codec=codec, batch_bytes=5_000, now_ms=NOW))
    assert seen(batches) == expected(rows, keys, headers, timestamps)


@given(st.lists(row, min_size=1, max_size=40), st.integers(0, 20))
def test_rows_for_one_target_keep_their_order_also_as_a_slice(rows: list[Row], skipped: int) -> None:
    kept = rows[min(skipped, len(rows) - 1) :]
    given_rows = make_rows(rows).sliced(len(rows) - len(kept), len(rows))
    batches = list(encode(given_rows, 2, codec=Codec.NONE, batch_bytes=100_000, now_ms=NOW))
    assert seen(batches) == expected([(2, *row[1:]) for row in kept], True, True, True)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
def test_offsets_of_any_width_are_written(count: int) -> None:
    rows = Rows(pa.array([b""] * count, pa.binary()))
    (batch,) = encode(rows, 0, codec=Codec.NONE, batch_bytes=2**30, now_ms=NOW)
    assert seen([batch]) == {0: [(NOW, None, b"", [])] * count}


@pytest.mark.parametrize("size", [0, 1, 50, 55, 56, 57, 63, 64, 8_100, 8_191, 8_192, 2**20, 2**21])
def test_lengths_of_any_width_are_written(size: int) -> None:
    rows = Rows(pa.array([b"v" * size, None], pa.binary()), pa.array([None, b"k" * size], pa.binary()))
    batches = list(encode(rows, 0, codec=Codec.NONE, batch_bytes=2**30, now_ms=NOW))
    assert seen(batches) == {0: [(NOW, None, b"v" * size, []), (NOW, b"k" * size, None, [])]}


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=200), st.integers(500, 20_000))
def test_a_batch_is_no_larger_than_asked_unless_it_is_one_row(sizes: list[int], batch_bytes: int) -> None:
    rows = Rows(pa.array([b"v" * size for size in sizes], pa.binary()))
    batches = list(encode(rows, 0, codec=Codec.NONE, batch_bytes=batch_bytes, now_ms=NOW))
    assert all(len(batch.data) <= batch_bytes or batch.record_count == 1 for batch in batches)
    full = [len(batch.data) for batch in batches[:-1]]
    assert all(size > batch_bytes - 3_000 - 2 * HEADER_BYTES - 30 * len(sizes) for size in full)


def test_a_batch_holds_no_more_records_than_a_broker_takes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_module, "RECORDS_MAX", 100)
    rows = Rows(pa.array([b""] * 250, pa.binary()))
    batches = list(encode(rows, 0, codec=Codec.NONE, batch_bytes=2**30, now_ms=NOW))
    assert [batch.record_count for batch in batches] == [100, 100, 50]


def test_more_than_can_be_joined_at_once_is_joined_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_module, "PIECE_BYTES_MAX", 3_000)
    values = [bytes([index % 256]) * (index * 7 % 1_500) for index in range(200)]
    rows = Rows(pa.array(values, pa.binary()))
    targets = np.arange(200, dtype=np.int32) % 3
    batches = list(encode(rows, targets, codec=Codec.NONE, batch_bytes=1_000, now_ms=NOW))
    assert seen(batches) == {target: [(NOW, None, value, []) for value in values[target::3]] for target in range(3)}


def test_no_rows_are_no_batches() -> None:
    empty = make_rows([])
    assert list(encode(empty, 0, codec=Codec.NONE, batch_bytes=1_000, now_ms=NOW)) == []


def test_a_header_without_a_name_is_refused() -> None:
    rows = make_rows([(0, None, b"v", [{"key": None, "value": b"x"}], NOW)])
    with pytest.raises(RowError, match="header without a name"):
        list(encode(rows, 0, codec=Codec.NONE, batch_bytes=1_000, now_ms=NOW))


def test_a_header_that_is_null_is_refused() -> None:
    rows = Rows(pa.array([b"v"]), None, pa.array([[None]], HEADERS))
    with pytest.raises(RowError, match="header without a name"):
        list(encode(rows, 0, codec=Codec.NONE, batch_bytes=1_000, now_ms=NOW))


def test_stamping_again_gives_the_batch_other_numbers() -> None:
    (batch,) = encode(Rows(pa.array([b"v"])), 0, codec=Codec.NONE, batch_bytes=1_000, now_ms=NOW)
    for sequence in (0, 2**31 - 1):
        stamp(batch.data, 2**62, 32_767, sequence)
        header = check_batch(batch.data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**62, 32_767, sequence)
