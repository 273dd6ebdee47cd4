"""A partition's log: an endless run of batches, kept in segments.

One owner calls it, from one thread; what may run elsewhere is handed out as a job (`begin_flush`, `Removal`,
compaction's plan) or done on held segments. Offsets are assigned here and nowhere else. How a log is opened stands
in `recovery.py`.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from odradek.disk.errors import DiskError
from odradek.disk.interface import Buffer
from odradek.log.chain import Chain
from odradek.log.config import Flush, LogConfig
from odradek.log.durability import Durability
from odradek.log.errors import (
    LogClosedError,
    LogDeletedError,
    LogError,
    LogStoppedError,
    OffsetOutOfRangeError,
)
from odradek.log.flushing import FlushJob, FlushStats
from odradek.log.incoming import assign_offsets, check_new, have_gaps, marks_of, split, split_new, stamp_times, writable
from odradek.log.outcomes import Appended, Removal
from odradek.log.parts import Parts
from odradek.log.replay import remember, replay
from odradek.log.retention import SegmentFacts, expired_count
from odradek.log.scan import OFFSET_SPAN_MAX
from odradek.log.segment import Chunk, Mark, Segment, TimestampOffset
from odradek.log.state import RecoveryPoint, Swap
from odradek.model import Offset
from odradek.records.compression import CODEC_MAX
from odradek.records.crc import crc32c
from odradek.records.header import (
    CODEC_MASK,
    CRC_COVERED,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    check_frame,
    read_header,
    stamp_head,
    unpack_vitals,
)

_Result = TypeVar("_Result")
_NOTHING = memoryview(b"")
_new_tuple = tuple.__new__
logger = logging.getLogger(__name__)


class PartitionLog:
    """The log of one partition."""

    def __init__(self, parts: Parts, config: LogConfig, segments: list[Segment], point: RecoveryPoint) -> None:
        self.directory = parts.state.directory
        self._follow(config)
        self.state = parts.state
        self.backend = parts.backend
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.stopped: Exception | None = None  # why nothing more is written
        self.ended = False  # closed or deleted: its files may be somebody else's, nothing is read, either
        self.compacting = False  # a plan is out: there is never more than one
        self.cuts = 0  # how often it has become shorter at its end: a plan made before is void
        self.on_roll: Callable[[PartitionLog], None] | None = None  # told when a segment is begun, within the append
        self._clock = parts.clock
        self._snapshots = parts.snapshots
        self._chain = Chain(segments)
        self._durable = Durability(parts.disk, self.directory, parts.snapshots, parts.backend.sync_names, point)
        self.flush_stats: FlushStats = self._durable.stats
        self._removals: list[Removal] = []  # begun, perhaps not run yet

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
    def flushed_offset(self) -> Offset:
        """All records below this are on stable storage."""
        return self._durable.point.next_offset

    @property
    def flushed_segment(self) -> Offset:
        """The base offset of the segment that was active at the last flush: all before it is on stable storage."""
        return self._durable.point.segment

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
        self._follow(config)
        self.backend.configure(config)
        self._chain.active.configure(config)

    def _follow(self, config: LogConfig) -> None:
        self.config = config
        self._stamps_time = config.message_timestamp_type == "LogAppendTime"
        self._length_max = config.max_message_bytes - LENGTH_OVERHEAD

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
        # The hot path of the whole house: the usual batch passes without a call that it does not need.
        try:
            length, magic, crc, bits, delta, timestamp, producer_id, count = unpack_vitals(data)
        except struct.error:
            check_frame(data)  # says what is wrong
            raise
        if length != len(data) - LENGTH_OVERHEAD or crc32c(memoryview(data)[CRC_COVERED]) != crc or magic != MAGIC:
            return self._append_many(data, leader_epoch, append_time)
        idempotent = producer_id != NO_PRODUCER_ID
        if idempotent or not 0 <= delta == count - 1 or bits & CODEC_MASK > CODEC_MAX or length > self._length_max:
            header = check_frame(data)
            check_new(header, self.config)
            if idempotent and (written := self.producers.check(header)) is not None:
                return Appended(written.base_offset, written.last_offset, append_time, duplicate=True)
        active = self._chain.active
        base = active.next_offset
        last = base + delta
        if leader_epoch != self.epochs.latest:
            self._guard(self.epochs.assign, leader_epoch, base)
        stamp_head(data, 0, base, length, leader_epoch)
        try:
            if not active.append(data, last, timestamp):
                self._roll_and_append(data, base, last, timestamp)
        except DiskError as error:
            raise self._stop(error) from error
        unflushed = self._durable.unflushed
        unflushed.batches += 1
        unflushed.size_bytes += length + LENGTH_OVERHEAD
        if idempotent:
            remember(self.producers, read_header(data), data, self._clock.now_ms())
        return _new_tuple(Appended, (base, last, append_time, False))  # half the time of Appended(...)

    def _append_many(self, data: bytearray | memoryview, leader_epoch: int, append_time: int) -> Appended:
        batches = split_new(data, self.config)
        if any(header.producer_id != NO_PRODUCER_ID for header, _ in batches):
            # Each batch's sequences are checked against those before it, so they go one by one.
            results = [self.append(batch, leader_epoch) for _, batch in batches]
            duplicate = all(result.duplicate for result in results)
            return Appended(results[0].base_offset, results[-1].last_offset, append_time, duplicate)
        first = self.next_offset
        if leader_epoch != self.epochs.latest:
            self._guard(self.epochs.assign, leader_epoch, first)
        marks = assign_offsets(batches, first, leader_epoch)
        if not self._write_together(data, marks):
            for mark, (_, batch) in zip(marks, batches, strict=True):
                self._write(batch, mark.base_offset, mark.last_offset, mark.max_timestamp)
        return Appended(first, marks[-1].last_offset, append_time)

    def append_replicated(self, data: Buffer) -> Appended:
        """Write batches as their leader stored them: offsets, epochs and gaps stay as they are."""
        if self.stopped is not None:
            raise LogStoppedError(self.directory, self.stopped)
        batches = split(data)
        if have_gaps(batches, self.next_offset, self.directory) and not self.state.sparse:
            self.state.sparse = True
            self._guard(self.state.save)
        for header, _ in batches:
            if header.leader_epoch != self.epochs.latest:
                self._guard(self.epochs.assign, header.leader_epoch, header.base_offset)
        together = self._write_together(data, marks_of(batches))
        for header, batch in batches:
            if not together:
                self._write(batch, header.base_offset, header.last_offset, header.max_timestamp)
            if header.producer_id != NO_PRODUCER_ID:  # before the next one is written: a roll saves a snapshot
                remember(self.producers, header, batch, self._clock.now_ms())
        return Appended(batches[0][0].base_offset, batches[-1][0].last_offset, NO_TIMESTAMP)

    def _write(self, data: Buffer, base_offset: Offset, last_offset: Offset, timestamp: int) -> None:
        """Bring one batch into the active segment, or into a new one if it does not fit."""
        if not self._guard(self._chain.active.append, data, last_offset, timestamp):
            self._guard(self._roll_and_append, data, base_offset, last_offset, timestamp)
        self._durable.unflushed.count(len(data))

    def _roll_and_append(self, data: Buffer, base_offset: Offset, last_offset: Offset, timestamp: int) -> None:
        # At the end of what is there: a segment that ends before its successor begins has lost its tail in a crash.
        self.roll(base_offset if last_offset - self.next_offset > OFFSET_SPAN_MAX else None)
        if not self._chain.active.append(data, last_offset, timestamp):
            raise LogError(f"{self.directory}: a new segment does not take the batch at offset {base_offset}")

    def _write_together(self, data: Buffer, marks: list[Mark]) -> bool:
        """Bring batches into the active segment with one write; False if not all of them fit."""
        if not self._guard(self._chain.active.append_many, data, marks):
            return False
        self._durable.unflushed.count(len(data), len(marks))
        return True

    def roll(self, base_offset: Offset | None = None) -> None:
        """Seal the active segment and begin another; an empty one stays as it is."""
        active = self._chain.active
        base = self.next_offset if base_offset is None else base_offset
        if not active.size_bytes and active.base_offset == base:
            return
        active.seal()
        self._snapshots.save(self.producers, self.next_offset)
        self._durable.unflushed.sealed.append(active)
        self._chain.add(self.backend.create(base))
        self._durable.unflushed.names_changed = True
        if self.on_roll is not None:
            self.on_roll(self)

    def roll_if_older(self, now_ms: int) -> None:
        """Seal an active segment whose first record is too old, although nothing new comes."""
        active = self._chain.active
        first = active.first_timestamp()
        if active.size_bytes and first != NO_TIMESTAMP and now_ms - first > self.config.age_max_ms:
            self._guard(self.roll)

    # Failing: once what is on the disk is in doubt, nothing more is written.

    def _guard(self, action: Callable[..., _Result], *arguments: object) -> _Result:
        if self.stopped is not None:
            raise LogStoppedError(self.directory, self.stopped)
        try:
            return action(*arguments)
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
        state, end = self.state, self._chain.active.next_offset
        if not state.log_start <= offset <= end or self.ended:
            raise self._refusal(offset)
        limit = end if upto is None or upto > end else upto
        if offset >= limit:  # a reader that waits at the end asks this all the time
            return Chunk(_NOTHING, offset, offset)
        return self._chain.read(offset, max_bytes, limit, sparse=state.sparse, nowait=nowait, name=self.directory)

    def segment_at(self, offset: Offset) -> Segment:
        """The segment that holds an offset."""
        if not self.log_start <= offset <= self.next_offset or self.ended:
            raise self._refusal(offset)
        return self._chain.since(offset)[0]

    def _refusal(self, offset: Offset) -> LogError:
        if self.ended and self.stopped is not None:
            return LogStoppedError(self.directory, self.stopped)
        return OffsetOutOfRangeError(self.directory, offset, self.log_start, self.next_offset)

    def segment_after(self, segment: Segment, offset: Offset) -> Segment | None:
        """Where to read on from `offset` when a segment has no more, though it may not be part of the log any more."""
        return self._chain.onward(segment, offset)

    def has_sealed(self, segments: list[Segment]) -> bool:
        """Whether these are still segments of this log, in a row and sealed."""
        return self._chain.holds(segments)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after this time; None if all are older."""
        return self._chain.offset_for_timestamp(timestamp, self.log_start)

    def newest_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp."""
        largest = self._chain.max_timestamp()
        return self.offset_for_timestamp(largest) if largest != NO_TIMESTAMP else None

    # Flushing.

    def begin_flush(self) -> FlushJob | None:
        """Cover all that is written now; None if all of it is safe, or a flush is under way."""
        return self._guard(self._durable.begin, self._chain.active)

    def finish_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """Take a job's result. A failed flush is never tried again: the system may have dropped the pages."""
        try:
            self._durable.finish(job, error)
        except DiskError as failure:
            raise self._stop(failure) from failure

    def flush(self) -> None:
        """Return when all that is written is on stable storage. Waits here; a broker uses `GroupFlusher`."""
        self._guard(self._durable.take_back)
        job = self.begin_flush()
        if job is not None:
            with suppress(DiskError):
                job.run()
            self.finish_flush(job, job.failure)

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
        if not self.log_start <= offset <= self.next_offset or self.ended:
            raise self._refusal(offset)
        if offset > self.flushed_offset:
            self.flush()  # a log must not end before its start, should the machine die
        self.state.log_start = offset
        limit = min(self._removable, offset)
        return self._let_go(sum(1 for segment in self._chain.sealed if segment.next_offset <= limit))

    @property
    def _removable(self) -> Offset:
        """Segments below this can go, should the machine die: they are flushed, and their producers are known."""
        needed = len(self.producers) and self.config.flush is Flush.GROUP
        return min(self.flushed_segment, self._snapshots.safe_offset if needed else self.next_offset)

    def _let_go(self, count: int) -> Removal:
        gone = self._chain.drop_oldest(count)
        self._durable.unflushed.sealed = [segment for segment in self._durable.unflushed.sealed if segment not in gone]
        self.state.log_start = max(self.state.log_start, self._chain.first_offset)
        # Not from the log start: batches before it in the same segment are still read, and checked by their epochs.
        self._guard(self.epochs.truncate_start, self._chain.first_offset)
        self._removals = [earlier for earlier in self._removals if not earlier.done]
        removal = Removal(self.state, gone, list(self._removals))
        self._removals.append(removal)
        return removal

    def replace(self, replaced: list[Segment], cleaned_to: Offset) -> None:
        """Put a compacted segment in the place of those it was made from, all of which are flushed."""
        self._guard(self._replace, replaced, cleaned_to)

    def _replace(self, replaced: list[Segment], cleaned_to: Offset) -> None:
        bases = [segment.base_offset for segment in replaced]
        if self.flushed_segment <= bases[-1]:
            raise LogError(f"{self.directory}: segment {bases[-1]} is not flushed, it cannot be replaced")
        # An older point that a power loss may bring back would measure files that are gone.
        self._durable.set_point(self._durable.point)
        self.state.swap = Swap(bases[0], bases, self.backend.replacement_suffix)
        self.state.sparse = True
        self.state.cleaned_to = max(self.state.cleaned_to, cleaned_to)
        self.state.save()  # from here on a start finishes what follows
        self.backend.install_replacement(*self.state.swap)
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
        self._durable.take_back()
        self.cuts += 1
        number = self._chain.find(offset)
        # Until all is done, nothing from here on counts as flushed: a crash in the middle leaves only more to check.
        base = self._chain.since(offset)[0].base_offset
        self._durable.set_point(min(self._durable.point, RecoveryPoint(base, base, 0)))
        for segment in self._chain.drop_after(number):
            segment.delete()
        self._chain.active.truncate(offset)
        for segment in self._durable.unflushed.sealed:
            if self._chain.holds([segment]):
                segment.sync(sealed=True)
        self._chain.active.sync()
        self.epochs.truncate_end(self.next_offset)
        self.reload_producers()
        self._after_cut()

    def start_over(self, offset: Offset) -> None:
        """Throw everything away and go on at `offset`: what a follower does that fell too far behind."""
        self._guard(self._start_over, offset)

    def _start_over(self, offset: Offset) -> None:
        self._durable.take_back()
        self.cuts += 1
        for removal in self._removals:
            removal.run()  # one that ran later could take files of the new log for those it was to remove
        self.state.restart_at = offset
        self.state.save()  # from here on a start finishes what follows
        for segment in reversed(self.segments):
            segment.delete()
        self._snapshots.clear()
        self.producers.clear()
        self.epochs.replace([])
        self._chain = Chain([self.backend.create(offset)])
        self.state.log_start = offset
        self._after_cut()
        self.state.restart_at = None
        self.state.save()

    def _after_cut(self) -> None:
        """Bring everything else in line with a log that has become shorter; all of it is on stable storage."""
        end = self.next_offset
        self.backend.sync_names()
        if max(self.state.log_start, self.state.cleaned_to) > end:
            self.state.log_start = min(self.state.log_start, end)
            self.state.cleaned_to = min(self.state.cleaned_to, end)
            self.state.save()
        self._durable.settle(self._chain.active)

    def reload_producers(self) -> None:
        """Learn the producers from the last snapshot and the headers after it."""
        start = self._snapshots.restore(self.producers, self.next_offset) or self._chain.first_offset
        replay(self.producers, self._chain.since(start), start, self._clock.now_ms())

    def sync_snapshots(self) -> None:
        """Bring the producer snapshots to stable storage here and now; otherwise the next flush does."""
        self._guard(self._durable.sync_snapshots)

    def close(self) -> None:
        """Flush, write out everything, give back what is open. Once is enough."""
        if self.stopped is None:
            self.flush()
            if not self._durable.is_settled(self._chain.active):
                self.checkpoint()
                self._guard(self._settle)
        self._end(LogClosedError("it is closed"))

    def _end(self, reason: LogError) -> None:
        """From now on its files may be somebody else's: nothing is written, and nothing is read."""
        self.stopped = self.stopped or reason
        self.ended = True
        for segment in self._chain:
            with suppress(DiskError):  # all that was promised is safe, or the log has said that it is not
                segment.close()

    def _settle(self) -> None:
        """Bring the indexes and snapshots to stable storage, too, so that the next start has nothing to do."""
        active = self._chain.active
        active.sync(sealed=True)
        self._durable.sync_snapshots()
        self._durable.set_point(RecoveryPoint(self.next_offset, active.base_offset, active.size_bytes, indexed=True))

    def abandon(self) -> None:
        """Close without keeping anything: the partition is being deleted, and its names may be used again."""
        with suppress(DiskError):
            self._durable.take_back()
        self.state.abandon()
        self._end(LogDeletedError("it is deleted"))
