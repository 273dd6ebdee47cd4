"""What the tests of decoding share: answers of a broker, and what is in them by the strict parser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from odradek.client.fetched import AbortedTransaction
from odradek.model import TopicPartition
from odradek.records.build import build_batch, rebuild_batch
from odradek.records.compression import Codec
from odradek.records.header import iter_headers, read_header, stamp_offset
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord, Record
from odradek.spark.read.decode import ALL_COLUMNS, arrow_schema, decode
from odradek.spark.read.scan import scan
from tests.records.samples import codecs, records_at, timestamps

PARTITION = TopicPartition("orders", 3)
EVERYTHING = 2**62
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# What datetime can hold: the tests compare with Python's own.
times = st.one_of(timestamps.filter(lambda time: time < 2**47), st.integers(-(2**45), -1))
record_lists = records_at(times)


def answer(batches: Iterable[bytes | bytearray], start: int = 0) -> bytearray:
    """The batches one behind the other, with the offsets that a log gives them."""
    out = bytearray()
    for batch in batches:
        stamped = bytearray(batch)
        stamp_offset(stamped, start, 0)
        start = read_header(stamped).next_offset
        out += stamped
    return out


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    """A batch of any kind, perhaps one that compaction has thinned out."""
    made = build_batch(draw(record_lists), codec=draw(codecs), log_append_time=draw(st.booleans()))
    if draw(st.integers(0, 3)):
        return made
    kept = [record for record in parse_batch(made) if draw(st.booleans())]
    return rebuild_batch(read_header(made), kept, delete_horizon_ms=draw(st.sampled_from([None, 12345])))


def read(
    data: bytes | bytearray,
    start: int = 0,
    end: int = EVERYTHING,
    columns: Sequence[str] = ALL_COLUMNS,
    aborted: list[AbortedTransaction] | None = None,
) -> list[dict[str, Any]]:
    """Decode an answer as an executor does; rows as Python values."""
    scanned = scan(memoryview(data), start, end, aborted)
    found = list(decode(scanned, PARTITION, start, end, columns))
    for batch in found:
        batch.validate(full=True)
        assert batch.num_rows > 0
    table: pa.Table = pa.Table.from_batches(found, schema=arrow_schema(columns))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def expected(data: bytes | bytearray, start: int = 0, end: int = EVERYTHING) -> list[dict[str, Any]]:
    """The rows of an answer by odradek.records.parse, one record after the other."""
    rows = []
    for at, header in iter_headers(data):
        kind = 1 if header.uses_log_append_time else 0
        rows += [as_row(record, kind) for record in parse_batch(data, at, check_crc=True)]
    return [row for row in rows if start <= row["offset"] < end]


def as_row(record: Record, kind: int) -> dict[str, Any]:
    """A record as Spark's Kafka connector shows it."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": PARTITION.topic,
        "partition": PARTITION.partition,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": kind,
        "headers": [header._asdict() for header in record.headers] or None,
    }


def batch_of_sizes(sizes: Iterable[int], codec: Codec = Codec.NONE, fill: bytes = b"v") -> bytearray:
    """A batch of records with values of these sizes, all different."""
    records = [
        NewRecord((b"%d " % number + fill * size)[:size], b"key-%04d" % number, 1_700_000_000_000 + number)
        for number, size in enumerate(sizes)
    ]
    return build_batch(records, codec=codec)
