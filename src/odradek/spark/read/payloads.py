"""The records' bytes of the batches of an answer: where they lie if they are not compressed, else decompressed.

Decompressed batches are put together into groups, so that much is decoded by one call, but never more than a bound of
bytes at a time, however well they were compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from odradek.records.compression import codec_from_id, decompress
from odradek.records.errors import InvalidRecordError
from odradek.records.header import CODEC_MASK, HEADER_BYTES, LENGTH_OVERHEAD
from odradek.records.parse import DECOMPRESSED_BYTES_MAX, RECORD_BODY_BYTES_MIN
from odradek.spark.read.scan import Heads, Scan
from odradek.spark.read.varints import Bytes, Ints

GROUP_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Payloads:
    """Batches whose records are to be decoded together: those of batch i lie at plain[lows[i]:highs[i]]."""

    plain: Bytes
    lows: Ints
    highs: Ints
    heads: Heads


def payloads(scanned: Scan) -> Iterator[Payloads]:
    """The chosen batches of an answer in groups, in order."""
    heads = scanned.heads
    if not len(heads):
        return
    lows = scanned.at + HEADER_BYTES
    highs = scanned.at + heads["batch_length"] + LENGTH_OVERHEAD
    if not (heads["attributes"] & CODEC_MASK).any():
        yield _checked(Payloads(np.frombuffer(scanned.data, dtype=np.uint8), lows, highs, heads))
        return
    pieces: list[bytes] = []
    size, first = 0, 0
    codecs = (heads["attributes"] & CODEC_MASK).tolist()
    for index, (codec, low, high) in enumerate(zip(codecs, lows.tolist(), highs.tolist(), strict=True)):
        pieces.append(decompress(codec_from_id(codec), scanned.data[low:high], DECOMPRESSED_BYTES_MAX))
        size += len(pieces[-1])
        if size >= GROUP_BYTES or index == len(heads) - 1:
            yield _together(pieces, heads[first : index + 1])
            pieces = []
            size, first = 0, index + 1


def _together(pieces: list[bytes], heads: Heads) -> Payloads:
    highs = np.cumsum([len(piece) for piece in pieces])
    lows = np.concatenate([[0], highs[:-1]])
    return _checked(Payloads(np.frombuffer(b"".join(pieces), dtype=np.uint8), lows, highs, heads))


def _checked(group: Payloads) -> Payloads:
    """Refuse a batch that names more records than it can hold, before anybody makes room for them."""
    counts = group.heads["record_count"].astype(np.int64)
    sizes = group.highs - group.lows
    wrong = counts * (1 + RECORD_BODY_BYTES_MIN) > sizes
    if wrong.any():
        first = int(wrong.argmax())
        raise InvalidRecordError(
            f"the batch of offset {group.heads['base_offset'][first]} says that it holds {counts[first]} records,"
            f" but has only {sizes[first]} bytes for them"
        )
    return group
