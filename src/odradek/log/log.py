"""A partition's log: an endless run of batches, kept in segments.

One owner calls it, from one thread; what may run elsewhere is handed out as a job (`begin_flush`, `Removal`,
compaction's plan) or done on held segments. Offsets are assigned here and nowhere else. How a log is opened stands
in `recovery.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from odradek.clock import Clock
from odradek.disk.errors import DiskError
from odradek.disk.interface import Buffer, Disk
from odradek.log.chain import Chain
from odradek.log.config import Flush, LogConfig
from odradek.log.epochs import LeaderEpochs
from odradek.log.errors import LogError, LogStoppedError, OffsetOutOfRangeError
from odradek.log.flushing import FlushJob, FlushStats
from odradek.log.incoming import check_new, split, stamp_times, writable
from odradek.log.outcomes import Appended, Removal
from odradek.log.producers import Producers
from odradek.log.retention import SegmentFacts, expired_count
from odradek.log.segment import Backend, Chunk, Mark, Segment, TimestampOffset
from odradek.log.snapshots import ProducerSnapshots
from odradek.log.state import LogState, RecoveryPoint, Swap, set_recovery_point
from odradek.model import Offset
from odradek.records.build import read_control
from odradek.records.header import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader, check_batch, stamp_offset
from odradek.records.parse import parse_batch

_CONTROL_BYTES_MAX = 1 << 16
_new_tuple = tuple.__new__

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Parts:
    """What a log is put together from; `recovery.open_log` does it."""

    disk: Disk
    clock: Clock
    backend: Backend
    state: LogState
    epochs: LeaderEpochs
    producers: Producers
    snapshots: ProducerSnapshots


class PartitionLog:
    """The log of one partition."""

    def __init__(self, parts: Parts, config: LogConfig, segments: list[Segment], point: RecoveryPoint | None) -> None:
        self.directory = parts.state.directory
        self.config = config
        self._stamps_time = config.message_timestamp_type == "LogAppendTime"
        self.state = parts.state
        self.backend = parts.backend
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.flush_stats = FlushStats()
        self.flushed_offset: Offset = point.next_offset if point is not None else 0  # <= next_offset
        self.stopped: Exception | None = None
        self._disk = parts.disk
        self._clock = parts.clock
        self._snapshots = parts.snapshots
        self._chain = Chain(segments)
        self._unflushed: list[Segment] = []  # sealed since the last flush began
        self._unflushed_batches = 0
        self._unflushed_bytes = 0
        self._names_changed = False
        self._flushing: FlushJob | None = None

    # What there is.

    @property
    def log_start(self) -> Offset:
        """The first offset that can be read."""
        return self.state.log_start

    @property
    def next_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self._chain.active.next_offset

    @property
    def safe_offset(self) -> Offset:
        """Up to here (exclusive) records may be acknowledged, as the topic's `flush` setting has it."""
        return self.flushed_offset if self.config.flush is Flush.GROUP else self.next_offset

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(segment.size_bytes for segment in self._chain)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first; the last one is active."""
        return tuple(self._chain)

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""
        self.config = config
        self._stamps_time = config.message_timestamp_type == "LogAppendTime"
        self.backend.configure(config)
        self._chain.active.configure(config)

    # Appending.

    def append(self, data: Buffer, leader_epoch: int = 0) -> Appended:
        """Check batches as a producer sent them, give them their offsets and write them.

        Bytes that can be changed are stamped where they are; others are copied first. An idempotent producer's
        batch that is in the log already is not written again. The answer may leave when `safe_offset` has passed
        `last_offset`.
        """
        if self.stopped is not None:
            raise LogStoppedError(self.directory, self.stopped)
        if not isinstance(data, bytearray):
            data = writable(data)
        append_time = NO_TIMESTAMP
        if self._stamps_time:
            append_time = self._clock.now_ms()
            stamp_times(data, append_time)
        header = check_batch(data)
        if header.size_bytes != len(data):
            return self._append_many(data, leader_epoch, append_time)
        return self._append_one(data, header, leader_epoch, append_time)

    def _append_one(
        self, data: bytearray | memoryview, header: BatchHeader, leader_epoch: int, append_time: int
    ) -> Appended:
        check_new(header, self.config)
        idempotent = header.producer_id != NO_PRODUCER_ID
        if idempotent and (written := self.producers.check(header)) is not None:
            return Appended(written.base_offset, written.last_offset, append_time, duplicate=True)
        base = self._chain.active.next_offset
        last = base + header.last_offset_delta
        if leader_epoch != self.epochs.latest:
            self._begin_epoch(leader_epoch, base)
        stamp_offset(data, base, leader_epoch)
        self._write(data, base, last, header.max_timestamp)
        if idempotent:
            self._remember(header._replace(base_offset=base), data)
        return _new_tuple(Appended, (base, last, append_time, False))  # half the time of Appended(...)

    def _append_many(self, data: bytearray | memoryview, leader_epoch: int, append_time: int) -> Appended:
        batches = split(data)
        for header, _ in batches:
            check_new(header, self.config)
        if any(header.producer_id != NO_PRODUCER_ID for header, _ in batches):
            # Each batch's sequences are checked against those before it, so they go one by one.
            results = [self._append_one(batch, header, leader_epoch, append_time) for header, batch in batches]
            return Appended(results[0].base_offset, results[-1].last_offset, append_time)
        first = offset = self.next_offset
        if leader_epoch != self.epochs.latest:
            self._begin_epoch(leader_epoch, first)
        marks, at = [], 0
        for header, batch in batches:
            stamp_offset(data, offset, leader_epoch, at)
            marks.append(Mark(at, offset, offset + header.last_offset_delta, header.max_timestamp))
            offset += header.last_offset_delta + 1
            at += len(batch)
        self._write_many(data, marks)
        return Appended(first, offset - 1, append_time)

    def append_replicated(self, data: Buffer) -> Appended:
        """Write batches as their leader stored them: offsets, epochs and gaps stay as they are."""
        if self.stopped is not None:
            raise LogStoppedError(self.directory, self.stopped)
        batches = split(data)
        offset, at, marks = self.next_offset, 0, []
        for header, batch in batches:
            if header.base_offset < offset:
                raise LogError(f"{self.directory} continues at {offset}; the leader sent {header.base_offset}")
            if header.base_offset > offset and not self.state.sparse:
                self.state.sparse = True
                self._guard(self.state.save)
            if header.leader_epoch != self.epochs.latest:
                self._begin_epoch(header.leader_epoch, header.base_offset)
            marks.append(Mark(at, header.base_offset, header.last_offset, header.max_timestamp))
            offset = header.next_offset
            at += len(batch)
        self._write_many(data, marks)
        for header, batch in batches:
            if header.producer_id != NO_PRODUCER_ID:
                self._remember(header, batch)
        return Appended(marks[0].base_offset, offset - 1, NO_TIMESTAMP)

    def _write(self, data: Buffer, base_offset: Offset, last_offset: Offset, timestamp: int) -> None:
        """Bring one batch into the active segment, or into a new one if it does not fit."""
        try:
            if not self._chain.active.append(data, last_offset, timestamp):
                self.roll(base_offset)
                self._chain.active.append(data, last_offset, timestamp)
        except DiskError as error:
            raise self._stop(error) from error
        self._unflushed_batches += 1
        self._unflushed_bytes += len(data)

    def _write_many(self, data: Buffer, marks: list[Mark]) -> None:
        """Bring batches into the active segment with one write if all of them fit, else one by one."""
        try:
            fitted = self._chain.active.append_many(data, marks)
        except DiskError as error:
            raise self._stop(error) from error
        if fitted:
            self._unflushed_batches += len(marks)
            self._unflushed_bytes += len(data)
            return
        view, ends = memoryview(data), [*(mark.at for mark in marks[1:]), len(data)]
        for mark, end in zip(marks, ends, strict=True):
            self._write(view[mark.at : end], mark.base_offset, mark.last_offset, mark.max_timestamp)

    def roll(self, base_offset: Offset | None = None) -> None:
        """Seal the active segment and begin another; an empty one stays as it is."""
        active = self._chain.active
        base = self.next_offset if base_offset is None else base_offset
        if not active.size_bytes and active.base_offset == base:
            return
        active.seal()
        self._snapshots.save(self.producers, self.next_offset)
        self._unflushed.append(active)
        self._chain.add(self.backend.create(base))
        self._names_changed = True

    def roll_if_older(self, now_ms: int) -> None:
        """Seal an active segment whose first record is older than segment.ms, although nothing new comes."""
        active = self._chain.active
        first = active.first_timestamp()
        if active.size_bytes and first != NO_TIMESTAMP and now_ms - first > self.config.segment_ms:
            self._guard(self.roll)

    def _begin_epoch(self, epoch: int, start: Offset) -> None:
        self._guard(self.epochs.assign, epoch, start)

    def _remember(self, header: BatchHeader, batch: Buffer) -> None:
        coordinator_epoch = -1
        if header.is_control:
            _, coordinator_epoch = read_control(parse_batch(batch, size_max=_CONTROL_BYTES_MAX)[0])
        self.producers.update(header, self._clock.now_ms(), coordinator_epoch)

    # Failing: once what is on the disk is in doubt, nothing more is written.

    def _guard(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except DiskError as error:
            raise self._stop(error) from error

    def _stop(self, error: DiskError) -> LogStoppedError:
        if self.stopped is None:
            self.stopped = error
            logger.critical("%s stops: %s", self.directory, error)
        return LogStoppedError(self.directory, self.stopped)

    # Reading.

    def read(self, offset: Offset, max_bytes: int, *, upto: Offset | None = None, nowait: bool = False) -> Chunk | None:
        """Give whole batches from the one that holds `offset`, below `upto`; at least one, however large.

        Empty data: there is nothing yet. With `nowait`, None: the disk would have to be waited for; ask again in a
        thread, through a `LogReader`, which holds the segment.
        """
        end = self.next_offset
        if not self.state.log_start <= offset <= end:
            raise OffsetOutOfRangeError(self.directory, offset, self.state.log_start, end)
        limit = end if upto is None or upto > end else upto
        number = self._chain.find(offset)
        segment = self._chain.get(number)
        while segment is not None and segment.base_offset < limit:
            chunk = segment.read(offset, max_bytes, limit, nowait=nowait)
            if chunk is None or chunk.data:
                return chunk
            number += 1
            segment = self._chain.get(number)
        return Chunk(memoryview(b""), offset, offset)

    def segment_at(self, offset: Offset) -> Segment:
        """The segment that holds an offset."""
        if not self.log_start <= offset <= self.next_offset:
            raise OffsetOutOfRangeError(self.directory, offset, self.log_start, self.next_offset)
        return self._chain.since(offset)[0]

    def segment_after(self, segment: Segment) -> Segment | None:
        """The next segment, also of one that is not part of the log any more."""
        return self._chain.after(segment)

    def has_sealed(self, segments: list[Segment]) -> bool:
        """Whether these are still segments of this log, in a row and sealed."""
        return self._chain.holds(segments)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after this time; None if all are older."""
        for segment in self._chain:
            if segment.size_bytes and segment.max_timestamp() >= timestamp:
                found = segment.offset_for_timestamp(timestamp, self.log_start)
                if found is not None:
                    return found
        return None

    def newest_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp."""
        largest = max((segment.max_timestamp() for segment in self._chain if segment.size_bytes), default=-1)
        return self.offset_for_timestamp(largest) if largest != NO_TIMESTAMP else None

    # Flushing.

    def begin_flush(self) -> FlushJob | None:
        """Cover all that is written now; None if all of it is safe, or a flush is under way."""
        clean = self.flushed_offset == self.next_offset and not self._names_changed
        if clean or self._flushing is not None:
            return None
        if self.stopped is not None:
            raise LogStoppedError(self.directory, self.stopped)
        active, snapshot_offsets = self._chain.active, self._snapshots.begin_sync()
        job = FlushJob(
            disk=self._disk,
            directory=self.directory,
            sealed=self._unflushed,
            active=active,
            snapshots=self._snapshots,
            snapshot_offsets=snapshot_offsets,
            sync_names=self.backend.sync_names if self._names_changed or snapshot_offsets else None,
            point=RecoveryPoint(active.next_offset, active.base_offset, active.size_bytes),
            turn=self.flush_stats.flushes,
            batches=self._unflushed_batches,
            size_bytes=self._unflushed_bytes,
        )
        for segment in (*job.sealed, active):
            segment.hold()
        self._unflushed, self._unflushed_batches, self._unflushed_bytes = [], 0, 0
        self._names_changed = False
        self._flushing = job
        return job

    def finish_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """Take a job's result. A failed flush is never tried again: the system may have dropped the pages."""
        self._flushing = None
        for segment in (*job.sealed, job.active):
            segment.release()
        if error is not None:
            raise self._stop(error if isinstance(error, DiskError) else DiskError("flush", self.directory, str(error)))
        if not job.cancelled:
            self.flushed_offset = job.point.next_offset
            self._snapshots.finish_sync(job.snapshot_offsets)
            self.flush_stats.count(job.batches, job.size_bytes, job.seconds)

    def flush(self) -> None:
        """Return when all that is written is on stable storage. Waits here; a broker uses `GroupFlusher`."""
        job = self.begin_flush()
        if job is None:
            return
        try:
            job.run()
        except DiskError as error:
            self.finish_flush(job, error)
        self.finish_flush(job)

    def checkpoint(self) -> None:
        """Write out what makes the next start after a crash short: index entries and producers."""
        if self.stopped is None:
            self.producers.expire(self._clock.now_ms())
            self._guard(self._chain.active.checkpoint)
            self._guard(self._snapshots.save, self.producers, self.next_offset)

    # Giving up what is old.

    def expire(self, now_ms: int, upto: Offset | None = None) -> Removal | None:
        """Let go of the segments that retention no longer keeps; run what comes back, here or in a thread."""
        facts = [SegmentFacts(s.next_offset, s.size_bytes, s.max_timestamp()) for s in self._chain.sealed]
        facts.append(SegmentFacts(self.next_offset, self._chain.active.size_bytes, NO_TIMESTAMP))
        limit = min(self._removable, self.next_offset if upto is None else upto)
        count = expired_count(facts, self.config, log_start=self.log_start, upto=limit, now_ms=now_ms)
        for segment, fact in zip(self._chain.sealed[:count], facts, strict=False):
            if segment.max_timestamp(confirmed=True) != fact.max_timestamp:
                return self.expire(now_ms, upto)  # an index lied, and has been rebuilt
        return self._let_go(count) if count else None

    def delete_records(self, offset: Offset) -> Removal:
        """Move the log start up to an offset; run what comes back before the answer leaves."""
        if not self.log_start <= offset <= self.next_offset:
            raise OffsetOutOfRangeError(self.directory, offset, self.log_start, self.next_offset)
        self.state.log_start = offset
        limit = min(self._removable, offset)
        return self._let_go(sum(1 for segment in self._chain.sealed if segment.next_offset <= limit))

    @property
    def _removable(self) -> Offset:
        """Segments below this can go without the producers being forgotten, should the machine die."""
        needed = len(self.producers) and self.config.flush is Flush.GROUP
        return self._snapshots.safe_offset if needed else self.next_offset

    def _let_go(self, count: int) -> Removal:
        gone = self._chain.drop_oldest(count)
        self._unflushed = [segment for segment in self._unflushed if segment not in gone]
        self.state.log_start = max(self.state.log_start, self._chain.first_offset)
        # Not from the log start: batches before it in the same segment are still read, and checked by their epochs.
        self._guard(self.epochs.truncate_start, self._chain.first_offset)
        return Removal(self.state, gone)

    def replace(self, replaced: list[Segment], cleaned_to: Offset) -> None:
        """Put a compacted segment in the place of those it was made from (`compaction.py`)."""
        self._guard(self._replace, replaced, cleaned_to)

    def _replace(self, replaced: list[Segment], cleaned_to: Offset) -> None:
        bases = [segment.base_offset for segment in replaced]
        self.state.swap = Swap(bases[0], bases)
        self.state.sparse = True
        self.state.cleaned_to = cleaned_to
        self.state.save()  # from here on a start finishes what follows
        self.backend.install_replacement(bases[0], bases)
        segment = self.backend.open(bases[0])
        segment.adopt(replaced[-1].next_offset)
        self._chain.replace(replaced, segment)
        for old in replaced:
            old.retire()
        self.state.swap = None
        self.state.save()

    def truncate(self, offset: Offset) -> None:
        """Remove the batch that holds `offset` and all that follow, durably."""
        if offset < self._chain.first_offset:
            self.start_over(offset)
        elif offset < self.next_offset:
            self._guard(self._truncate, offset)

    def _truncate(self, offset: Offset) -> None:
        self._cancel_flush()
        number = self._chain.find(offset)
        # Until all is done, nothing from here on counts as flushed: a crash in the middle leaves only more to check.
        base = self._chain.since(offset)[0].base_offset
        set_recovery_point(self._disk, self.directory, RecoveryPoint(base, base, 0))
        for segment in self._chain.drop_after(number):
            segment.delete()
        self._chain.active.truncate(offset)
        for segment in self._unflushed:
            if segment is not self._chain.active and self._chain.holds([segment]):
                segment.sync(sealed=True)
        self._chain.active.sync()
        self.backend.sync_names()
        self._after_cut()

    def start_over(self, offset: Offset) -> None:
        """Throw everything away and go on at `offset`: what a follower does that fell too far behind."""
        self._guard(self._start_over, offset)

    def _start_over(self, offset: Offset) -> None:
        self._cancel_flush()
        set_recovery_point(self._disk, self.directory, RecoveryPoint(offset, offset, 0))
        for segment in reversed(self.segments):
            segment.delete()
        self._chain = Chain([self.backend.create(offset)])
        self.backend.sync_names()
        self.state.log_start = offset
        self.state.save()
        self._after_cut()

    def _cancel_flush(self) -> None:
        """Wait for a flush that runs in another thread, and see that one that has not begun does nothing."""
        if self._flushing is not None:
            self._flushing.cancel()

    def _after_cut(self) -> None:
        """Bring everything else in line with a log that has become shorter; all of it is on stable storage."""
        end = self.next_offset
        self._unflushed, self._unflushed_batches, self._unflushed_bytes = [], 0, 0
        self._names_changed = False
        self.flushed_offset = end
        self.epochs.truncate_end(end)
        if max(self.state.log_start, self.state.cleaned_to) > end:
            self.state.log_start = min(self.state.log_start, end)
            self.state.cleaned_to = min(self.state.cleaned_to, end)
            self.state.save()
        self.reload_producers()
        active = self._chain.active
        point = RecoveryPoint(end, active.base_offset, active.size_bytes)
        set_recovery_point(self._disk, self.directory, point)

    def reload_producers(self) -> None:
        """Learn the producers from the last snapshot and the headers after it."""
        start = self._snapshots.restore(self.producers, self.next_offset) or self._chain.first_offset
        now = self._clock.now_ms()
        for segment in self._chain.since(start):
            for _, header in segment.batches(start, lenient=True):
                if header.producer_id == NO_PRODUCER_ID or header.base_offset < start:
                    continue
                if header.is_control:
                    chunk = segment.read(header.base_offset, 1, header.next_offset)
                    self._remember(header, chunk.data if chunk is not None else b"")
                else:
                    self.producers.update(header, now)

    def sync_snapshots(self) -> None:
        """Bring the producer snapshots to stable storage here and now; otherwise the next flush does."""
        offsets = self._snapshots.begin_sync()
        self._snapshots.sync(offsets)
        self.backend.sync_names()
        self._snapshots.finish_sync(offsets)

    def close(self) -> None:
        """Flush, write out everything, give back what is open."""
        if self.stopped is None:
            self.flush()
            self.checkpoint()
            self._guard(self._sync_indexes)
        for segment in self._chain:
            segment.close()

    def abandon(self) -> None:
        """Close without keeping anything: the partition is being deleted."""
        self._cancel_flush()
        self.stopped = LogError("it is deleted")
        for segment in self._chain:
            segment.close()

    def _sync_indexes(self) -> None:
        active = self._chain.active
        active.sync(sealed=True)
        self.sync_snapshots()
        point = RecoveryPoint(self.next_offset, active.base_offset, active.size_bytes, indexed=True)
        set_recovery_point(self._disk, self.directory, point)
