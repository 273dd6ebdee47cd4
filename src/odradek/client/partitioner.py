"""Chooses the partition of a record as Java's producer does, so that clients of all kinds put a key in the same place.

Keys go by murmur2 of their bytes. Records without a key stay with one partition until it got a batch's worth of
bytes and then move to another (KIP-480 and KIP-794), since few large batches cost less than many small ones.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SHOWN_MAX = 10


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of some bytes with Java's seed, as an unsigned number."""
    length = len(data)
    state = _SEED ^ length
    words = length >> 2
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = (word * _MULTIPLIER) & _MASK
        mixed = ((mixed ^ (mixed >> 24)) * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ mixed
    if length & 3:
        state = ((state ^ int.from_bytes(data[words << 2 :], "little")) * _MULTIPLIER) & _MASK
    state = ((state ^ (state >> 13)) * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of a key in a topic with so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def shown_partitions(numbers: Iterable[int]) -> str:
    """How people are told which partitions a topic has: mostly a row from 0, but there may be gaps."""
    listed = sorted(numbers)
    if len(listed) < 2:
        return f"partition {listed[0]}" if listed else "no partition"
    if listed[-1] - listed[0] == len(listed) - 1:
        return f"partitions {listed[0]} to {listed[-1]}"
    more = f" and {len(listed) - _SHOWN_MAX} more" if len(listed) > _SHOWN_MAX else ""
    return f"partitions {', '.join(map(str, listed[:_SHOWN_MAX]))}{more}"


class StickyChoice:
    """The partition that records without a key go to at the moment, for one topic."""

    def __init__(self, batch_bytes: int, choose: Callable[[Sequence[int]], int] = random.choice) -> None:
        self._batch_bytes = batch_bytes
        self._choose = choose
        self._partition = -1
        self._bytes_left = 0

    def next(self, record_bytes: int, partitions: Sequence[int]) -> int:
        """The partition of the next record; `partitions` are those that have a leader, or else all."""
        if self._bytes_left <= 0 or self._partition not in partitions:
            others = [partition for partition in partitions if partition != self._partition]
            self._partition = self._choose(others or partitions)
            self._bytes_left = self._batch_bytes
        self._bytes_left -= record_bytes
        return self._partition
