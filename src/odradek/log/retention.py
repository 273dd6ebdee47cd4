"""Which segments are old enough to go. Pure: facts in, a number out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.log.config import LogConfig
from odradek.model import Offset
from odradek.records.header import NO_TIMESTAMP


class SegmentFacts(NamedTuple):
    """What retention needs to know of a segment."""

    next_offset: Offset
    size_bytes: int
    max_timestamp: int


def expired_count(
    segments: Sequence[SegmentFacts], config: LogConfig, *, log_start: Offset, upto: Offset, now_ms: int
) -> int:
    """How many of the oldest segments can be deleted. The last one, which is active, never can.

    A segment goes when it is empty, when it lies below the log start, or, with cleanup.policy=delete, when the rest
    of the log is still retention.bytes large without it or its newest record is older than retention.ms. None goes
    that reaches beyond `upto`.
    """
    count = 0
    size_bytes = sum(segment.size_bytes for segment in segments)
    for segment in segments[:-1]:
        if segment.next_offset > upto or not (
            segment.next_offset <= log_start
            or (config.deletes and not segment.size_bytes)
            or _over_size(size_bytes - segment.size_bytes, config)
            or _over_age(segment, config, now_ms)
        ):
            break
        count += 1
        size_bytes -= segment.size_bytes
    return count


def _over_size(size_bytes: int, config: LogConfig) -> bool:
    return config.deletes and config.retention_bytes >= 0 and size_bytes >= config.retention_bytes


def _over_age(segment: SegmentFacts, config: LogConfig, now_ms: int) -> bool:
    return (
        config.deletes
        and config.retention_ms >= 0
        and segment.max_timestamp != NO_TIMESTAMP
        and now_ms - segment.max_timestamp > config.retention_ms
    )
