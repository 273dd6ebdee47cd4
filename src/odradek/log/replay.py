"""Teaching a log's producers what its batches say: one that was just written, or those behind a snapshot."""

from __future__ import annotations

from odradek.disk.interface import Buffer
from odradek.log.producers import Producers
from odradek.log.segment import Segment
from odradek.model import Offset
from odradek.records.build import read_control
from odradek.records.header import NO_PRODUCER_ID, BatchHeader
from odradek.records.parse import parse_batch

_MARKER_BYTES_MAX = 1 << 16


def remember(producers: Producers, header: BatchHeader, batch: Buffer, now_ms: int) -> None:
    """Take note of a producer's batch; of a transaction's marker, also of the coordinator's epoch inside it."""
    coordinator_epoch = -1
    if header.is_control:
        _, coordinator_epoch = read_control(parse_batch(batch, size_max=_MARKER_BYTES_MAX)[0])
    producers.update(header, now_ms, coordinator_epoch)


def replay(producers: Producers, segments: list[Segment], start: Offset, now_ms: int) -> None:
    """Take note of all batches from an offset on. Damaged ones are stepped over: nobody can say what they were."""
    for segment in segments:
        for _, header in segment.batches(start, lenient=True):
            if header.producer_id == NO_PRODUCER_ID or header.base_offset < start:
                continue
            if header.is_control:
                chunk = segment.read(header.base_offset, 1, header.next_offset)
                if chunk is not None and chunk.data:
                    remember(producers, header, chunk.data, now_ms)
            else:
                producers.update(header, now_ms)
