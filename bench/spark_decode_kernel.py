"""A peer of the decoder of odradek.spark: one loop over all records, compiled by numba, straight into Arrow's buffers.

Not strict (it trusts what the CRC has vouched for, and leaves out headers), to be as fast as such a loop can be.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odradek.records.header import LOG_APPEND_TIME
from odradek.spark.read.payloads import Payloads

Array = npt.NDArray[Any]


def compiled() -> Callable[[Payloads], pa.RecordBatch] | None:
    """The decoder, or None where numba is not installed."""
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return None
    varint = numba.njit(_varint, inline="always")
    kernel = numba.njit(_make_kernel(varint))

    def decode(group: Payloads) -> pa.RecordBatch:
        return _decode(kernel, group)

    return decode


def _varint(plain: Array, at: int) -> tuple[Any, int]:
    byte = np.int64(plain[at])
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    coded, shift = byte & 0x7F, 7
    while byte >= 0x80:
        byte = np.int64(plain[at])
        at += 1
        coded |= (byte & 0x7F) << shift
        shift += 7
    return (coded >> 1) ^ -(coded & 1), at


def _make_kernel(varint: Callable[[Array, int], tuple[Any, int]]) -> Callable[..., None]:
    def kernel(
        plain: Array, lows: Array, counts: Array, bases: Array, times: Array,
        offsets: Array, timestamps: Array, key_ends: Array, keys: Array, value_ends: Array, values: Array,
        is_there: Array,
    ) -> None:  # fmt: skip
        row = key_end = value_end = 0
        for batch in range(len(lows)):
            at = lows[batch]
            for _ in range(counts[batch]):
                length, at = varint(plain, at)
                end = at + length
                delta, at = varint(plain, at + 1)
                timestamps[row] = (times[batch] + delta) * 1000
                delta, at = varint(plain, at)
                offsets[row] = bases[batch] + delta
                length, at = varint(plain, at)
                is_there[0, row] = length >= 0
                if length > 0:
                    keys[key_end : key_end + length] = plain[at : at + length]
                    key_end += length
                    at += length
                length, at = varint(plain, at)
                is_there[1, row] = length >= 0
                if length > 0:
                    values[value_end : value_end + length] = plain[at : at + length]
                    value_end += length
                row += 1
                key_ends[row], value_ends[row] = key_end, value_end
                at = end

    return kernel


def _decode(kernel: Callable[..., None], group: Payloads) -> pa.RecordBatch:
    heads = group.heads
    counts = heads["record_count"].astype(np.int64)
    rows, size = int(counts.sum()), int((group.highs - group.lows).sum())
    offsets, timestamps = np.empty(rows, np.int64), np.empty(rows, np.int64)
    key_ends, value_ends = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
    keys, values = np.empty(size, np.uint8), np.empty(size, np.uint8)
    is_there = np.empty((2, rows), np.bool_)
    bases, times = heads["base_offset"].astype(np.int64), heads["base_timestamp"].astype(np.int64)
    kernel(
        group.plain, group.lows, counts, bases, times,
        offsets, timestamps, key_ends, keys, value_ends, values, is_there,
    )  # fmt: skip
    kinds = np.repeat((heads["attributes"] & LOG_APPEND_TIME != 0).astype(np.int32), counts)
    return pa.record_batch(
        {
            "key": _binary(rows, is_there[0], key_ends, keys),
            "value": _binary(rows, is_there[1], value_ends, values),
            "topic": pa.repeat("orders", rows),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
            "offset": pa.array(offsets),
            "timestamp": pa.array(timestamps).cast(pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array(kinds),
        }
    )


def _binary(rows: int, is_there: Array, ends: Array, data: Array) -> pa.Array:
    valid = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(ends), pa.py_buffer(data)])
