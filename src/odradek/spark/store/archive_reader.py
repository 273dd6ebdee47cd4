"""Reads an archived topic from a store in a batch: the driver's side, which plans by what the store lists.

Places mean what they mean in a read from a broker: a time stands for the first record of a partition at or after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from odradek.client.start import EARLIEST, LATEST
from odradek.model import TopicPartition
from odradek.objects.archive import ArchivedSegment, archived_segments, archived_topics, find_time, read_state
from odradek.objects.stores import ObjectStore
from odradek.spark.errors import MissingTopicError, OptionError
from odradek.spark.options import AtOffsets, AtTime, Edge, Place
from odradek.spark.store.filters import times_of
from odradek.spark.store.opening import asked, opened
from odradek.spark.store.options import ALWAYS, StoreOptions
from odradek.spark.store.pieces import Piece
from odradek.spark.store.planning import OBJECT_COST_BYTES, grouped

if TYPE_CHECKING:
    import pyarrow as pa

NAMES_MAX = 20  # of topics in an error


class PiecesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)


class ArchiveReader(DataSourceReader):
    """Plans on the driver, reads in tasks; pickled between the two."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._after_ms = ALWAYS.start_ms  # older records need not be read, if Spark hands its filters over

    def partitions(self) -> Sequence[InputPartition]:
        """Find the segments, and cut what lies between both ends."""
        return asked(self._options.target, self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some pieces; Spark invents a partition without any where there is nothing to read."""
        if not isinstance(partition, PiecesPartition):
            return iter(())
        from odradek.spark.store.segments import read_pieces  # noqa: PLC0415 (see spark/source.py)

        options = self._options
        return read_pieces(
            options.target, partition.pieces, options.columns, fail_on_data_loss=options.fail_on_data_loss
        )

    def _plan(self) -> list[InputPartition]:
        store = opened(self._options.target)
        topic = self._options.name
        found = archived_segments(store, topic)
        if not found:
            raise _missing(store, topic)
        by_partition: dict[int, list[ArchivedSegment]] = {}
        for segment in found:
            by_partition.setdefault(segment.partition, []).append(segment)
        pieces: list[Piece] = []
        bounds = _Bounds(store, self._options, by_partition, self._after_ms)
        for number, segments in sorted(by_partition.items()):
            pieces += _pieces(segments, bounds.start(number), bounds.end(number))
        total = sum(piece.size_bytes for piece in pieces)
        wanted = max(math.ceil(total / self._options.partition_bytes), self._options.min_partitions or 1)
        cut = [part for piece in pieces for part in _cut(piece, math.ceil(total / wanted))]
        groups = grouped(
            cut,
            lambda piece: piece.size_bytes + OBJECT_COST_BYTES,
            bytes_max=self._options.partition_bytes,
            at_least=self._options.min_partitions,
        )
        return [PiecesPartition(group) for group in groups]


class FilteringArchiveReader(ArchiveReader):
    """The same, for a Spark that hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the range of times out of the filters; all go back. Only its start leaves something unread."""
        self._after_ms = times_of(filters).start_ms
        return filters


class _Bounds:
    """Where each partition's read starts and ends."""

    def __init__(
        self,
        store: ObjectStore,
        options: StoreOptions,
        segments: Mapping[int, Sequence[ArchivedSegment]],
        after_ms: int,
    ) -> None:
        self._store = store
        self._options = options
        self._segments = segments
        self._after_ms = after_ms
        for place in (options.starting, options.ending):
            self._check_named(place)

    def start(self, number: int) -> int:
        """The first offset of a partition that is to be read."""
        start = self._offset(number, self._options.starting)
        if self._after_ms > ALWAYS.start_ms:
            start = max(start, self._at(number, self._after_ms))
        return start

    def end(self, number: int) -> int:
        """The offset behind the last one that is to be read."""
        return self._offset(number, self._options.ending)

    def _offset(self, number: int, place: Place) -> int:
        segments = self._segments[number]
        if isinstance(place, AtTime):
            partition = TopicPartition(self._options.name, number)
            time_ms = place.by_partition[partition] if place.timestamp_ms is None else place.timestamp_ms
            return self._at(number, time_ms)
        offset = EARLIEST if place is Edge.EARLIEST else LATEST
        if isinstance(place, AtOffsets):
            offset = place.offsets[TopicPartition(self._options.name, number)]
        if offset == EARLIEST:
            return segments[0].base_offset
        return segments[-1].end_offset if offset == LATEST else offset

    def _at(self, number: int, time_ms: int) -> int:
        """The first record at or after a time; the end if none is."""
        for segment in self._segments[number]:
            if read_state(self._store, segment).max_timestamp >= time_ms:
                found = find_time(self._store, segment, time_ms, segment.base_offset)
                if found is not None:
                    return found.offset
        return self._segments[number][-1].end_offset

    def _check_named(self, place: Place) -> None:
        """Offsets and times by partition have to be there for all of them."""
        named = (
            place.offsets if isinstance(place, AtOffsets) else place.by_partition if isinstance(place, AtTime) else ()
        )
        if not named:
            return
        assert isinstance(place, AtOffsets | AtTime)
        archived = {TopicPartition(self._options.name, number) for number in self._segments}
        if set(named) != archived:
            raise OptionError(
                f"{place.option} has to name exactly the partitions that are archived."
                f" Named: {_names(named)}. Archived: {_names(archived)}"
            )


def _pieces(segments: Sequence[ArchivedSegment], start: int, end: int) -> list[Piece]:
    """What of segments lies in [start, end), each offset once: two leaders may have cut the log differently."""
    pieces = []
    for segment in segments:
        low, high = max(segment.base_offset, start), min(segment.end_offset, end)
        if low < high:
            pieces.append(Piece(segment, low, high))
            start = high
    return pieces


def _cut(piece: Piece, bytes_max: int) -> list[Piece]:
    """Cut a piece by offsets into parts of about so many bytes."""
    offsets = piece.end - piece.start
    parts = min(offsets, math.ceil(piece.size_bytes / max(1, bytes_max))) or 1
    edges = [piece.start + offsets * number // parts for number in range(parts + 1)]
    return [piece._replace(start=low, end=high) for low, high in pairwise(edges)]


def _missing(store: ObjectStore, topic: str) -> MissingTopicError:
    names = archived_topics(store)
    there = ", ".join(names[:NAMES_MAX]) + (", ..." if len(names) > NAMES_MAX else "")
    return MissingTopicError(
        f"{store.url} has no archived segment of topic {topic}. There are: {there or 'none of any topic'}."
        " A topic is archived if remote.storage.enable is true, segment by segment as they are full; a channel is"
        " named with channel, not with topic"
    )


def _names(partitions: object) -> str:
    assert isinstance(partitions, Mapping | set)
    return ", ".join(str(partition) for partition in sorted(partitions)) or "none"
