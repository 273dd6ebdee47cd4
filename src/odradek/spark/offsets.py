"""Offsets of many partitions: their JSON form, what is new between two of them, and how work is cut into ranges.

The arithmetic is that of Spark's Kafka source: a rate limit is shared out by backlog, and minPartitions cuts the large
ranges in proportion. Nothing here talks to a broker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from odradek.model import TopicPartition

Positions: TypeAlias = Mapping[TopicPartition, int]

FROM = "$from"  # '$' cannot occur in a topic's name
TOPIC_IDS = "$ids"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads: [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it spans; there may be fewer records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a query has come, as its checkpoint keeps it."""

    positions: Positions
    # Where the batch that ends here begins, if that is not the end of another: Spark asks for the initial offset anew
    # when it replays batch 0, and "latest" would mean something else by then.
    start: Positions | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)  # a topic of the same name may be another one

    def to_json(self) -> dict[str, Any]:
        """The form of Spark's Kafka source, {"topic": {"0": 17}}, and what we add under names that no topic has."""
        document: dict[str, Any] = dict(positions_to_json(self.positions))
        if self.start is not None:
            document[FROM] = positions_to_json(self.start)
        if self.topic_ids:
            document[TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> StreamOffset:
        """Read what `to_json` wrote."""
        topics = {name: value for name, value in document.items() if not name.startswith("$")}
        start = document.get(FROM)
        return StreamOffset(
            positions_from_json(topics),
            None if start is None else positions_from_json(start),
            document.get(TOPIC_IDS, {}),
        )


def positions_to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Partitions by topic, in order, so that equal positions have equal texts."""
    document: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        document.setdefault(topic, {})[str(partition)] = positions[TopicPartition(topic, partition)]
    return document


def positions_from_json(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Read {"topic": {"0": 17}}."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def backlog(start: Positions, end: Positions) -> int:
    """How many offsets lie between; a partition that is not in `start` is not counted."""
    return sum(max(0, offset - start[partition]) for partition, offset in end.items() if partition in start)


def limited(start: Positions, end: Positions, offsets_max: int) -> dict[TopicPartition, int]:
    """Move the end back so that about `offsets_max` offsets lie between: each partition gets its share of the backlog.

    Every partition that has something gets at least one offset, as in Spark's source, so that none starves.
    """
    sizes = {partition: offset - start[partition] for partition, offset in end.items() if partition in start}
    sizes = {partition: size for partition, size in sizes.items() if size > 0}
    total = sum(sizes.values())
    moved = dict(end)
    for partition, size in sizes.items():
        # floor(limit * size / total), in whole numbers: a float would not do for large offsets
        share = max(1, offsets_max * size // total)
        moved[partition] = min(end[partition], start[partition] + share)
    return moved


def ranges_between(start: Positions, end: Positions) -> list[OffsetRange]:
    """What lies between two offsets, by partition; partitions that have nothing new are left out."""
    return [
        OffsetRange(partition.topic, partition.partition, start[partition], end[partition])
        for partition in sorted(end)
        if partition in start and end[partition] > start[partition]
    ]


def split(
    ranges: Sequence[OffsetRange], *, at_least: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into about `at_least` pieces in proportion to their sizes, none of more than `records_max` offsets."""
    pieces = [item for item in ranges if item.size > 0]
    if records_max is not None:
        pieces = [piece for item in pieces for piece in _cut(item, math.ceil(item.size / records_max))]
    if at_least is None or len(pieces) >= at_least:
        return pieces
    total = sum(item.size for item in pieces)
    # Those that stay whole are left out of the proportions, or else the large ones would get too few pieces.
    is_small = [_share(item.size, total, at_least) == 1 for item in pieces]
    large_total = sum(item.size for item, small in zip(pieces, is_small, strict=True) if not small)
    large_pieces = max(at_least - sum(is_small), 1)
    return [
        piece
        for item, small in zip(pieces, is_small, strict=True)
        for piece in _cut(item, 1 if small else _share(item.size, large_total, large_pieces))
    ]


def _share(size: int, total: int, pieces: int) -> int:
    """Round half up, as Java does."""
    return max(1, (2 * size * pieces + total) // (2 * total))


def _cut(whole: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    start, left = whole.start, whole.size
    for number in range(parts):
        size = left // (parts - number)
        if size:
            yield OffsetRange(whole.topic, whole.partition, start, start + size)
        start, left = start + size, left - size
