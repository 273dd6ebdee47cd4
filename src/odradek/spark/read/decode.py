"""From the batches of a fetch's answer to Arrow: the columns of Spark's Kafka connector, those that are asked for.

The fields of many records are read together, column by column, so that a record costs a few nanoseconds a field. What
does not fit is refused as odradek.records.parse does, and by its words: this module only finds that something is wrong.
Types and nulls are Spark's: a record without headers has null headers, one without a time has that of -1 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odradek.model import TopicPartition
from odradek.records.errors import InvalidRecordError, RecordError
from odradek.records.header import LOG_APPEND_TIME
from odradek.records.parse import parse_batch
from odradek.spark.read.columns import HEADERS_TYPE, pick, read_headers
from odradek.spark.read.payloads import Payloads, payloads
from odradek.spark.read.scan import Scan
from odradek.spark.read.starts import record_starts
from odradek.spark.read.varints import Bytes, Ints, read_varints, read_varlongs

ROWS_MAX = 16 * 1024  # of an Arrow batch; the columns of so many numbers stay in a processor's cache
MICROSECONDS = 1000  # in a millisecond
MILLISECONDS_MAX = (2**63 - 1) // MICROSECONDS  # as far as Spark's timestamps go, either way

TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": HEADERS_TYPE,
    }
)
ALL_COLUMNS = tuple(TYPES)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns, exactly as Spark wants it."""
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def decode(
    scanned: Scan,
    partition: TopicPartition,
    start: int,
    end: int,
    columns: Sequence[str],
    times_ms: tuple[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records with offsets in [start, end) of the batches that a scan has chosen, in order.

    With `times_ms`, only those whose time lies in that range, too: its end is not included.
    """
    schema = arrow_schema(columns)
    done = 0
    for group in payloads(scanned):
        try:
            for whole in _read_rows(group):
                rows = whole.within(start, end)
                if times_ms is not None:
                    rows = rows.between(*times_ms)
                if len(rows.offset):
                    arrays = [_column(name, rows, group.plain, partition) for name in columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except InvalidRecordError as error:
            raise _diagnosis(scanned, done, len(group.heads), error) from None
        done += len(group.heads)


def _diagnosis(scanned: Scan, first: int, count: int, found: InvalidRecordError) -> RecordError:
    """What the strict parser says of the batches among which something was found wrong."""
    try:
        for at in scanned.at[first : first + count].tolist():
            parse_batch(scanned.data, at)
    except RecordError as error:
        return error
    return found


class _Rows(NamedTuple):
    """The fields of some records, column by column. Positions are in the payload; the length of a null is -1."""

    offset: Ints
    timestamp: Ints  # milliseconds
    timestamp_type: npt.NDArray[np.int32]
    key_at: Ints
    key_length: Ints
    value_at: Ints
    value_length: Ints
    headers_at: Ints
    ends: Ints

    def within(self, start: int, end: int) -> _Rows:
        """Those with offsets in [start, end)."""
        if self.offset[0] >= start and self.offset[-1] < end:
            return self
        first, last = np.searchsorted(self.offset, [start, end])
        return _Rows._make(column[first:last] for column in self)

    def between(self, start_ms: int, end_ms: int) -> _Rows:
        """Those with times in [start_ms, end_ms)."""
        is_wanted = (self.timestamp >= start_ms) & (self.timestamp < end_ms)
        return self if is_wanted.all() else _Rows._make(column[is_wanted] for column in self)


class _Known(NamedTuple):
    """What is known of records before their fields are read, column by column."""

    start: Ints  # where they begin and end in the payload
    end: Ints
    base_offset: Ints  # from here on: of their batches
    last_delta: Ints
    base_timestamp: Ints
    append_time: Ints
    timestamp_type: npt.NDArray[np.int32]


def _read_rows(group: Payloads) -> Iterator[_Rows]:
    """All records of a group, some thousands at a time."""
    known = _known(group)
    previous = -1
    for first in range(0, len(known.start), ROWS_MAX):
        rows = _read_some(group.plain, _Known._make(column[first : first + ROWS_MAX] for column in known), previous)
        previous = int(rows.offset[-1])
        yield rows


def _known(group: Payloads) -> _Known:
    heads = group.heads
    counts = heads["record_count"].astype(np.int64)
    start = record_starts(group.plain, group.lows, group.highs, counts)
    end = np.append(start[1:], 0)
    end[np.cumsum(counts) - 1] = group.highs
    is_append_time = heads["attributes"] & LOG_APPEND_TIME != 0
    return _Known(
        start,
        end,
        base_offset=np.repeat(heads["base_offset"].astype(np.int64), counts),
        last_delta=np.repeat(heads["last_offset_delta"].astype(np.int64), counts),
        base_timestamp=np.repeat(heads["base_timestamp"].astype(np.int64), counts),
        append_time=np.repeat(heads["max_timestamp"].astype(np.int64), counts),
        timestamp_type=np.repeat(is_append_time.astype(np.int32), counts),
    )


def _read_some(plain: Bytes, known: _Known, previous: int) -> _Rows:
    """The fields of some records; `previous` is the offset of the one before them."""
    _, at = read_varints(plain, known.start)
    timestamp_delta, at = read_varlongs(plain, at + 1)  # behind the attributes
    delta, at = read_varints(plain, at)
    key_length, key_at = read_varints(plain, at)
    value_length, value_at = read_varints(plain, key_at + np.maximum(key_length, 0))
    headers_at = value_at + np.maximum(value_length, 0)
    # Every step led forward. So if the last field ends where the record does, nothing lay outside of it.
    if (key_length < -1).any() or (value_length < -1).any() or (headers_at >= known.end).any():
        raise InvalidRecordError("the key or the value of a record does not fit into the record")
    has_no_headers = plain.take(headers_at) == 0
    if (headers_at + 1 != known.end)[has_no_headers].any():
        raise InvalidRecordError("a record does not end where its fields do")
    return _Rows(
        _offsets(known, delta, previous),
        _times(known, timestamp_delta),
        known.timestamp_type,
        key_at,
        key_length,
        value_at,
        value_length,
        headers_at,
        known.end,
    )


def _offsets(known: _Known, delta: Ints, previous: int) -> Ints:
    """Offsets ascend, and lie within what their batch takes; that batches ascend was seen by the scan."""
    offset = known.base_offset + delta
    is_out_of_order = offset[0] <= previous or (offset[1:] <= offset[:-1]).any()
    if is_out_of_order or (delta < 0).any() or (delta > known.last_delta).any():
        raise InvalidRecordError("a record has an offset outside of its batch, or out of order")
    return offset


def _times(known: _Known, delta: Ints) -> Ints:
    """In milliseconds: the producers', or the brokers' where the topic says so."""
    timestamp = known.base_timestamp + delta
    # Two numbers of one sign whose sum has the other: it takes more than 64 bits.
    if (((known.base_timestamp ^ timestamp) & (delta ^ timestamp)) < 0).any():
        raise InvalidRecordError("a record has a timestamp of more than 64 bits")
    if known.timestamp_type.any():
        return np.where(known.timestamp_type, known.append_time, timestamp)
    return timestamp


# Columns.


def _timestamps(rows: _Rows) -> pa.Array:
    timestamp = rows.timestamp
    is_wrong = (timestamp > MILLISECONDS_MAX) | (timestamp < -MILLISECONDS_MAX)
    if is_wrong.any():
        first = int(is_wrong.argmax())
        raise InvalidRecordError(
            f"the record at offset {rows.offset[first]} has the timestamp {timestamp[first]} ms, which is beyond what"
            " Spark can hold; leave out the column timestamp to read it"
        )
    return _numbers(timestamp * MICROSECONDS, TYPES["timestamp"])


def _numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


@lru_cache(maxsize=8)
def _repeated(value: str | int, kind: pa.DataType) -> pa.Array:
    """A column of one value. Made by hand, since pa.scalar imports pandas: half a second, in every worker."""
    if isinstance(value, int):
        return _numbers(np.full(ROWS_MAX, value, dtype=np.int32), kind)
    text = value.encode()
    offsets = np.arange(ROWS_MAX + 1, dtype=np.int32) * len(text)
    return pa.Array.from_buffers(kind, ROWS_MAX, [None, pa.py_buffer(offsets), pa.py_buffer(text * ROWS_MAX)])


def _column(name: str, rows: _Rows, plain: Bytes, partition: TopicPartition) -> pa.Array:
    match name:
        case "key":
            return pick(plain, rows.key_at, rows.key_length)
        case "value":
            return pick(plain, rows.value_at, rows.value_length)
        case "topic":
            return _repeated(partition.topic, TYPES[name]).slice(0, len(rows.offset))
        case "partition":
            return _repeated(partition.partition, TYPES[name]).slice(0, len(rows.offset))
        case "offset":
            return _numbers(rows.offset, TYPES[name])
        case "timestamp":
            return _timestamps(rows)
        case "timestampType":
            return _numbers(rows.timestamp_type, TYPES[name])
        case _:
            return read_headers(plain, rows.headers_at, rows.ends)
