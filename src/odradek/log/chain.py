"""The segments of a log in a row: finding the one that holds an offset, in O(log n), and changing the ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from odradek.log.errors import DamagedLogError
from odradek.log.segment import Chunk, Segment, TimestampOffset
from odradek.model import Offset
from odradek.records.header import NO_TIMESTAMP


class Chain:
    """Segments in the order of their offsets. Never empty; the last one is active."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]  # of the same segments, for bisecting
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first_offset(self) -> Offset:
        """Where the oldest segment begins."""
        return self._bases[0]

    @property
    def sealed(self) -> list[Segment]:
        """All but the active one, oldest first."""
        return self._segments[:-1]

    def find(self, offset: Offset) -> int:
        """The number of the segment that holds an offset."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def get(self, number: int) -> Segment | None:
        """A segment by its number; None behind the last."""
        return self._segments[number] if number < len(self._segments) else None

    def read(
        self, offset: Offset, max_bytes: int, limit: Offset, *, sparse: bool, nowait: bool, name: str
    ) -> Chunk | None:
        """Give batches below `limit` from the segment that has `offset`, or, where there are gaps, from a later one.

        Empty data: there are none. None, only with `nowait`: the disk would have to be waited for.
        """
        for number in range(self.find(offset), len(self._segments)):
            segment = self._segments[number]
            if segment.base_offset >= limit:
                break
            chunk = segment.read(offset, max_bytes, limit, nowait=nowait)
            if chunk is None or (chunk.data and (chunk.base_offset <= offset or sparse)):
                return chunk
            if offset < min(segment.next_offset, limit) and not sparse:
                missing = f"the records from offset {offset} on are missing"
                raise DamagedLogError(f"{name}, segment {segment.base_offset}", segment.size_bytes, missing)
        return Chunk(memoryview(b""), offset, offset)

    def since(self, offset: Offset) -> list[Segment]:
        """The segment that holds an offset, and all that follow."""
        return self._segments[self.find(offset) :]

    def after(self, segment: Segment) -> Segment | None:
        """The next segment, also of one that is not part of the log any more."""
        return self.get(bisect_right(self._bases, segment.base_offset))

    def onward(self, segment: Segment, offset: Offset) -> Segment | None:
        """Where to read on from an offset when a segment has no more, though it may not be part of this any more."""
        following = self.since(max(offset, segment.next_offset))[0]
        return following if following is not segment else self.after(segment)

    def offset_for_timestamp(self, timestamp: int, from_offset: Offset) -> TimestampOffset | None:
        """The first record at or after a time and an offset."""
        for segment in self._segments:
            if segment.size_bytes and segment.max_timestamp() >= timestamp:
                found = segment.offset_for_timestamp(timestamp, from_offset)
                if found is not None:
                    return found
        return None

    def max_timestamp(self) -> int:
        """The largest timestamp of all records; -1 if there is none."""
        return max((segment.max_timestamp() for segment in self._segments if segment.size_bytes), default=NO_TIMESTAMP)

    def add(self, segment: Segment) -> None:
        """Go on with another active segment."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def drop_oldest(self, count: int) -> list[Segment]:
        """Let go of the oldest segments; the active one stays."""
        gone = self._segments[: min(count, len(self._segments) - 1)]
        del self._segments[: len(gone)], self._bases[: len(gone)]
        return gone

    def drop_after(self, number: int) -> list[Segment]:
        """Let go of all behind the segment with this number, newest first; it becomes active."""
        gone = self._segments[number + 1 :][::-1]
        del self._segments[number + 1 :], self._bases[number + 1 :]
        self.active = self._segments[-1]
        return gone

    def replace(self, replaced: list[Segment], segment: Segment) -> None:
        """Put one segment in the place of several that stand in a row."""
        at = self._bases.index(replaced[0].base_offset)
        self._segments[at : at + len(replaced)] = [segment]
        self._bases[at : at + len(replaced)] = [segment.base_offset]

    def holds(self, segments: list[Segment]) -> bool:
        """Whether these segments stand in a row here, and none of them is active."""
        at = self.find(segments[0].base_offset)
        return self._segments[at : at + len(segments)] == segments and self.active not in segments
