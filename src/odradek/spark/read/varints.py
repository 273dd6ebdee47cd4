"""Zigzag varints of many records at once: positions in, numbers and the positions behind them out.

Nothing here raises or reads outside of the bytes that it is given, whatever they say: a number that is cut off or does
not fit its type has the position FAR behind it, and a caller compares positions with the ends of records anyway.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from odradek.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]

FAR = 2**40  # beyond the end of any answer, and small enough to be added to

_MORE = np.uint8(0x80)
_LOW_BITS = np.uint8(0x7F)


def read_varints(plain: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The int32 numbers at these positions, and the positions behind them."""
    return _read(plain, at, VARINT_BYTES_MAX, 32)


def read_varlongs(plain: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The int64 numbers at these positions, and the positions behind them."""
    return _read(plain, at, VARLONG_BYTES_MAX, 64)


def _read(plain: Bytes, at: Ints, bytes_max: int, bits: int) -> tuple[Ints, Ints]:
    first = plain.take(at, mode="clip")
    more = first >= _MORE
    if not more.any():
        return ((first >> 1) ^ -(first & 1)).view(np.int8).astype(np.int64), at + 1
    second = plain.take(at + 1, mode="clip")
    # A byte that does not belong to the number counts as 0: cheaper than to pick out the numbers that have it.
    coded = (first & _LOW_BITS).astype(np.uint16) | ((second & _LOW_BITS) * more).astype(np.uint16) << 7
    numbers = ((coded >> 1) ^ -(coded & 1)).view(np.int16).astype(np.int64)
    behind = at + 1 + more
    more &= second >= _MORE
    if more.any():
        longer = np.flatnonzero(more)
        start = coded[longer].astype(np.uint64)
        numbers[longer], behind[longer] = _finish(plain, start, behind[longer], bytes_max, bits)
    return numbers, behind


def _finish(plain: Bytes, coded: npt.NDArray[np.uint64], at: Ints, bytes_max: int, bits: int) -> tuple[Ints, Ints]:
    """Read on those numbers that take more than two bytes."""
    left = np.arange(len(at))
    for index in range(2, bytes_max):
        byte = plain.take(at[left], mode="clip")
        part = (byte & _LOW_BITS).astype(np.uint64)
        coded[left] |= part << np.uint64(7 * index)
        at[left] += 1
        room = bits - 7 * index
        if room < 7:
            at[left[part >> np.uint64(room) != 0]] = FAR
        left = left[byte >= _MORE]
        if not len(left):
            break
    at[left] = FAR
    return (coded >> np.uint64(1)).view(np.int64) ^ -(coded & np.uint64(1)).view(np.int64), at
