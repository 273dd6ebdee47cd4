"""The indexes that go with an archived segment, in the format of Kafka's `.index` and `.timeindex` files.

They are made from the batches themselves, so that they fit the object and not the files of the broker that copied it.
Pure. An index only says where to begin: whoever reads walks over the heads of the batches from there on.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from odradek.records.buffers import ReadBuffer
from odradek.records.errors import CorruptBatchError
from odradek.records.header import NO_TIMESTAMP, check_batch, iter_headers

INTERVAL_BYTES = 32 * 1024  # one entry for about so much: a reader gets at most this, and a batch, too much

_OFFSET_ENTRY = struct.Struct(">II")  # first offset of a batch, counted from the segment's base -> where it begins
_TIME_ENTRY = struct.Struct(">qI")  # largest timestamp so far -> last offset of the batches so far, counted alike


class Indexed(NamedTuple):
    """What was found in the bytes of a segment."""

    offset_index: bytes
    time_index: bytes
    first_timestamp: int  # of its first batch; -1 if it has none
    max_timestamp: int  # of all records; -1 if none has one
    epochs: tuple[tuple[int, int], ...]  # leader epochs, and the first offset that each wrote here


def make_indexes(data: ReadBuffer, base_offset: int) -> Indexed:
    """Walk over the batches of a segment; CorruptBatchError if one is damaged, or something else stands behind it."""
    offsets, times, epochs = bytearray(), bytearray(), list[tuple[int, int]]()
    first = newest = noted = NO_TIMESTAMP
    entered = end = last = 0
    for at, header in iter_headers(data):
        check_batch(data, at)
        if at == 0:
            first = header.base_timestamp
        elif at - entered >= INTERVAL_BYTES:
            offsets += _OFFSET_ENTRY.pack(header.base_offset - base_offset, at)
            if newest > noted:
                times += _TIME_ENTRY.pack(newest, last)
                noted = newest
            entered = at
        newest, last = max(newest, header.max_timestamp), header.last_offset - base_offset
        if not epochs or epochs[-1][0] != header.leader_epoch:
            epochs.append((header.leader_epoch, max(header.base_offset, base_offset)))
        end = at + header.size_bytes
    if end != len(data):
        raise CorruptBatchError(f"{len(data) - end} bytes behind the batch that ends at byte {end} are no batch")
    return Indexed(bytes(offsets), bytes(times), first, newest, tuple(epochs))


class OffsetIndex:
    """A loaded `.index`: where to begin to read for an offset."""

    __slots__ = ("_base_offset", "_keys", "_positions", "size_bytes")

    def __init__(self, data: bytes, base_offset: int) -> None:
        entries = list(_OFFSET_ENTRY.iter_unpack(data[: len(data) // _OFFSET_ENTRY.size * _OFFSET_ENTRY.size]))
        self._base_offset = base_offset
        self._keys = [key for key, _ in entries]
        self._positions = [position for _, position in entries]
        self.size_bytes = len(data)

    def position_of(self, offset: int) -> int:
        """A position at or before the batch that holds this offset."""
        at = bisect_right(self._keys, offset - self._base_offset) - 1
        return self._positions[at] if at >= 0 else 0


def offset_before_time(time_index: bytes, base_offset: int, timestamp: int) -> int:
    """An offset before which every record of the segment is older than this time."""
    whole = len(time_index) // _TIME_ENTRY.size * _TIME_ENTRY.size
    entries = list(_TIME_ENTRY.iter_unpack(time_index[:whole]))
    at = bisect_left(entries, timestamp, key=lambda entry: entry[0]) - 1
    return base_offset + entries[at][1] + 1 if at >= 0 else base_offset
