"""Checks a partition's files against each other: batches, indexes, leader epochs, recovery point, log state.

It reads, repairs nothing and prints nothing; what it finds comes as `Finding`s, in constant memory. A *problem*: bytes
that were promised are not as they were written, or a file misleads its readers. A *note*: something that the next
start puts right by itself (a torn tail behind the recovery point, leftovers of a crash).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk, File
from odradek.log.backends.file_read import UNINDEXED_BYTES_MAX as UNINDEXED_MAX
from odradek.log.backends.file_segment import INDEX, LOG, TIME_INDEX, segment_path
from odradek.log.epochs import FILE_NAME as EPOCHS_NAME
from odradek.log.epochs import LeaderEpochs
from odradek.log.producers import Producers
from odradek.log.recovery import batch_check
from odradek.log.scan import Damage, survey
from odradek.log.segment import BatchCheck
from odradek.log.state import RECOVERY_POINT_NAME, STATE_NAME, LogState, RecoveryPoint, read_recovery_point
from odradek.model import Offset
from odradek.records.errors import RecordError
from odradek.records.header import NO_TIMESTAMP, BatchHeader
from odradek.records.parse import parse_batch

BATCH_BYTES_MAX = 1 << 30  # of one batch, decompressed
WRONG_ENTRIES_SHOWN_MAX = 10  # of one index; the others are counted
_ADVANCE_BYTES = 1 << 20
_INDEX_BLOCK_ENTRIES = 8192
_OFFSET_ENTRY = struct.Struct(">II")  # last offset of a batch, relative to the segment's base; its position
_TIME_ENTRY = struct.Struct(">qI")  # largest timestamp so far; relative last offset of the batch that has it
_KAFKA_METADATA = "partition.metadata"
_FAR = 1 << 70  # beyond every position and offset

_SEGMENT_FILE = re.compile(r"(?P<base>[0-9]{20})(?P<kind>\.log|\.index|\.timeindex)")
_SNAPSHOT_FILE = re.compile(r"[0-9]{20}\.snapshot")
_BESIDE = {  # what is lost with each file that stands beside the segments
    STATE_NAME: "the log start and whether compaction left gaps are not known; the next start guesses both",
    RECOVERY_POINT_NAME: "the next start has to read and check the whole log",
    EPOCHS_NAME: "the next start learns the leader epochs from the batches, if they are whole",
}


class Finding(NamedTuple):
    """One thing that a person should know of, and where it stands."""

    kind: Literal["problem", "note"]
    path: str
    text: str
    unit: Literal["byte", "entry", ""] = ""  # what `at` counts, from 0; empty: the file as a whole
    at: int = 0


@dataclass(slots=True)
class Totals:
    """What has been looked at so far."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0  # of the log files


def segments_in(disk: Disk, directory: str) -> list[Offset]:
    """The base offsets of the log files in a directory, in order."""
    matches = (_SEGMENT_FILE.fullmatch(entry.name) for entry in disk.list(directory) if not entry.is_directory)
    return sorted(int(match["base"]) for match in matches if match is not None and match["kind"] == LOG)


def has_partition_files(disk: Disk, directory: str) -> bool:
    """Whether a directory is a partition's: it has a segment's files, or those that stand beside them."""
    return any(entry.name in _BESIDE or _SEGMENT_FILE.fullmatch(entry.name) for entry in disk.list(directory))


def loose_check(base: Offset | None, following: Offset | None) -> BatchCheck:
    """A check for `survey` that lets every whole batch pass, so that order and epochs can be judged apart.

    Only what is found in search of the next batch behind damage must have offsets of this segment.
    """

    def check(header: BatchHeader, expected: Offset | None) -> str | None:
        is_possible = (base or 0) <= header.base_offset <= header.last_offset < (following or _FAR)
        return None if expected is not None or is_possible else "this is no batch"

    return check


class _Entry(NamedTuple):
    """An index entry: of which place it speaks, and what it claims of it."""

    number: int
    place: int  # a position, or a relative offset in a time index
    claim: int  # a relative offset, or a timestamp


class _IndexWatch:
    """Follows the entries of an index while the batches go by, and says which of them are not true.

    They are sorted by place, so that the head of the queue tells whether one is due. The entry behind it is known,
    too, so that one wrong place does not make all that follow look wrong.
    """

    def __init__(self, disk: Disk, path: str, form: struct.Struct, words: str) -> None:
        self.path = path
        self.wrong = 0
        self.last_true: _Entry | None = None
        self._form, self._words = form, words
        self._size = 0
        self._failure: DiskError | None = None
        self._file = disk.open(path) if disk.exists(path) else None  # an index without entries has none
        self._entries = self._read(self._file) if self._file is not None else iter(())
        self._head, self._behind = next(self._entries, None), next(self._entries, None)
        self.due = self._next_due()  # the next place at which an entry has to be judged

    def _read(self, file: File) -> Iterator[_Entry]:
        block = _INDEX_BLOCK_ENTRIES * self._form.size
        try:
            self._size = file.size()
            end = self._size - self._size % self._form.size
            for position in range(0, end, block):
                data, first = file.read(min(block, end - position), position), position // self._form.size
                for number, (claim, place) in enumerate(self._form.iter_unpack(data), first):
                    yield _Entry(number, place, claim)
        except DiskError as error:
            self._failure = error
            self.wrong += 1

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()

    def _next_due(self) -> int:
        return min((entry.place for entry in (self._head, self._behind) if entry is not None), default=_FAR)

    def _take(self, *, behind: bool = False) -> _Entry:
        """Remove the head, or the one behind it."""
        taken = self._behind if behind else self._head
        assert taken is not None
        if not behind:
            self._head = self._behind
        self._behind = next(self._entries, None)
        self.due = self._next_due()
        return taken

    def meet(self, place: int, truth: int | None, fact: str = "") -> Iterator[Finding]:
        """Judge the entries up to a place where a batch stands. `truth`: what its entry says; None: it has none."""
        while self.due <= place:
            assert self._head is not None
            if self._head.place > place:  # out of order: the head or the one behind it is wrong
                is_head_wrong = self._behind is not None and self._behind[1:] == (place, truth)
                taken = self._take(behind=not is_head_wrong)
                yield from self._accuse(taken, taken.place, "it is out of order")
            elif self._head[1:] == (place, truth) and (self.last_true is None or self.last_true.place < place):
                self.last_true = self._take()
            else:
                yield from self._accuse(self._take(), place, fact)

    def _accuse(self, entry: _Entry, place: int, fact: str) -> Iterator[Finding]:
        self.wrong += 1
        if self.wrong > WRONG_ENTRIES_SHOWN_MAX:
            return
        if self.last_true is not None and entry.place <= self.last_true.place:
            fact = "it is out of order"
        elif entry.place != place:
            fact = "there is no such batch"
        claim = self._words.format(entry.place, entry.claim)
        yield Finding("problem", self.path, f"{claim}: {fact}", "entry", entry.number)

    def skip(self, start: int, end: int) -> Iterator[Finding]:
        """Pass over entries for places whose batches cannot be read: nobody knows whether they are true."""
        yield from self.meet(start - 1, None)
        while self._head is not None and self.due < end:
            self._take(behind=self._head.place >= end)

    def finish(self, end: int, *, will_be_mended: bool) -> Iterator[Finding]:
        """Judge what is left when the last batch, which ends before `end`, has gone by."""
        path, ragged = self.path, self._size % self._form.size
        if self._failure is not None:
            yield _unreadable(self._failure)
        elif ragged:
            text = f"the file ends inside an entry: {ragged} bytes are left over, an entry has {self._form.size}"
            yield Finding("note" if will_be_mended else "problem", path, text, "byte", self._size - ragged)
        yield from self.meet(end - 1, None)
        if will_be_mended and self._head is not None:
            text = "the entries from here on speak of batches that are not there; the next start cuts them"
            yield Finding("note", path, text, "entry", self._head.number)
            return
        while self._head is not None:
            yield from self._accuse(self._take(), _FAR, "")
        if self.wrong > WRONG_ENTRIES_SHOWN_MAX:
            text = f"{self.wrong - WRONG_ENTRIES_SHOWN_MAX} more entries are wrong; without the file it is made anew"
            yield Finding("problem", path, text)


class _EpochRun(NamedTuple):
    """Batches in a row that disagree with the file of leader epochs in the same way."""

    position: int
    first: Offset
    last: Offset
    epochs: tuple[int, int]  # the batches', the file's


class _Beside(NamedTuple):
    """What stands beside the segments, as far as it can be read."""

    point: RecoveryPoint | None
    state: LogState
    epochs: LeaderEpochs


class _SegmentCheck:
    """One walk over one segment."""

    def __init__(self, disk: Disk, directory: str, base: Offset, following: Offset | None, beside: _Beside) -> None:
        point = beside.point
        self.path = segment_path(directory, base, LOG)
        self.next_offset = base
        self.is_unflushed = point is not None and base >= point.segment  # at least its end: recovery will look at it
        self.is_cut = False  # the next start will cut it
        self._base, self._following, self._beside = base, following, beside
        self._strict = batch_check(beside.epochs, beside.state)
        self._file = disk.open(self.path)
        self._size = self._file.size()
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
        paths = [segment_path(directory, base, kind) for kind in (INDEX, TIME_INDEX)]
        self._offsets = _IndexWatch(disk, paths[0], _OFFSET_ENTRY, f"byte {{0}} -> offset {base} + {{1}}")
        self._times = _IndexWatch(disk, paths[1], _TIME_ENTRY, f"timestamp {{1}} -> offset {base} + {{0}}")

    @property
    def end(self) -> Offset | None:
        """The offset behind the last batch; None if the last batches cannot be read."""
        return self.next_offset if self._hole is None else None

    def run(self, totals: Totals, shallow: bool, advance: Callable[[int], None]) -> Iterator[Finding]:
        """Check everything once; closes the files."""
        reported = 0
        check = loose_check(self._base, self._following)
        try:
            for found in survey(self._file, 0, self._size, check, self._base, self._base):
                if isinstance(found, Damage):
                    yield from self._damage(found)
                else:
                    yield from self._batch(*found)
                    if not shallow and not self.is_cut:
                        yield from self._parse(*found)
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
            for opened in (self._file, self._offsets, self._times):
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

    def _parse(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        try:
            parse_batch(self._file.read(header.size_bytes, position), size_max=BATCH_BYTES_MAX)
        except RecordError as error:
            text = f"the batch of offset {header.base_offset} has a right CRC, but its records cannot be read: {error}"
            yield self._problem(position, f"{text}; it was sent like this, and clients will stumble over it")

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
                yield from index.skip(self._hole[hole], _FAR)
            yield from index.finish(end, will_be_mended=self._will_be_mended)
        if self._had_hole or self._following is None or self.is_unflushed:  # of the last, entries may be in memory
            return
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


def verify_partition(
    disk: Disk, directory: str, totals: Totals, *, shallow: bool = False, advance: Callable[[int], None] | None = None
) -> Iterator[Finding]:
    """Check one partition; `shallow`: do not look inside the batches. `advance` hears of the bytes read."""
    totals.partitions += 1
    try:  # the recovery point first: while a broker runs, what is flushed grows
        beside = _Beside(read_recovery_point(disk, directory), LogState(disk, directory), LeaderEpochs(disk, directory))
        bases = segments_in(disk, directory)
        yield from _check_beside(disk, directory, beside, bases)
        yield from _check_names(disk, directory, bases)
    except DiskError as error:
        yield _unreadable(error)
        return
    if beside.point is not None and bases and beside.point.segment not in bases and beside.point.segment > bases[0]:
        beside = beside._replace(point=None)
    end, is_torn = None, False  # the log's end, if it is known
    for base, following in zip(bases, [*bases[1:], None], strict=False):
        path = segment_path(directory, base, LOG)
        if is_torn:
            yield Finding("note", path, "it stands, unflushed, behind a torn segment; the next start removes it")
            continue
        try:
            check = _SegmentCheck(disk, directory, base, following, beside)
            yield from check.run(totals, shallow, advance or (lambda _: None))
        except DiskError as error:
            yield _unreadable(error)
            end = None
            continue
        lost = following is not None and check.end is not None and check.end < following and not beside.state.sparse
        is_torn = check.is_unflushed and (check.is_cut or lost)
        if lost and not is_torn:
            text = f"the offsets {check.end} to {following} - 1 are missing: the segment ends before the next begins"
            yield Finding("problem", path, text)
        end = check.end
    if end is not None and end < beside.state.log_start:
        text = f"the log begins at {beside.state.log_start}, but ends at {end}; the next start throws all of it away"
        yield Finding("problem", f"{directory}/{STATE_NAME}", text)


def _unreadable(error: DiskError) -> Finding:
    return Finding("problem", error.path, f"it cannot be read: {error.reason}")


def _check_beside(disk: Disk, directory: str, beside: _Beside, bases: list[Offset]) -> Iterator[Finding]:
    """Look at the small files, each for itself and against the names of the segments."""
    point, state, epochs = beside
    readable = {STATE_NAME: state.known, RECOVERY_POINT_NAME: point is not None, EPOCHS_NAME: epochs.known}
    for name, meaning in _BESIDE.items():
        if not readable[name]:
            path = f"{directory}/{name}"
            there = disk.exists(path)
            text = "its content makes no sense" if there else "there is no such file"
            yield Finding("problem" if there else "note", path, f"{text}; {meaning}")
    is_lost = point is not None and point.segment not in bases  # unless it is older than all, and was let go
    if point is not None and is_lost and (point.segment > bases[0] if bases else point.next_offset > state.log_start):
        text = f"segment {point.segment} was flushed up to offset {point.next_offset}; that segment is not there"
        yield Finding("problem", f"{directory}/{RECOVERY_POINT_NAME}", text)
    if state.known and bases and state.log_start < bases[0]:
        text = f"the log begins at {state.log_start}, but the first segment at {bases[0]}; what stood between is lost"
        yield Finding("problem", f"{directory}/{STATE_NAME}", text)
    if state.swap is not None:
        yield Finding("note", f"{directory}/{STATE_NAME}", "a compaction is half in place; the next start finishes it")


def _check_names(disk: Disk, directory: str, bases: list[Offset]) -> Iterator[Finding]:
    """Name the files that belong to no segment."""
    for entry in sorted(disk.list(directory)):
        path = f"{directory}/{entry.name}"
        segment = _SEGMENT_FILE.fullmatch(entry.name)
        if segment is not None and int(segment["base"]) not in bases:
            yield Finding("note", path, "its log is not there; the next start removes it")
        elif _SNAPSHOT_FILE.fullmatch(entry.name):
            if not Producers(expiration_ms=0, count_max=1).restore(disk.read_file(path) or b""):
                yield Finding("note", path, "it is not whole; the next start passes it over")
        elif entry.name == _KAFKA_METADATA:
            yield Finding("note", path, "it is Apache Kafka's and has the topic's id; Odradek leaves it alone")
        elif segment is None and entry.name not in _BESIDE:
            yield Finding("note", path, "it belongs to no segment: a leftover that nothing reads")
