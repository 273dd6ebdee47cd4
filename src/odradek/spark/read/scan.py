"""Which record batches of a fetch's answer count: by offset, by kind, by transaction, by CRC. Pure: no record is read.

The heads of all batches are looked at together, as columns, since an answer may hold thousands of small batches. Old
message formats (magic 0 and 1) are refused: brokers since Kafka 4 have none, and older ones convert them on demand.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from odradek.client.fetched import AbortedTransaction
from odradek.records.build import ControlType, read_control
from odradek.records.crc import crc32c
from odradek.records.errors import CorruptBatchError
from odradek.records.header import (
    BATCH_LENGTH_MIN,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from odradek.records.parse import parse_batch

Heads: TypeAlias = npt.NDArray[Any]  # of HEAD, one a batch

HEAD = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
OFFSET_MAX = 2**63 - 1 - 2**32  # what no log reaches, and leaves room to add a delta without a check

_read_length = struct.Struct(">i").unpack_from
_LENGTH_AT, _MAGIC_AT = 8, 16


@dataclass(frozen=True, slots=True)
class Scan:
    """The batches of an answer that hold wanted records, and where to go on behind all that it brought."""

    data: memoryview
    at: npt.NDArray[np.int64]  # where each batch begins in `data`
    heads: Heads
    next_offset: int
    size_bytes: int  # of the whole batches in the answer, wanted or not


def scan(data: memoryview, start: int, end: int, aborted: Iterable[AbortedTransaction] | None = None) -> Scan:
    """Choose the batches with offsets in [start, end); `aborted` is None unless only what is committed counts."""
    positions, size_bytes = _positions(data)
    at = np.array(positions, dtype=np.int64)
    heads = _heads(data, at)
    _check(heads, at)
    next_offsets = heads["base_offset"].astype(np.int64) + heads["last_offset_delta"] + 1
    if (heads["base_offset"][1:] < next_offsets[:-1]).any():
        raise CorruptBatchError("the batches of an answer are out of order, or their offsets overlap")
    reached = next_offsets > start
    next_offset = int(next_offsets[reached].max(initial=start))
    if next_offset == start and len(data) > 0:
        raise CorruptBatchError(f"{len(data)} bytes that were sent for offset {start} hold no batch with it")
    near = reached & (heads["base_offset"] < end)
    at, heads = at[near], heads[near]
    _check_crc(data, at, heads)  # before anything in the heads is believed: a flipped bit makes records of a marker
    wanted = ((heads["attributes"] & CONTROL) == 0) & (heads["record_count"] > 0)
    if aborted is not None:
        wanted &= ~_aborted(data, at, heads, aborted)
    return Scan(data, at[wanted], heads[wanted], next_offset, size_bytes)


def _positions(data: memoryview) -> tuple[list[int], int]:
    """Where the whole batches begin, and where the last of them ends; the one behind it may be cut off."""
    positions: list[int] = []
    at, size = 0, len(data)
    while at + HEADER_BYTES <= size:
        (length,) = _read_length(data, at + _LENGTH_AT)
        if length < BATCH_LENGTH_MIN or data[at + _MAGIC_AT] != MAGIC:
            raise _unreadable(data, at, length)
        following = at + length + LENGTH_OVERHEAD
        if following > size:
            break
        positions.append(at)
        at = following
    return positions, at


def _unreadable(data: memoryview, at: int, length: int) -> CorruptBatchError:
    magic = data[at + _MAGIC_AT]
    if magic < MAGIC:
        return CorruptBatchError(
            f"the batch at byte {at} has the old message format (magic {magic}); only record batches (magic 2), which"
            " Kafka writes since 0.11, can be read. Copy the topic with a Kafka client into one of the new format"
        )
    if magic != MAGIC:
        return CorruptBatchError(f"the batch at byte {at} has the magic {magic}; only 2 is known")
    return CorruptBatchError(f"the batch at byte {at} has the length {length}, the least is {BATCH_LENGTH_MIN}")


def _heads(data: memoryview, at: npt.NDArray[np.int64]) -> Heads:
    """Copy the heads together; one index a byte is cheap beside a call a batch."""
    plain = np.frombuffer(data, dtype=np.uint8)
    together: Heads = plain[at[:, None] + np.arange(HEADER_BYTES)].reshape(-1).view(HEAD)
    return together


def _check(heads: Heads, at: npt.NDArray[np.int64]) -> None:
    base_offset, last_delta, count = heads["base_offset"], heads["last_offset_delta"], heads["record_count"]
    wrong = (base_offset < 0) | (base_offset > OFFSET_MAX) | (last_delta < 0) | (count < 0)
    if wrong.any():
        first = int(wrong.argmax())
        raise CorruptBatchError(
            f"the batch at byte {at[first]} has an impossible head: offset {base_offset[first]},"
            f" last offset delta {last_delta[first]}, {count[first]} records"
        )


def _check_crc(data: memoryview, at: npt.NDArray[np.int64], heads: Heads) -> None:
    starts = (at + CRC_START).tolist()
    stops = (at + heads["batch_length"] + LENGTH_OVERHEAD).tolist()
    computed = np.array([crc32c(data[start:stop]) for start, stop in zip(starts, stops, strict=True)], dtype=np.uint32)
    wrong = computed != heads["crc"]
    if wrong.any():
        first = int(wrong.argmax())
        raise CorruptBatchError(
            f"the batch of offset {heads['base_offset'][first]} has the CRC {int(heads['crc'][first]):#010x},"
            f" its bytes {int(computed[first]):#010x}: it was damaged on its way or where it is stored"
        )


def _aborted(
    data: memoryview, at: npt.NDArray[np.int64], heads: Heads, aborted: Iterable[AbortedTransaction]
) -> npt.NDArray[np.bool_]:
    """Which batches belong to an aborted transaction (KIP-98): from its first offset to the producer's marker."""
    found = np.zeros(len(at), dtype=np.bool_)
    coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    if not coming:
        return found
    open_producers: set[int] = set()
    for index in np.flatnonzero(heads["attributes"] & TRANSACTIONAL).tolist():
        head = heads[index]
        last_offset = int(head["base_offset"]) + int(head["last_offset_delta"])
        while coming and coming[0].first_offset <= last_offset:
            open_producers.add(coming.popleft().producer_id)
        producer = int(head["producer_id"])
        if not head["attributes"] & CONTROL:
            found[index] = producer in open_producers
        # An abort ends what was open, even if nothing of it lies before the marker here.
        elif any(read_control(record)[0] is ControlType.ABORT for record in parse_batch(data, int(at[index]))):
            open_producers.discard(producer)
    return found
