"""Reading a log from an offset on, while it is appended to and while retention removes what has been read.

A `LogReader` holds the segment it stands in: its bytes stay readable although their names may be gone. A `ReadJob`
does the same for one read that waits for the disk in another thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from odradek.log.errors import DamagedLogError
from odradek.log.log import PartitionLog
from odradek.log.segment import Chunk, Segment
from odradek.model import Offset


@dataclass(slots=True)
class ReadJob:
    """One read: begun and finished by the log's owner, run anywhere."""

    segments: list[Segment]  # the one that holds the offset, and those up to the next that is not empty
    offset: Offset
    max_bytes: int
    upto: Offset
    directory: str  # of the log
    sparse: bool  # compaction may have removed what is not there

    def run(self) -> Chunk:
        """Read; empty data if there is nothing from there on. Waits for the disk."""
        for segment in self.segments:
            chunk = segment.read(self.offset, self.max_bytes, self.upto)
            if not self.sparse:
                _refuse_gap(self.directory, segment, chunk, self.offset, self.upto)
            if chunk is not None and chunk.data:
                return chunk
        return Chunk(memoryview(b""), self.offset, self.offset)

    def finish(self) -> None:
        """Let the segments go."""
        for segment in self.segments:
            segment.release()


def begin_read(log: PartitionLog, offset: Offset, max_bytes: int, upto: Offset | None = None) -> ReadJob:
    """Prepare a read that another thread can run."""
    segments = [log.segment_at(offset)]
    while (following := log.segment_after(segments[-1], offset)) is not None:
        segments.append(following)
        if following.size_bytes:
            break
    for segment in segments:
        segment.hold()
    limit = log.next_offset if upto is None else min(upto, log.next_offset)
    return ReadJob(segments, offset, max_bytes, limit, log.directory, log.state.sparse)


def _refuse_gap(directory: str, segment: Segment, chunk: Chunk | None, offset: Offset, upto: Offset) -> None:
    """Do not step over records that a segment should have and has not, in a log that was never compacted."""
    if not segment.base_offset <= offset < min(segment.next_offset, upto):
        return
    if chunk is None or not chunk.data or chunk.base_offset > offset:
        missing = f"the records from offset {offset} on are missing"
        raise DamagedLogError(f"{directory}, segment {segment.base_offset}", segment.size_bytes, missing)


class LogReader:
    """A place in a log that moves forward as it is read."""

    def __init__(self, log: PartitionLog, offset: Offset) -> None:
        self.offset = offset  # of the next batch to read, or inside it
        self._log = log
        self._segment = log.segment_at(offset)
        self._segment.hold()
        self._closed = False
        self._cuts = log.cuts

    def _find_again(self) -> None:
        """The log was cut, closed or deleted: what it held may not be the log's any more."""
        segment = self._log.segment_at(self.offset)
        segment.hold()
        self._segment.release()
        self._segment, self._cuts = segment, self._log.cuts

    def read(self, max_bytes: int, *, upto: Offset | None = None) -> Chunk:
        """Give the next whole batches and move behind them; empty data at the end of the log."""
        if self._log.ended or self._log.cuts != self._cuts:
            self._find_again()
        end = self._log.next_offset
        limit = end if upto is None else min(upto, end)
        while True:
            chunk = self._segment.read(self.offset, max_bytes, limit)
            if not self._log.state.sparse:
                _refuse_gap(self._log.directory, self._segment, chunk, self.offset, limit)
            if chunk is not None and chunk.data:
                self.offset = chunk.next_offset
                return chunk
            following = self._log.segment_after(self._segment, self.offset)
            if following is None or following.base_offset >= limit:
                return Chunk(memoryview(b""), self.offset, self.offset)
            following.hold()
            self._segment.release()
            self._segment = following

    def __iter__(self) -> Iterator[Chunk]:
        """All chunks up to where the log ends now."""
        while (chunk := self.read(1 << 20)).data:
            yield chunk

    def close(self) -> None:
        """Let the segment go."""
        if not self._closed:
            self._closed = True
            self._segment.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
