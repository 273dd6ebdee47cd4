"""Checks one segment: its batches, their order and epochs, and what the indexes and the recovery point say of them.

One walk over the batches, in constant memory; where they are kept is `sources`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from odradek.disk.interface import Disk
from odradek.log.backends.file_read import UNINDEXED_BYTES_MAX as UNINDEXED_MAX
from odradek.log.backends.file_segment import INDEX, LOG, TIME_INDEX
from odradek.log.epochs import FILE_NAME as EPOCHS_NAME
from odradek.log.epochs import LeaderEpochs
from odradek.log.recovery import batch_check
from odradek.log.scan import Damage
from odradek.log.segment import Placed
from odradek.log.sources import BatchSource
from odradek.log.state import RECOVERY_POINT_NAME, LogState, RecoveryPoint
from odradek.log.verify_finding import Finding, Totals
from odradek.log.verify_index import FAR, OFFSET_ENTRY, TIME_ENTRY, IndexWatch
from odradek.model import Offset
from odradek.records.errors import RecordError
from odradek.records.header import NO_TIMESTAMP, BatchHeader
from odradek.records.parse import parse_batch

BATCH_BYTES_MAX = 1 << 30  # of one batch, decompressed
_ADVANCE_BYTES = 1 << 20


class _EpochRun(NamedTuple):
    """Batches in a row that disagree with the file of leader epochs in the same way."""

    position: int
    first: Offset
    last: Offset
    epochs: tuple[int, int]  # the batches', the file's


class Beside(NamedTuple):
    """What stands beside the segments, as far as it can be read."""

    point: RecoveryPoint | None
    state: LogState
    epochs: LeaderEpochs


class SegmentCheck:
    """One walk over one segment."""

    def __init__(self, disk: Disk, base: Offset, source: BatchSource, beside: Beside) -> None:
        point = beside.point
        self.path = source.path
        self.next_offset = base
        self.is_unflushed = point is not None and base >= point.segment  # at least its end: recovery will look at it
        self.is_cut = False  # the next start will cut it
        self._base, self._following, self._beside = base, source.following, beside
        self._strict = batch_check(beside.epochs, beside.state)
        self._source = source
        self._size = source.size_bytes
        flushed = point if point is not None and point.segment == base else RecoveryPoint(base, base, 0)
        self._flushed_offset, self._flushed_bytes = flushed.next_offset, flushed.size_bytes
        closed_well = flushed.indexed and self._size == self._flushed_bytes
        self._will_be_mended = self.is_unflushed and not closed_well  # the indexes
        self._flushed_to: Offset | None = None if self._flushed_bytes else base  # the offset that stands at that byte
        self._expected: Offset | None = base
        self._instead: Offset | None = None  # also right: what follows if only the last batch's offset was wrong
        self._hole: tuple[int, int] | None = None  # position and relative offset from which on nothing is known
        self._had_hole = False
        self._max_timestamp, self._max_timestamp_at = NO_TIMESTAMP, 0
        self._epoch_run: _EpochRun | None = None
        self._indexed, self._unindexed_bytes = 0, 0  # the last position in the index; the longest way without one
        paths = [f"{self.path.removesuffix(LOG)}{kind}" for kind in (INDEX, TIME_INDEX)]
        self._offsets = IndexWatch(disk, paths[0], OFFSET_ENTRY, f"byte {{0}} -> offset {base} + {{1}}")
        self._times = IndexWatch(disk, paths[1], TIME_ENTRY, f"timestamp {{1}} -> offset {base} + {{0}}")

    @property
    def end(self) -> Offset | None:
        """The offset behind the last batch; None if the last batches cannot be read."""
        return self.next_offset if self._hole is None else None

    def run(self, totals: Totals, shallow: bool, advance: Callable[[int], None]) -> Iterator[Finding]:
        """Check everything once; closes the source."""
        reported = 0
        try:
            for found in self._source.survey(self._base):
                if isinstance(found, Damage):
                    yield from self._damage(found)
                else:
                    yield from self._batch(*found)
                    if not shallow and not self.is_cut:
                        yield from self._parse(found)
                    totals.batches += 1
                    totals.records += found.header.record_count
                if self.is_cut:
                    break
                if found.position - reported >= _ADVANCE_BYTES:
                    advance(found.position - reported)
                    reported = found.position
            yield from self._finish()
        finally:
            advance(self._size - reported)
            totals.segments += 1
            totals.size_bytes += self._size
            for opened in (self._source, self._offsets, self._times):
                opened.close()

    def _problem(self, at: int, text: str) -> Finding:
        return Finding("problem", self.path, text, "byte", at)

    def _batch(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        if position == self._flushed_bytes:  # recovery begins to read here
            self._expected = self._flushed_offset
        reason = self._strict(header, self._expected)
        if reason is not None and self.is_unflushed and position >= self._flushed_bytes:
            yield self._cut(position, reason)
            return
        is_in_place = reason is None or (yield from self._misfit(position, header))
        if reason is None and self._epoch_run is not None:
            yield from self._end_epoch_run()
        if is_in_place:
            self._instead = None
            yield from self._compare(position, header)
        else:
            self._instead = (self._expected or 0) + header.last_offset_delta + 1
            self._open_hole(position)
        self._expected = self.next_offset = header.next_offset
        if position + header.size_bytes == self._flushed_bytes and is_in_place:
            self._flushed_to = header.next_offset

    def _misfit(self, position: int, header: BatchHeader) -> Generator[Finding, None, bool]:
        """Tell wrong order from a wrong epoch; True if the batch stands where it belongs."""
        base, expected = header.base_offset, self._expected
        fits = expected is None or base in (expected, self._instead) or (self._beside.state.sparse and base > expected)
        if not fits:
            yield self._problem(position, f"offset {base} stands where {expected} belongs; it is not served")
        elif self._strict(header, None) is not None:
            epochs = (header.leader_epoch, self._beside.epochs.epoch_at(header.last_offset))
            if self._epoch_run is None or self._epoch_run.epochs != epochs:
                yield from self._end_epoch_run()
                self._epoch_run = _EpochRun(position, base, header.last_offset, epochs)
            self._epoch_run = self._epoch_run._replace(last=header.last_offset)
        return fits

    def _end_epoch_run(self) -> Iterator[Finding]:
        run, self._epoch_run = self._epoch_run, None
        if run is not None:
            text = f"offsets {run.first} to {run.last} have leader epoch {run.epochs[0]}, {EPOCHS_NAME} says"
            yield self._problem(
                run.position,
                f"{text} {run.epochs[1]}; one of them is damaged, and they are not served. If it is the file, remove "
                "it: the next start learns the epochs from the batches",
            )

    def _compare(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        """Hold a batch against the indexes and the next segment."""
        at, timestamp = header.last_offset - self._base, header.max_timestamp
        if self._following is not None and header.last_offset >= self._following:
            text = f"the segment goes on to offset {header.last_offset}, but the next one begins at {self._following}"
            yield self._problem(position, f"{text}; they overlap, or one of them has a wrong name")
            self._following = None
        if self._hole is not None:
            yield from self._offsets.skip(self._hole[0], position)
            yield from self._times.skip(self._hole[1], header.base_offset - self._base)
            self._hole = None
        largest = timestamp if self._had_hole else None  # behind a hole, a larger one may have stood there
        if timestamp > self._max_timestamp:
            largest, self._max_timestamp, self._max_timestamp_at = timestamp, timestamp, at
        if self._offsets.due <= position:
            yield from self._offsets.meet(position, at, f"the batch there ends with {header.last_offset}")
            self._indexed = position
        self._unindexed_bytes = max(self._unindexed_bytes, position - self._indexed)
        if self._times.due <= at:
            fact = f"the largest so far is {self._max_timestamp}, of offset {self._base + self._max_timestamp_at}"
            yield from self._times.meet(at, largest, fact)

    def _parse(self, placed: Placed) -> Iterator[Finding]:
        try:
            parse_batch(self._source.read(placed), size_max=BATCH_BYTES_MAX)
        except RecordError as error:
            offset = placed.header.base_offset
            text = f"the batch of offset {offset} has a right CRC, but its records cannot be read: {error}"
            yield self._problem(placed.position, f"{text}; it was sent like this, and clients will stumble over it")

    def _damage(self, damage: Damage) -> Iterator[Finding]:
        reason = damage.reason
        not_promised = self.is_unflushed and damage.position >= self._flushed_bytes
        is_tail = self._beside.point is None and self._following is None and damage.resumes is None
        if not_promised or is_tail:
            yield self._cut(damage.position, reason)
            return
        behind = "nothing whole follows in this file"
        if damage.resumes is not None:
            behind = f"offset {damage.resumes.header.base_offset} at byte {damage.resumes.position} is whole again"
        yield self._problem(damage.position, f"{reason}; what stands here is not served, {behind}")
        self._open_hole(damage.position)
        self._expected = None

    def _open_hole(self, position: int) -> None:
        self._had_hole = True
        if self._hole is None:
            self._hole = (position, self.next_offset - self._base)

    def _cut(self, position: int, reason: str) -> Finding:
        self.is_cut = True
        self._open_hole(position)
        text = f"{self._size - position} bytes not flushed when the last process died, the next start cuts them"
        return Finding("note", self.path, f"{text}: {reason}", "byte", position)

    def _finish(self) -> Iterator[Finding]:
        yield from self._end_epoch_run()
        yield from self._finish_point()
        end_at = self.next_offset - self._base
        for index, hole, end in ((self._offsets, 0, self._size), (self._times, 1, end_at)):
            if self._hole is not None:
                yield from index.skip(self._hole[hole], FAR)
            yield from index.finish(end, will_be_mended=self._will_be_mended)
        if self._had_hole or self._following is None or self.is_unflushed or not self._source.has_indexes:
            return  # of the last segment, entries may be in memory
        if self._unindexed_bytes > UNINDEXED_MAX and not self._offsets.wrong:
            text = f"no entry for {self._unindexed_bytes} bytes of the log: some are missing, if index.interval.bytes"
            yield Finding("note", self._offsets.path, f"{text} is smaller; without the file it is made anew")
        at, timestamp, last = self._max_timestamp_at, self._max_timestamp, self._times.last_true
        if timestamp != NO_TIMESTAMP and (last is None or last[1:] != (at, timestamp)) and not self._times.wrong:
            text = f"the last entry is missing: timestamp {timestamp} -> offset {self._base} + {at}"
            meaning = "retention may take the segment for older than it is; without the file it is made anew"
            yield Finding("problem", self._times.path, f"{text}; {meaning}")

    def _finish_point(self) -> Iterator[Finding]:
        """Hold the recovery point against the batches: a wrong one makes the next start cut what is good."""
        expected, found = self._flushed_offset, self._flushed_to
        if self._size < self._flushed_bytes:
            yield self._problem(self._size, f"{self._flushed_bytes - self._size} bytes that were flushed are lost")
        elif (found is not None or not self._had_hole) and found != expected:
            if found is not None and found < expected and self._beside.state.sparse:  # it was truncated in a gap
                return
            what = "no batch ends there" if found is None else f"it is {found}"
            text = f"it says that offset {expected} comes at byte {self._flushed_bytes} of {self.path}; {what}"
            path = f"{self.path.rpartition('/')[0]}/{RECOVERY_POINT_NAME}"
            yield Finding("problem", path, f"{text}; the next start may cut the log there: remove this file")
