"""Finds where the records of many batches begin.

Only the length of a record says where the next one is, so a batch can only be walked one by one; to be quick about it,
all batches are walked in step, a record of each by a few calls of numpy. A large batch is cut into stretches before, at
places that look like the start of a record. A cut is a guess, and counts only if the walk of the stretch before it
arrives there exactly; else the batch is walked from its front in plain Python, which is also what says what is wrong.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from odradek.records.errors import InvalidRecordError
from odradek.records.parse import RECORD_BODY_BYTES_MIN
from odradek.records.varint import decode_varint
from odradek.spark.read.varints import FAR, Bytes, Ints, read_varints, read_varlongs

WALKS_MIN = 32  # fewer are walked faster one by one
BLOCK_STEPS_MIN = 16  # between two looks at which walks have ended
BLOCK_POSITIONS = 2**15
BATCH_RECORDS_MIN = 1024  # of a batch that is worth a look for places to cut it
STRETCH_RECORDS_MIN = 32
STEP_COST = 5  # of a step of all walks, in guesses
RECORD_BYTES_MAX = 2048  # on average; few enough of larger ones fit into an answer, and to look for them takes long
WINDOW_RECORDS = 4  # how far to look for the start of a record, in records of average size


def _sizes_by_length() -> npt.NDArray[np.int64]:
    """What a record takes with its length, by the two bytes that it begins with; 0 if they do not say."""
    first, second = np.arange(2**16) & 0xFF, np.arange(2**16) >> 8
    is_long = first >= 0x80
    coded = np.where(is_long, (first & 0x7F) | second << 7, first)
    sizes: Ints = np.where(is_long, 2, 1) + (coded >> 1)
    unclear = (coded & 1 == 1) | (coded >> 1 < RECORD_BODY_BYTES_MIN) | (is_long & (second >= 0x80))
    sizes[unclear] = 0
    return sizes


_SIZES = _sizes_by_length()


def record_starts(plain: Bytes, lows: Ints, highs: Ints, counts: Ints) -> Ints:
    """The positions at which records begin, in order; batch i has counts[i] > 0 of them, from lows[i] to highs[i]."""
    tops, stops, owners = _stretches(plain, lows, highs, counts)
    starts, found, arrived = _walk_all(plain, tops, stops)
    found_in = np.bincount(owners, weights=found, minlength=len(lows)).astype(np.int64)
    is_whole = found_in == counts
    is_whole[owners[~arrived]] = False
    if is_whole.all():
        return starts
    pieces = np.split(starts, np.cumsum(found_in)[:-1])
    for index in np.flatnonzero(~is_whole).tolist():
        pieces[index], end = _walk_one(plain, int(lows[index]), int(highs[index]))
        if end != highs[index] or len(pieces[index]) != counts[index]:
            raise InvalidRecordError(f"the {counts[index]} records that a batch names do not end where the batch does")
    return np.concatenate(pieces)


def _walk_one(plain: Bytes, top: int, stop: int) -> tuple[Ints, int]:
    """Walk from a top to a stop, one by one; the positions, and where that ended: exactly at the stop, or beyond."""
    data = plain[top:stop].tobytes()
    starts = []
    at, size = 0, len(data)
    try:
        while at < size:
            starts.append(at)
            length = data[at]  # as it is coded: twice the length, odd if negative
            if length < 0x80:
                at += 1
            elif data[at + 1] < 0x80:
                length += (data[at + 1] << 7) - 0x80
                at += 2
            else:
                plain_length, at = decode_varint(data, at)
                length = plain_length << 1 if plain_length > 0 else 1
            at += FAR if length & 1 or length < RECORD_BODY_BYTES_MIN << 1 else length >> 1
    except (IndexError, InvalidRecordError):
        at = FAR
    return np.array(starts, dtype=np.int64) + top, at + top


def _walk_all(plain: Bytes, tops: Ints, stops: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Walk from each top to its stop; the positions in order, how many a walk found, and which ended exactly there."""
    found = np.zeros(len(tops), dtype=np.int64)
    ends = tops.copy()
    blocks = []
    walks = np.arange(len(tops))
    while len(walks) >= WALKS_MIN:
        rows = _walk_in_step(plain, ends[walks], stops[walks])
        ends[walks] = rows[-1]
        is_before = (rows[:-1] < stops[walks]).T
        counts = is_before.sum(axis=1)
        blocks.append((walks, found[walks], counts, rows[:-1].T[is_before]))
        found[walks] += counts
        walks = walks[ends[walks] < stops[walks]]
    for index in range(len(walks)):
        walk = walks[index : index + 1]
        positions, ends[walk] = _walk_one(plain, int(ends[walk[0]]), int(stops[walk[0]]))
        counts = np.array([len(positions)])
        blocks.append((walk, found[walk], counts, positions))
        found[walk] += counts
    base = np.cumsum(found) - found
    starts = np.empty(int(found.sum()), dtype=np.int64)
    for walks, before, counts, positions in blocks:
        shift = base[walks] + before - (np.cumsum(counts) - counts)
        starts[np.repeat(shift, counts) + np.arange(len(positions))] = positions
    return starts, found, ends == stops


def _walk_in_step(plain: Bytes, at: Ints, stops: Ints) -> Ints:
    """Some steps of many walks, one row a step; a walk that has come to its stop or beyond stays there."""
    pairs = np.ndarray((len(plain) - 1,), dtype="<u2", buffer=plain, strides=(1,))  # the two bytes at each position
    last = len(pairs) - 1
    steps = max(BLOCK_STEPS_MIN, BLOCK_POSITIONS // len(at))
    rows = np.empty((steps + 1, len(at)), dtype=np.int64)
    rows[0] = at
    for step in range(1, steps + 1):
        sizes = _SIZES.take(pairs[np.minimum(at, last)])
        if not sizes.all():
            unclear = np.flatnonzero((sizes == 0) & (at < stops))
            sizes[unclear] = [_long_size(plain, position) for position in at[unclear].tolist()]
        at = np.where(at < stops, at + sizes, at)
        rows[step] = at
        if not (at < stops).any():
            return rows[: step + 1]
    return rows


def _long_size(plain: Bytes, at: int) -> int:
    """What a record takes whose length has more than two bytes; FAR if it makes no sense."""
    try:
        length, behind = decode_varint(plain[at : at + 5].tobytes(), 0)
    except InvalidRecordError:
        return FAR
    return behind + length if length >= RECORD_BODY_BYTES_MIN else FAR


# Guesses.


def _stretches(plain: Bytes, lows: Ints, highs: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """Where to start walks, where they should end, and the batch that each belongs to; in order."""
    stretch = max(STRETCH_RECORDS_MIN, math.isqrt(int(counts.sum()) // STEP_COST))
    owners = np.arange(len(lows))
    averages = (highs - lows) / counts
    large = np.flatnonzero((counts >= max(2 * stretch, BATCH_RECORDS_MIN)) & (averages <= RECORD_BYTES_MAX))
    if not len(large):
        return lows, highs, owners
    guesses = [_guesses(plain, int(lows[index]), int(highs[index]), averages[index], stretch) for index in large]
    at = np.concatenate([positions for positions, _ in guesses])
    places = np.concatenate([places for _, places in guesses])
    of = np.repeat(large, [len(positions) for positions, _ in guesses])
    is_likely = _are_likely(plain, at, highs[of])
    at, places, of = at[is_likely], places[is_likely], of[is_likely]
    first = np.flatnonzero(np.diff(places, prepend=-1))  # one for each place is enough
    order = np.argsort(np.concatenate([lows, at[first]]))
    tops = np.concatenate([lows, at[first]])[order]
    owners = np.concatenate([owners, of[first]])[order]
    return tops, np.minimum(np.append(tops[1:], FAR), highs[owners]), owners


def _guesses(plain: Bytes, low: int, high: int, average: float, stretch: int) -> tuple[Ints, Ints]:
    """Where records may begin near places that are a stretch apart, and the place that each of them is near to."""
    window = int(average * WINDOW_RECORDS) + 2
    places = np.arange(low + average * stretch, high - 2 * window, average * stretch).astype(np.int64)
    heads = np.ndarray((max(len(plain) - window, 0), window), dtype=np.uint8, buffer=plain, strides=(1, 1))[places]
    first, second, third = heads[:, :-2], heads[:, 1:-1], heads[:, 2:]
    # A record begins with its length, which is even as it is coded, and with its attributes, which are 0.
    is_short = (first < 0x80) & (first >= RECORD_BODY_BYTES_MIN << 1) & (second == 0)
    is_long = (first >= 0x80) & (second < 0x80) & (third == 0)
    rows, columns = np.divmod(np.flatnonzero((is_short | is_long) & (first & 1 == 0)), window - 2)
    near = places[rows]
    return near + columns, near


def _are_likely(plain: Bytes, at: Ints, highs: Ints) -> npt.NDArray[np.bool_]:
    """Whether records begin at these positions: if their fields fit, and the next one has the next offset."""
    length, behind = read_varints(plain, at)
    following = behind + length
    delta, behind = _offset_delta(plain, behind)
    next_delta, next_behind = _offset_delta(plain, read_varints(plain, following)[1])
    is_likely: npt.NDArray[np.bool_] = (
        (length >= RECORD_BODY_BYTES_MIN) & (delta >= 0) & (next_delta == delta + 1) & (next_behind < highs)
    )
    for _ in ("key", "value"):
        length, behind = read_varints(plain, behind)
        is_likely &= length >= -1
        behind += np.maximum(length, 0)
    is_likely &= behind < following
    return is_likely


def _offset_delta(plain: Bytes, attributes_at: Ints) -> tuple[Ints, Ints]:
    _, at = read_varlongs(plain, attributes_at + 1)
    return read_varints(plain, at)
