"""Compaction by Kafka's rules: of each key the last record stays, offsets never change, tombstones go after a while.

The log's owner makes a plan, any thread builds it (it reads sealed, held segments and writes files beside the log),
the owner installs it. Until `install` the log is as it was; a crash at any moment leaves the old segments or the
new ones. What was appended, or became retained, meanwhile is untouched: a plan whose segments are gone is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from odradek.log.errors import DamagedLogError, LogError
from odradek.log.keymap import KeyMap
from odradek.log.log import PartitionLog
from odradek.log.segment import Backend, Placed, Segment
from odradek.log.transactions import AbortedTransactions
from odradek.model import Offset
from odradek.records.build import rebuild_batch
from odradek.records.errors import RecordError
from odradek.records.header import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader, iter_headers, read_header
from odradek.records.parse import iter_keys, parse_batch
from odradek.records.record import Record

READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 30  # of one batch, decompressed


@dataclass
class CompactionStats:
    """What a compaction did."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0


@dataclass
class CompactionPlan:
    """Which segments are cleaned and how; holds them until `install` or `drop`."""

    directory: str
    backend: Backend
    segments: list[Segment]  # sealed, in a row, from the start of the log
    behind: list[Segment]  # what follows: only asked how transactions ended
    dirty_from: Offset
    dirty_to: Offset  # exclusive; moves down if the key map gets full
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    key_map_bytes: int
    last_batches: dict[int, Offset]  # of each producer: kept, even without records, so that its sequences go on
    fenced: dict[int, int]  # epochs of producers that have written nothing in them: the marker that began one is kept
    cuts: int  # of the log when the plan was made
    groups: list[list[Segment]] = field(default_factory=list)  # each becomes one segment
    stats: CompactionStats = field(default_factory=CompactionStats)
    cancelled: bool = False  # set by the owner while another thread builds: it gives up at the next batch

    def build(self) -> None:
        """Write the cleaned segments beside the log. May run in another thread; LogError if it was cancelled."""
        aborted = AbortedTransactions()
        for segment in (*self.segments, *self.behind):
            if segment.next_offset > self.dirty_from:
                aborted.read(segment, self.dirty_from)
        keys = self._map_keys(aborted)
        cleaner = _Cleaner(self, keys, aborted)
        for group in self._grouped():
            cleaner.clean(group)
            self.groups.append(group)

    def _map_keys(self, aborted: AbortedTransactions) -> KeyMap:
        """Learn the newest offset of each key in the dirty part, or in as much of it as the map can hold."""
        keys = KeyMap(self.key_map_bytes)
        for segment in self.segments:
            if segment.next_offset <= self.dirty_from:
                continue
            for placed, batch in self.batches(segment):
                header = placed.header
                if header.last_offset < self.dirty_from or header.is_control or aborted.has(header):
                    continue
                if not keys.has_room_for(header.record_count):
                    self.dirty_to = header.base_offset
                    return keys
                try:
                    for offset, _, key, _ in iter_keys(batch, size_max=BATCH_BYTES_MAX):
                        if key is not None:
                            keys.put(key, offset)
                except RecordError as error:
                    raise self.damage(segment, placed, error) from error
        return keys

    def batches(self, segment: Segment) -> Iterator[tuple[Placed, memoryview]]:
        """The batches of a segment with their bytes, until it is cancelled."""
        for placed, batch in _batches(segment):
            if self.cancelled:
                raise LogError(f"{self.directory}: compaction was cancelled")
            yield placed, batch

    def damage(self, segment: Segment, placed: Placed, error: RecordError) -> DamagedLogError:
        """Say which batch cannot be cleaned."""
        reason = str(error).replace("batch at byte 0 ", "the batch ")
        return DamagedLogError(f"{self.directory}, segment {segment.base_offset}", placed.position, reason)

    def _grouped(self) -> Iterator[list[Segment]]:
        """Neighbours that fit into one segment together, so that many small ones do not stay for ever."""
        group: list[Segment] = []
        for segment in self.segments:
            if segment.base_offset >= self.dirty_to:
                break
            size_bytes = sum(member.size_bytes for member in group) + segment.size_bytes
            if group and (size_bytes > self.segment_bytes or segment.next_offset - group[0].base_offset > 2**31 - 1):
                yield group
                group = []
            group.append(segment)
        if group:
            yield group

    def install(self, log: PartitionLog) -> bool:
        """Put the cleaned segments in place; False if the log has changed too much since the plan was made."""
        try:
            if log.stopped is not None or log.cuts != self.cuts or not all(map(log.has_sealed, self.groups)):
                return False
            for group in self.groups:
                log.replace(group, min(self.dirty_to, group[-1].next_offset))
        finally:
            self.drop(log)
        return True

    def drop(self, log: PartitionLog) -> None:
        """Let the segments go and remove what was built and not installed."""
        for segment in (*self.segments, *self.behind):
            segment.release()
        self.segments, self.behind = [], []
        log.compacting = False
        # A swap that was begun and failed is finished at the next start, with the files that are here.
        if log.state.swap is None and not log.state.abandoned:
            self.backend.discard_replacements()


def plan_compaction(
    log: PartitionLog, now_ms: int, key_map_bytes: int, *, upto: Offset | None = None, force: bool = False
) -> CompactionPlan | None:
    """Say what compaction would clean; None if it is not worth it yet. `upto`: not beyond the high watermark."""
    limit = _limit(log, now_ms, upto)
    dirty_from = max(log.state.cleaned_to, log.log_start)
    segments = [segment for segment in log.segments[:-1] if segment.next_offset <= limit]
    dirty = [segment for segment in segments if segment.next_offset > dirty_from and segment.size_bytes]
    if not log.config.compacts or log.compacting or log.stopped is not None or not dirty:
        return None
    if not force and not _is_due(log, segments, dirty, now_ms):
        return None
    log.compacting = True
    behind = [segment for segment in log.segments if segment.base_offset >= segments[-1].next_offset]
    for segment in (*segments, *behind):
        segment.hold()
    return CompactionPlan(
        directory=log.directory,
        backend=log.backend,
        segments=segments,
        behind=behind,
        dirty_from=dirty_from,
        dirty_to=segments[-1].next_offset,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        key_map_bytes=key_map_bytes,
        last_batches={
            producer_id: producer.written[-1].last_offset
            for producer_id, producer in log.producers.items()
            if producer.written
        },
        fenced={producer_id: producer.epoch for producer_id, producer in log.producers.items() if not producer.written},
        cuts=log.cuts,
    )


def _limit(log: PartitionLog, now_ms: int, upto: Offset | None) -> Offset:
    """The offset from which on nothing may be cleaned: open transactions, young records, what may still be lost."""
    limits = [log.flushed_segment, log.next_offset if upto is None else upto]
    unstable = log.producers.first_unstable_offset
    if unstable is not None:
        limits.append(unstable)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (s.base_offset for s in log.segments if s.size_bytes and s.max_timestamp() > now_ms - lag_ms)
        limits.extend(young)
    return min(limits)


def _is_due(log: PartitionLog, segments: list[Segment], dirty: list[Segment], now_ms: int) -> bool:
    """Whether enough of the log is dirty, or something in it has been dirty for too long."""
    total = sum(segment.size_bytes for segment in segments)
    if sum(segment.size_bytes for segment in dirty) > log.config.min_cleanable_dirty_ratio * total:
        return True
    first = dirty[0].first_timestamp()
    return first != NO_TIMESTAMP and now_ms - first > log.config.max_compaction_lag_ms


class _Cleaner:
    """Writes groups of segments anew, without what has been overwritten."""

    def __init__(self, plan: CompactionPlan, keys: KeyMap, aborted: AbortedTransactions) -> None:
        self._plan = plan
        self._keys = keys
        self._aborted = aborted
        self._unfinished: set[int] = set()  # producers of which a batch stays whose transaction's marker is to come

    def clean(self, group: list[Segment]) -> None:
        """Make one segment of a group, on stable storage, not part of the log yet."""
        replacement = self._plan.backend.create_replacement(group[0].base_offset)
        replacement.hold()
        try:
            for segment in group:
                for placed, batch in self._plan.batches(segment):
                    try:
                        cleaned = self._clean_batch(placed.header, batch)
                    except RecordError as error:
                        raise self._plan.damage(segment, placed, error) from error
                    if cleaned is not None and not replacement.append(
                        cleaned[0], placed.header.last_offset, cleaned[1]
                    ):  # what the replacement refused would be lost
                        place = f"{self._plan.directory}, segment {replacement.base_offset}"
                        raise LogError(f"{place} would become too large: it is not cleaned")
            replacement.seal()
            replacement.sync(sealed=True)
        finally:
            replacement.release()
            replacement.close()
        stats = self._plan.stats
        stats.bytes_before += sum(segment.size_bytes for segment in group)
        stats.bytes_after += replacement.size_bytes

    def _clean_batch(self, header: BatchHeader, batch: memoryview) -> tuple[memoryview | bytearray, int] | None:
        """What stays of a batch, with its largest timestamp; None if nothing does."""
        plan = self._plan
        plan.stats.records_before += header.record_count
        # The CRC once more: what is written anew gets a new one, and must not make damage look whole.
        records = parse_batch(batch, size_max=BATCH_BYTES_MAX, check_crc=True) if header.record_count else []
        if header.base_offset >= plan.dirty_to:
            plan.stats.records_after += header.record_count
            return batch, header.max_timestamp
        if header.is_control:
            return self._clean_marker(header, batch, records)
        kept = self._kept(header, records)
        plan.stats.records_after += len(kept)
        if not kept and plan.last_batches.get(header.producer_id, -1) != header.last_offset:
            return None
        if header.is_transactional:
            self._unfinished.add(header.producer_id)
        begins_to_expire = not header.has_delete_horizon and any(record.value is None for record in kept)
        if len(kept) == header.record_count and not begins_to_expire:
            return batch, header.max_timestamp
        return self._rebuilt(header, kept, begins_to_expire)

    def _kept(self, header: BatchHeader, records: list[Record]) -> list[Record]:
        """The records that stay: the last of each key, and tombstones until their horizon."""
        if header.producer_id != NO_PRODUCER_ID and self._aborted.has(header):
            return []
        expired = self._is_expired(header)
        newest = self._keys.is_newest
        return [
            record
            for record in records
            if record.key is not None and newest(record.key, record.offset) and not (record.value is None and expired)
        ]

    def _clean_marker(
        self, header: BatchHeader, batch: memoryview, records: list[Record]
    ) -> tuple[memoryview | bytearray, int] | None:
        """A transaction's marker stays as long as a batch of it does, then like a tombstone until its horizon.

        The marker that fenced a producer stays until the producer writes again: nothing else remembers its epoch.
        """
        producer_id = header.producer_id
        needed = producer_id in self._unfinished or self._plan.fenced.get(producer_id) == header.producer_epoch
        self._unfinished.discard(producer_id)
        if not needed and self._is_expired(header):
            return None
        self._plan.stats.records_after += len(records)
        if needed or header.has_delete_horizon:
            return batch, header.max_timestamp
        return self._rebuilt(header, records, begins_to_expire=True)

    def _is_expired(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._plan.now_ms

    def _rebuilt(
        self, header: BatchHeader, kept: list[Record], begins_to_expire: bool
    ) -> tuple[memoryview | bytearray, int]:
        horizon = self._plan.now_ms + self._plan.delete_retention_ms if begins_to_expire else None
        rebuilt = rebuild_batch(header, kept, delete_horizon_ms=horizon)
        return rebuilt, read_header(rebuilt).max_timestamp


def _batches(segment: Segment) -> Iterator[tuple[Placed, memoryview]]:
    """The batches of a segment with their bytes."""
    offset, end, position = segment.base_offset, segment.next_offset, 0
    while True:
        chunk = segment.read(offset, READ_BYTES, end)
        if chunk is None or not chunk.data:
            return
        for at, header in iter_headers(chunk.data):
            yield Placed(position, header), chunk.data[at : at + header.size_bytes]
            position += header.size_bytes
        offset = chunk.next_offset
