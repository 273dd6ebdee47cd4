"""Which batches belong to transactions that were aborted (KIP-98): compaction must not take them for values."""

from __future__ import annotations

from bisect import bisect_right

from odradek.log.segment import Segment
from odradek.model import Offset
from odradek.records.build import ControlType, read_control
from odradek.records.header import BatchHeader
from odradek.records.parse import parse_batch

_CONTROL_BYTES_MAX = 1 << 16


class AbortedTransactions:
    """Ranges of offsets by producer, learned from the markers."""

    def __init__(self) -> None:
        self._open: dict[int, Offset] = {}
        self._ranges: dict[int, list[tuple[Offset, Offset]]] = {}

    def read(self, segment: Segment, offset: Offset) -> None:
        """Learn how the transactions of a segment ended; segments come in their order."""
        for _, header in segment.batches(offset):
            if not header.is_transactional:
                continue
            producer_id = header.producer_id
            if not header.is_control:
                self._open.setdefault(producer_id, header.base_offset)
                continue
            start = self._open.pop(producer_id, None)
            if start is not None and _is_abort(segment, header):
                self._ranges.setdefault(producer_id, []).append((start, header.last_offset))

    def has(self, header: BatchHeader) -> bool:
        """Whether a batch was written in a transaction that was aborted."""
        if not header.is_transactional or header.is_control:
            return False
        ranges = self._ranges.get(header.producer_id, [])
        at = bisect_right(ranges, header.base_offset, key=lambda found: found[0]) - 1
        return at >= 0 and header.base_offset <= ranges[at][1]


def _is_abort(segment: Segment, header: BatchHeader) -> bool:
    chunk = segment.read(header.base_offset, 1, header.next_offset)
    if chunk is None or not chunk.data:
        return False
    kind, _ = read_control(parse_batch(chunk.data, size_max=_CONTROL_BYTES_MAX)[0])
    return kind is ControlType.ABORT
