"""Chooses the partitions of many rows at once: the same ones that Java's producer chooses for single records.

Keys go by murmur2 of their bytes, as in odradek.client.partitioner, but for a whole Arrow array. Rows without a key
fill one partition after the other, a batch's worth each (KIP-480), from a start that a replay chooses again.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

Integers: TypeAlias = npt.NDArray[Any]

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)
_WORD_BYTES = 4
_POSITIVE = np.uint32(0x7FFFFFFF)


def partitions_of_keys(keys: pa.Array, partition_count: int) -> Integers:
    """The partition of each key of a binary array; what stands for a null key means nothing."""
    return ((murmur2(keys) & _POSITIVE) % np.uint32(partition_count)).astype(np.int32)


def murmur2(keys: pa.Array) -> Integers:
    """The 32-bit MurmurHash2 of each value of a binary array with Java's seed, as unsigned numbers."""
    count = len(keys)
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    starts, sizes = offsets[:-1], np.diff(offsets)
    # Room behind the last key, so that a word can be read wherever a key has a byte.
    data = np.zeros(int(offsets[-1]) + _WORD_BYTES, np.uint8)
    if data_buffer is not None:
        data[: offsets[-1]] = np.frombuffer(data_buffer, np.uint8)[: offsets[-1]]
    words = as_strided(data.view(np.uint8)[:4].view("<u4"), (len(data) - 3,), (1,))  # one at every byte
    state = _SEED ^ sizes.astype(np.uint32)
    state = _mix_words(state, words, starts, sizes >> 2)
    rest = sizes & 3
    masks = (np.uint32(1) << (rest.astype(np.uint32) << 3)) - np.uint32(1)
    tails = words[starts + (sizes - rest)] & masks
    state = np.where(rest > 0, (state ^ tails) * _MULTIPLIER, state)
    state = (state ^ (state >> np.uint32(13))) * _MULTIPLIER
    return state ^ (state >> np.uint32(15))


def _mix_words(state: Integers, words: Integers, starts: Integers, counts: Integers) -> Integers:
    """Take the whole words of all keys into their states, first all first words, then all second ones, and so on."""
    if not len(counts):
        return state
    shortest, longest = int(counts.min()), int(counts.max())
    for index in range(shortest):
        state = (state * _MULTIPLIER) ^ _mixed(words[starts + _WORD_BYTES * index])
    active = np.flatnonzero(counts > shortest)
    for index in range(shortest, longest):
        active = active[counts[active] > index]
        mixed = _mixed(words[starts[active] + _WORD_BYTES * index])
        state[active] = (state[active] * _MULTIPLIER) ^ mixed
    return state


def _mixed(word: Integers) -> Integers:
    mixed = word * _MULTIPLIER
    return (mixed ^ (mixed >> np.uint32(24))) * _MULTIPLIER


class Sticky:
    """Where rows without a key go, for one topic."""

    def __init__(self, first: int, batch_bytes: int) -> None:
        """`first` is any number: the partition of the first row is made of it."""
        self._first = first
        self._batch_bytes = batch_bytes
        self._bytes_before = 0

    def assign(self, sizes: Integers, partition_count: int) -> Integers:
        """The partitions of the next rows, by their sizes in bytes."""
        ends = np.cumsum(sizes) + self._bytes_before
        if len(ends):
            self._bytes_before = int(ends[-1])
        batches = (ends - sizes) // self._batch_bytes
        return ((batches + self._first) % partition_count).astype(np.int32)
