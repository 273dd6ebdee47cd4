"""What of a leader's answer fits the end of a follower's log. Pure: it looks at the heads of batches only.

Whole batches that are there already are left out; what would go back, leave the leader's epochs or end in the middle
is refused. A gap is only reported: a log that was compacted has some, any other has none.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.model import Offset
from odradek.records.errors import CorruptBatchError
from odradek.records.header import iter_headers


class MisfitError(Exception):
    """The answer does not continue this log; nothing of it is taken."""


class Fit(NamedTuple):
    """The batches to append, in one piece."""

    data: memoryview
    base_offset: Offset  # of the first; below the log's end if that lies within the batch
    gap: tuple[Offset, Offset] | None  # the first offsets left out: from, to (exclusive)


def fit(data: memoryview, next_offset: Offset, latest_epoch: int, leader_epoch: int) -> Fit | None:
    """Find the batches from `next_offset` on; None if all of them are there already."""
    begin, end, first, expected, epoch = 0, 0, next_offset, next_offset, latest_epoch
    gap: tuple[Offset, Offset] | None = None
    for at, header in iter_headers(data):
        end = at + header.size_bytes
        if header.next_offset <= next_offset and begin == at:
            begin = end  # it is here already
            continue
        if header.last_offset_delta < 0:
            raise CorruptBatchError(f"the batch at offset {header.base_offset} has less than no offsets")
        if begin == at:
            first = header.base_offset
        elif header.base_offset < expected:
            raise MisfitError(f"offset {header.base_offset} stands where {expected} belongs")
        if header.base_offset > expected and gap is None:
            gap = (expected, header.base_offset)
        if not epoch <= header.leader_epoch <= leader_epoch:
            raise MisfitError(
                f"the batch at offset {header.base_offset} is of epoch {header.leader_epoch},"
                f" not of one from {epoch} to {leader_epoch}"
            )
        expected, epoch = header.next_offset, header.leader_epoch
    if end == 0 and len(data):
        raise MisfitError("not one whole batch is in the answer")
    return Fit(data[begin:end], first, gap) if begin < end else None
