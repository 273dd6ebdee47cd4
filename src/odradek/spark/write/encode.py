"""Arrow columns become record batches of Kafka's format 2, without a step in Python for each row.

The numbers in front of a key and a value are computed for all rows at once and laid out as a matrix of bytes, a row
each; Arrow joins prefix, key and value, with room for the head of a batch before its first row, so that rows are copied
once. Producer and CRC are not known yet: `stamp` writes them before sending.
Follows Kafka's documentation, "Record Batch" and "Record".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.records.buffers import WriteBuffer
from odradek.records.compression import Codec, compress
from odradek.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    reseal,
    stamp_producer,
)
from odradek.spark.errors import SparkError

Integers: TypeAlias = npt.NDArray[Any]

RECORDS_MAX = 250_000  # of a batch: offsets stay within three bytes, and a broker's bounds on a request are kept
PIECE_BYTES_MAX = 256 * 1024 * 1024  # what is joined at once: Arrow's binary arrays end at 2 GiB
_FRAME_BYTES = 1 + 5 + 3 + 10 + 5 + 5  # what a record takes beside its contents, at most
_NULL = 1  # the varint of -1, the length of what is not there
_NO_HEADERS = 0


class RowError(SparkError):
    """A row cannot be written as a record."""


class Rows(NamedTuple):
    """Columns of equal length, all of them in Arrow's binary type or what is said here."""

    value: pa.Array
    key: pa.Array | None = None
    headers: pa.Array | None = None  # list<struct<key: string, value: binary>>
    timestamp: Integers | None = None  # milliseconds

    def taken(self, order: Integers) -> Rows:
        """The same rows in another order."""
        indexes = pa.array(order)
        return Rows(
            self.value.take(indexes),
            None if self.key is None else self.key.take(indexes),
            None if self.headers is None else self.headers.take(indexes),
            None if self.timestamp is None else self.timestamp[order],
        )

    def sliced(self, start: int, stop: int) -> Rows:
        """Some of the rows, without a copy."""
        return Rows(*(None if column is None else column[start:stop] for column in self))


class Batch(NamedTuple):
    """A record batch that waits for its offset, its producer and its CRC."""

    target: int  # what the caller calls the partition
    record_count: int
    data: WriteBuffer


def stamp(data: WriteBuffer, producer_id: int, epoch: int, sequence: int) -> None:
    """Make a batch ready to be sent."""
    stamp_producer(data, producer_id, epoch, sequence)
    reseal(data)


def encode(rows: Rows, targets: Integers | int, *, codec: Codec, batch_bytes: int, now_ms: int) -> Iterator[Batch]:
    """Write rows, each for its target, as batches of at most `batch_bytes` before compression (or of one row)."""
    if isinstance(targets, int):
        targets = np.full(len(rows.value), targets, np.int32)
    else:
        # Of numbers of 16 bits NumPy makes a radix sort, in a fifth of the time.
        order = np.argsort(targets.astype(np.uint16) if targets.max(initial=0) < 2**16 else targets, kind="stable")
        rows, targets = rows.taken(order), targets[order]
    tails = None if rows.headers is None else encode_headers(rows.headers)
    sizes = row_bytes(rows)
    if tails is not None:
        sizes += lengths(tails)
    ends = np.cumsum(sizes)
    starts = _cut(targets, ends, batch_bytes - HEADER_BYTES)
    for first, last in _pieces(starts, ends):
        begin, stop = starts[first], starts[last]
        piece = _Piece(
            rows.sliced(begin, stop), None if tails is None else tails[begin:stop], starts[first : last + 1] - begin
        )
        for index, batch in enumerate(piece.batches(codec, now_ms)):
            yield Batch(int(targets[starts[first + index]]), *batch)


def row_bytes(rows: Rows) -> Integers:
    """What each row takes in a batch, at most; headers not counted."""
    sizes = np.maximum(lengths(rows.value), 0) + _FRAME_BYTES
    if rows.key is not None:
        sizes += np.maximum(lengths(rows.key), 0)
    return sizes


def lengths(array: pa.Array) -> Integers:
    """The length of each value in bytes, -1 for null."""
    found = pc.binary_length(array)
    if found.null_count:
        found = found.fill_null(-1)
    return np.asarray(found.to_numpy(), np.int64)


def encode_headers(headers: pa.Array) -> pa.Array:
    """The end of each record: the number of its headers, their names and values."""
    entries = headers.flatten()
    names, values = entries.flatten() if len(entries) else (pa.array([], pa.string()), pa.array([], pa.binary()))
    if names.null_count:
        raise RowError("a row has a header without a name: headers[].key must not be null")
    encoded = _join(_varints(lengths(names) << 1), as_binary(names), _varints(_zigzag_lengths(values)), values)
    counts = np.asarray(pc.list_value_length(headers).fill_null(0).to_numpy(), np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return _join(_varints(counts << 1), pc.binary_join(pa.ListArray.from_arrays(offsets, encoded), b""))


def as_binary(array: pa.Array) -> pa.Array:
    """Text as its UTF-8, large as small, all else as it is."""
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _cut(targets: Integers, ends: Integers, budget: int) -> Integers:
    """Where batches begin, and behind them the number of rows: at a new target, and where a batch is full."""
    count = len(targets)
    changes = [*(np.flatnonzero(targets[1:] != targets[:-1]) + 1).tolist(), count]
    starts = [0]
    start = 0
    for stop in changes:
        while start < stop:
            before = int(ends[start - 1]) if start else 0
            full = int(np.searchsorted(ends, before + budget, side="right"))
            start = min(stop, start + RECORDS_MAX, max(full, start + 1))
            starts.append(start)
    return np.array(starts if count else [0])


def _pieces(starts: Integers, ends: Integers) -> Iterator[tuple[int, int]]:
    """Runs of batches that are small enough to be joined at once."""
    first, begin = 0, 0
    for index in range(1, len(starts)):
        size = int(ends[starts[index] - 1]) - begin
        is_last = index == len(starts) - 1
        if is_last or int(ends[starts[index + 1] - 1]) - begin > PIECE_BYTES_MAX:
            yield first, index
            first, begin = index, begin + size


class _Piece:
    """Rows that are joined at once, and where the batches among them begin and end."""

    def __init__(self, rows: Rows, tails: pa.Array | None, starts: Integers) -> None:
        self._rows = rows
        self._tails = tails
        self._starts = starts
        self._counts = np.diff(starts)

    def batches(self, codec: Codec, now_ms: int) -> Iterator[tuple[int, WriteBuffer]]:
        """The number of records and the bytes of each batch."""
        times = self._rows.timestamp
        records = self._records()
        offsets = np.frombuffer(records.buffers()[1], np.int32)[records.offset :]
        joined = memoryview(records.buffers()[2])
        # Without headers the end of a record, a zero byte, is joined as the first byte of the record behind it.
        shift = 1 if self._tails is None else 0
        for start, count in zip(self._starts[:-1].tolist(), self._counts.tolist(), strict=True):
            data: WriteBuffer = joined[offsets[start] + shift : offsets[start + count] + shift]
            if start + count == len(records) and shift:
                data = bytearray(data)
                data.append(0)
            if codec is not Codec.NONE:
                data = bytearray(HEADER_BYTES) + compress(codec, data[HEADER_BYTES:])
            base = now_ms if times is None else int(times[start])
            latest = now_ms if times is None else int(times[start : start + count].max())
            _write_head(data, codec, count, base, latest)
            yield count, data

    def _records(self) -> pa.Array:
        """Each record as the bytes it takes in its batch."""
        key, value, tails = self._rows.key, self._rows.value, self._tails
        key_sizes = None if key is None else _zigzag_lengths(key)
        value_sizes = _zigzag_lengths(value)
        inner = [0, self._time_deltas(), self._offset_deltas(), _NULL if key_sizes is None else key_sizes]
        body = sum(_varint_bytes(field) for field in (*inner, value_sizes))
        for column in (key, value, tails):
            if column is not None:
                body = body + np.maximum(lengths(column), 0)
        if tails is None:
            body = body + 1
        head: list[Integers | int] = [*([_NO_HEADERS] if tails is None else []), body << 1, *inner]
        if key is None:
            parts = [_matrix([*head, value_sizes], len(value), self._starts), value]
        else:
            parts = [_matrix(head, len(value), self._starts), key, _varints(value_sizes), value]
        return _join(*parts, *([] if tails is None else [tails]))

    def _offset_deltas(self) -> Integers:
        deltas: Integers = np.arange(len(self._rows.value)) - np.repeat(self._starts[:-1], self._counts)
        return deltas << 1

    def _time_deltas(self) -> Integers | int:
        times = self._rows.timestamp
        if times is None:
            return 0
        deltas: Integers = times - np.repeat(times[self._starts[:-1]], self._counts)
        zigzag: Integers = (deltas << 1) ^ (deltas >> 63)
        return zigzag


def _write_head(batch: WriteBuffer, codec: Codec, count: int, base_ms: int, latest_ms: int) -> None:
    """Fill in the head of a batch, as far as it is known."""
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - LENGTH_OVERHEAD,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=base_ms,
        max_timestamp=latest_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )
    HEADER.pack_into(batch, 0, *header)


# Varints of whole columns. A number that is the same in all rows stays a number.


def _zigzag_lengths(array: pa.Array) -> Integers | int:
    sizes = lengths(array)
    if len(sizes) and sizes.min() == sizes.max():
        return _zigzag(int(sizes[0]))
    return (sizes << 1) ^ (sizes >> 63)


def _zigzag(number: int) -> int:
    return (number << 1) ^ (number >> 63)


def _varint_bytes(zigzag: Integers | int) -> Integers | int:
    """How many bytes numbers take that are zigzag coded already."""
    if isinstance(zigzag, int):
        return max(1, -(-zigzag.bit_length() // 7))
    taken = np.ones(len(zigzag), np.int64)
    unsigned = zigzag.view(np.uint64)
    top = int(unsigned.max()) if len(unsigned) else 0
    for shift in range(7, top.bit_length(), 7):
        taken += unsigned >= (1 << shift)
    return taken


def _varints(zigzag: Integers | int) -> pa.Array | pa.Scalar:
    """Numbers that are zigzag coded already, as the bytes of their varints."""
    if isinstance(zigzag, int):
        return pa.scalar(bytes(column for column, _ in _columns(zigzag)), pa.binary())
    return _matrix([zigzag], len(zigzag))


def _matrix(fields: list[Integers | int], count: int, starts: Integers | None = None) -> pa.Array:
    """The varints of several fields behind each other, as one value a row; `starts` get room for a head before them."""
    columns = [column for field in fields for column in _columns(field)]
    cells = np.empty((count, len(columns)), np.uint8)
    is_there = None if all(there is None for _, there in columns) else np.ones(cells.shape, np.bool_)
    for index, (content, there) in enumerate(columns):
        cells[:, index] = content
        if is_there is not None and there is not None:
            is_there[:, index] = there
    offsets = np.zeros(count + 1, np.int32)
    if is_there is None:
        offsets[1:] = np.arange(1, count + 1) * len(columns)
        flat = cells.reshape(-1)
    else:
        np.cumsum(is_there.sum(axis=1), out=offsets[1:])
        flat = cells[is_there]
    if starts is not None:
        flat, offsets = _with_room(flat, offsets, starts)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(flat)])


def _with_room(flat: Integers, offsets: Integers, starts: Integers) -> tuple[Integers, Integers]:
    """Put zeros, as many as the head of a batch takes, before the value that each batch begins with."""
    room = np.zeros(HEADER_BYTES, np.uint8)
    parts: list[Integers] = []
    for begin, end in zip(offsets[starts[:-1]].tolist(), offsets[starts[1:]].tolist(), strict=True):
        parts += (room, flat[begin:end])
    moved = offsets.copy()
    moved[1:] += np.repeat(np.arange(1, len(starts), dtype=np.int32) * HEADER_BYTES, np.diff(starts))
    return np.concatenate(parts), moved


def _columns(zigzag: Integers | int) -> Iterator[tuple[Any, Integers | None]]:
    """The bytes of a varint, lowest first, and in which rows there is one (None: in all)."""
    if isinstance(zigzag, int):
        while zigzag > 0x7F:
            yield (zigzag & 0x7F) | 0x80, None
            zigzag >>= 7
        yield zigzag, None
        return
    unsigned = zigzag.view(np.uint64)
    top, least = (int(unsigned.max()), int(unsigned.min())) if len(unsigned) else (0, 0)
    bits = max(1, top.bit_length())
    if bits <= 32:
        unsigned = unsigned.astype(np.uint32)
    for shift in range(0, bits, 7):
        rest = unsigned >> shift
        goes_on = (rest > 0x7F).view(np.uint8) << 7
        in_all = shift == 0 or least >> shift > 0  # a zero takes a byte as well
        yield (rest & 0x7F).astype(np.uint8) | goes_on, None if in_all else rest > 0


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement="")
