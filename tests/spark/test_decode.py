"""Tests of odradek.spark.read.decode: what comes out is what odradek.records.parse says is in there."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import combinations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.records.build import build_batch, rebuild_batch
from odradek.records.compression import Codec
from odradek.records.errors import InvalidRecordError
from odradek.records.header import read_header
from odradek.records.parse import parse_batch
from odradek.records.record import Header, NewRecord
from odradek.spark.read import decode as decode_module
from odradek.spark.read import payloads as payloads_module
from odradek.spark.read.decode import ALL_COLUMNS, ROWS_MAX, arrow_schema, decode
from odradek.spark.read.scan import scan
from tests.spark.answers import EPOCH, EVERYTHING, PARTITION, answer, batch_of_sizes, batches, expected, read


def test_the_schema_is_the_one_that_spark_makes_of_the_kafka_connectors_columns() -> None:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    schema = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            StructField("headers", ArrayType(header)),
        ]
    )
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(ALL_COLUMNS))


@given(st.lists(batches(), max_size=6), st.integers(0, 1000), st.data())
def test_any_batches_come_out_as_they_went_in(made: list[bytearray], base: int, data: st.DataObject) -> None:
    bytes_ = answer(made, base)
    whole = expected(bytes_)
    assert read(bytes_, base) == whole
    last = whole[-1]["offset"] + 2 if whole else base + 1
    start, end = sorted((data.draw(st.integers(base, last)), data.draw(st.integers(base, last))))
    if start < scan(memoryview(bytes_), base, EVERYTHING).next_offset:
        assert read(bytes_, start, end) == [row for row in whole if start <= row["offset"] < end]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_any_choice_of_columns_is_a_part_of_the_whole(count: int) -> None:
    records = [
        NewRecord(b"v" * 70, None, 5, (Header("a", b"1"), Header("a", None))),
        NewRecord(None, b"", -1),
        NewRecord(b"", b"k", 9),
    ]
    bytes_ = answer([build_batch(records, codec=Codec.LZ4), build_batch(records, log_append_time=True)])
    whole = expected(bytes_)
    for columns in combinations(ALL_COLUMNS, count):
        assert read(bytes_, columns=columns) == [{name: row[name] for name in columns} for row in whole]


def test_nothing_is_empty_and_empty_is_not_nothing() -> None:
    bytes_ = answer([build_batch([NewRecord(None, b""), NewRecord(b"", None), NewRecord(None, None)])])
    assert [(row["key"], row["value"]) for row in read(bytes_)] == [(b"", None), (None, b""), (None, None)]


def test_a_record_without_a_time_is_a_millisecond_before_1970_as_in_sparks_kafka_connector() -> None:
    (row,) = read(build_batch([NewRecord(b"v", timestamp=-1)]))
    assert (row["timestamp"], row["timestampType"]) == (EPOCH - timedelta(milliseconds=1), 0)


def test_the_brokers_time_is_that_of_the_batch() -> None:
    rows = read(build_batch([NewRecord(b"a", timestamp=5), NewRecord(b"b", timestamp=9)], log_append_time=True))
    assert [(row["timestamp"], row["timestampType"]) for row in rows] == [(EPOCH + timedelta(milliseconds=9), 1)] * 2


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 2**54])
def test_a_time_that_spark_cannot_hold_is_named_and_can_be_left_out(time: int) -> None:
    bytes_ = build_batch([NewRecord(b"v", timestamp=0), NewRecord(b"v", timestamp=time)])
    with pytest.raises(InvalidRecordError, match=rf"offset 1 has the timestamp {time} ms.*leave out the column"):
        read(bytes_)
    assert len(read(bytes_, columns=("value",))) == 2


def test_headers_repeat_keep_their_order_and_may_be_very_many() -> None:
    many = tuple(Header(f"h{number % 7}", None if number % 3 == 0 else b"x" * number) for number in range(100))
    records = [NewRecord(b"a", headers=many), NewRecord(b"b"), NewRecord(b"c", headers=many[:17]), NewRecord(b"d")]
    bytes_ = answer([build_batch(records), build_batch(records[::-1])])
    assert read(bytes_) == expected(bytes_)


@pytest.mark.parametrize("codec", Codec)
def test_more_records_than_one_arrow_batch_holds_come_in_several(codec: Codec) -> None:
    sizes = random.Random(7).choices(range(30), k=10_000)
    bytes_ = answer([batch_of_sizes(sizes, codec) for _ in range(4)])
    found = list(decode(scan(memoryview(bytes_), 0, EVERYTHING), PARTITION, 0, EVERYTHING, ("value", "offset")))
    assert [batch.num_rows for batch in found] == [ROWS_MAX, ROWS_MAX, 4 * len(sizes) - 2 * ROWS_MAX]
    whole = expected(bytes_)
    table = pa.Table.from_batches(found)
    assert table["value"].to_pylist() == [row["value"] for row in whole]
    assert table["offset"].to_pylist() == [row["offset"] for row in whole]


@given(st.lists(batches(), min_size=1, max_size=6))
def test_groups_and_chunks_of_any_size_give_the_same_rows(made: list[bytearray]) -> None:
    bytes_ = answer(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payloads_module, "GROUP_BYTES", 100)
        patch.setattr(decode_module, "ROWS_MAX", 3)
        decode_module._repeated.cache_clear()
        assert read(bytes_) == expected(bytes_)
    decode_module._repeated.cache_clear()


def test_offsets_that_compaction_emptied_are_passed_over() -> None:
    whole = batch_of_sizes([10] * 100)
    thin = rebuild_batch(read_header(whole), [record for record in parse_batch(whole) if record.offset % 7 == 3])
    none = rebuild_batch(read_header(whole), [])
    bytes_ = answer([thin, none, thin])
    assert [row["offset"] for row in read(bytes_)] == [*range(3, 100, 7), *range(203, 300, 7)]
    assert scan(memoryview(bytes_), 0, EVERYTHING).next_offset == 300
    assert read(bytes_, 100, 200) == []


def test_large_records_are_read_beside_small_ones() -> None:
    bytes_ = answer([batch_of_sizes([3, 70_000, 8, 3_000_000, 8_200, 100, 0]) for _ in range(40)])
    assert read(bytes_, columns=("value",)) == [{"value": row["value"]} for row in expected(bytes_)]


def test_what_was_decoded_does_not_hold_on_to_the_answer() -> None:
    bytes_ = answer([batch_of_sizes([100] * 50)])
    found = list(decode(scan(memoryview(bytes_), 0, EVERYTHING), PARTITION, 0, EVERYTHING, ALL_COLUMNS))
    bytes_.clear()  # refused by Python as long as anybody looks at these bytes
    assert found[0].num_rows == 50
