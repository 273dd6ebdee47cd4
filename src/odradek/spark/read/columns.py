"""Arrow arrays out of bytes that lie scattered in a buffer: keys, values, and headers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.records.errors import InvalidRecordError
from odradek.records.varint import decode_varint
from odradek.spark.read.varints import Bytes, Ints, read_varints

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
HEADER_ROUNDS = 16  # so many headers of a record are read in step with those of others


def pick(plain: Bytes, at: Ints, lengths: Ints) -> pa.Array:
    """The stretches of bytes that begin at these ascending positions; a negative length is a null.

    An Arrow array over the whole buffer, made without a copy, has what is wanted and what lies between in turns; C++
    then takes every other element of it.
    """
    rows = len(at)
    if rows == 0:
        return pa.array([], type=pa.binary())
    bounds = np.empty(2 * rows, dtype=np.int32)
    bounds[0::2] = at
    np.add(at, np.maximum(lengths, 0), out=bounds[1::2], casting="unsafe")
    scattered = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(plain)])
    picked = pc.take(scattered, _every_other(rows), boundscheck=False)
    is_there = lengths >= 0
    if is_there.all():
        return picked
    _, offsets, data = picked.buffers()
    return pa.Array.from_buffers(pa.binary(), rows, [bitmap(is_there), offsets, data])


def bitmap(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    """The validity of an Arrow array."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _every_other(rows: int) -> pa.Array:
    """0, 2, 4, and so on."""
    return _many_others(1 << (rows - 1).bit_length()).slice(0, rows)


@lru_cache(maxsize=1)
def _many_others(rows: int) -> pa.Array:
    # Not pa.array, which imports pandas: half a second, in every worker.
    numbers = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(numbers)])


def read_headers(plain: Bytes, at: Ints, ends: Ints) -> pa.Array:
    """The headers of records, whose number stands at these positions; null where there are none, as Spark has it."""
    counts, at = read_varints(plain, at)
    # A header takes two bytes at least; a number beyond that is refused before anybody makes room for it.
    if ((counts < 0) | (2 * counts > ends - at)).any():
        raise InvalidRecordError("a record says that it has more headers than it has bytes for")
    offsets = np.zeros(len(at) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    fields = np.empty((4, int(offsets[-1])), dtype=np.int64)  # name at, its length, value at, its length
    behind = at.copy()
    rows = np.flatnonzero(counts)
    for number in range(HEADER_ROUNDS):
        if not len(rows):
            break
        fields[:, offsets[rows] + number], behind[rows] = _read_one_each(plain, behind[rows])
        rows = rows[counts[rows] > number + 1]
    for row in rows.tolist():
        first, last = int(offsets[row]) + HEADER_ROUNDS, int(offsets[row + 1])
        fields[:, first:last], behind[row] = _read_rest(plain, int(behind[row]), int(ends[row]), last - first)
    # Lengths that are not negative and an end that is met exactly: so nothing in between lies outside.
    if (fields[1] < 0).any() or (fields[3] < -1).any() or (behind != ends).any():
        raise InvalidRecordError("the headers of a record do not end where the record does")
    try:
        names = pick(plain, fields[0], fields[1]).cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidRecordError("a record has a header name that is not UTF-8") from None
    pairs = pa.StructArray.from_arrays([names, pick(plain, fields[2], fields[3])], fields=HEADERS_TYPE.value_type)
    return pa.Array.from_buffers(HEADERS_TYPE, len(at), [bitmap(counts > 0), pa.py_buffer(offsets)], children=[pairs])


def _read_one_each(plain: Bytes, at: Ints) -> tuple[npt.NDArray[np.int64], Ints]:
    name_length, name_at = read_varints(plain, at)
    value_length, value_at = read_varints(plain, name_at + np.maximum(name_length, 0))
    return np.stack([name_at, name_length, value_at, value_length]), value_at + np.maximum(value_length, 0)


def _read_rest(plain: Bytes, at: int, end: int, count: int) -> tuple[npt.NDArray[np.int64], int]:
    """The headers of a record that has very many of them, one by one."""
    low, data = at, plain[at:end].tobytes()
    at = 0
    found = []
    for _ in range(count):
        name_length, name_at = decode_varint(data, at)
        value_length, value_at = decode_varint(data, name_at + max(name_length, 0))
        found.append((low + name_at, name_length, low + value_at, value_length))
        at = value_at + max(value_length, 0)
    return np.array(found, dtype=np.int64).T, low + at
