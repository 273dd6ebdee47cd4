"""Opening a log: what is trusted, what is read again, and what that teaches about the rest.

What the recovery point covers was flushed and is trusted until it is read. What lies behind it is checked batch by
batch; a torn tail is cut. Nothing else is read at a start, however large the log is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.clock import Clock
from odradek.disk.interface import Disk
from odradek.log.backends.choice import backend_of
from odradek.log.backends.open_tables import OpenTables
from odradek.log.config import LogConfig, StoreConfig
from odradek.log.epochs import FILE_NAME as EPOCHS_NAME
from odradek.log.epochs import NO_EPOCH, LeaderEpochs
from odradek.log.index import IndexCache
from odradek.log.log import PartitionLog
from odradek.log.parts import Parts
from odradek.log.producers import Producers
from odradek.log.segment import Backend, BatchCheck, EndOfSegment, Segment
from odradek.log.snapshots import ProducerSnapshots
from odradek.log.state import (
    RECOVERY_POINT_NAME,
    STATE_NAME,
    LogState,
    RecoveryPoint,
    read_recovery_point,
    set_recovery_point,
)
from odradek.model import Offset
from odradek.records.header import BatchHeader

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """What all logs of a store have in common."""

    disk: Disk
    clock: Clock
    config: StoreConfig
    cache: IndexCache
    tables: OpenTables = field(default_factory=OpenTables)  # of segments in databases


class RecoveryReport(NamedTuple):
    """What opening a log had to do."""

    scanned_bytes: int = 0  # not known to be flushed, read and checked
    cut_bytes: int = 0  # torn, gone
    dropped_segments: int = 0  # behind a torn one, gone
    lost_records: int = 0  # flushed once, and not there any more: somebody has changed the files


def batch_check(epochs: LeaderEpochs, state: LogState) -> BatchCheck:
    """What a batch must satisfy beside its CRC: it follows the one before, and its epoch is the one we know."""

    def check(header: BatchHeader, expected: Offset | None) -> str | None:
        base = header[0]
        if base != expected and expected is not None and (base < expected or not state.sparse):
            return f"offset {base} stands where {expected} belongs"
        if epochs.known and (header[2] != epochs.latest or base < epochs.latest_start):
            epoch = epochs.epoch_at(header.last_offset)
            if epoch not in (header.leader_epoch, NO_EPOCH):
                return f"offset {base} has leader epoch {header.leader_epoch}, it was written in {epoch}"
        return None

    return check


def open_log(
    shared: Shared, directory: str, config: LogConfig, leader_epoch: int = NO_EPOCH, topic_id: str = ""
) -> tuple[PartitionLog, RecoveryReport]:
    """Open a partition's log, or make a new one if there is none, which begins in `leader_epoch`."""
    disk = shared.disk
    disk.make_directory(directory)
    state = LogState(disk, directory)
    epochs = LeaderEpochs(disk, directory)
    backend = backend_of(disk, directory, shared.cache, config, batch_check(epochs, state), shared.tables)
    producers = Producers(
        expiration_ms=shared.config.producer_id_expiration_ms, count_max=shared.config.producer_ids_max
    )
    parts = Parts(disk, shared.clock, backend, state, epochs, producers, ProducerSnapshots(disk, directory))
    _finish_swap(backend, state)
    _finish_restart(parts)
    point = read_recovery_point(disk, directory)
    promised = point.next_offset if point is not None else 0
    bases = backend.find()
    if not state.known:
        state.sparse = bool(bases)  # nobody remembers whether compaction was here
    if not bases:
        state.topic_id = topic_id or state.topic_id
        return _create(parts, config, point, leader_epoch), RecoveryReport()
    if point is not None and point.segment not in bases and point.segment > bases[0]:
        logger.error("%s: the recovery point names segment %d, which is not there", directory, point.segment)
        point = None
    segments, report = _recover(backend, bases, point, state)
    if not state.known:
        state.log_start = bases[0]
        state.save()
    if not epochs.known:
        _relearn_epochs(epochs, segments)
    end = segments[-1].next_offset
    if promised > end:
        report = report._replace(lost_records=promised - end)
    return _assemble(parts, config, segments, report, point), report


def _finish_swap(backend: Backend, state: LogState) -> None:
    """Complete a compaction that a crash interrupted after it was decided, or forget one that was not."""
    if state.swap is not None:
        backend.install_replacement(*state.swap)
        state.swap = None
        state.save()
    backend.discard_replacements()


def _finish_restart(parts: Parts) -> None:
    """Throw away what a log that was to start over still has: a crash came between."""
    state, backend = parts.state, parts.backend
    if state.restart_at is None:
        return
    for base in reversed(backend.find()):
        backend.open(base).delete()
    parts.snapshots.clear()
    parts.epochs.replace([])
    state.log_start, state.cleaned_to = state.restart_at, min(state.cleaned_to, state.restart_at)
    segment = backend.create(state.restart_at)
    backend.sync_names()
    set_recovery_point(parts.disk, state.directory, RecoveryPoint(segment.base_offset, segment.base_offset, 0))
    state.restart_at = None
    state.save()


def _create(parts: Parts, config: LogConfig, point: RecoveryPoint | None, leader_epoch: int) -> PartitionLog:
    state, epochs, disk = parts.state, parts.epochs, parts.disk
    if point is not None and point.next_offset > state.log_start:
        logger.error("%s has lost its segments; it goes on at offset %d", state.directory, point.next_offset)
        state.log_start = point.next_offset
    base = state.log_start
    parts.snapshots.clear()
    epochs.truncate_end(base)
    segment = parts.backend.create(base)
    point = RecoveryPoint(base, base, 0, indexed=True)
    state.save(durable=False)
    if leader_epoch > epochs.latest:
        epochs.assign(leader_epoch, base, durable=False)
    else:
        epochs.save(durable=False)
    set_recovery_point(disk, state.directory, point, durable=False)
    for name in (STATE_NAME, EPOCHS_NAME, RECOVERY_POINT_NAME):
        disk.sync_file(f"{state.directory}/{name}")
    parts.backend.sync_names()  # once for all of them: there may be thousands of partitions to make
    return PartitionLog(parts, config, [segment], point)


def _recover(
    backend: Backend, bases: list[Offset], point: RecoveryPoint | None, state: LogState
) -> tuple[list[Segment], RecoveryReport]:
    segments: list[Segment] = []
    scanned = cut = 0
    for base, follower in zip(bases, [*bases[1:], None], strict=True):
        segment = backend.open(base)
        segments.append(segment)
        if point is not None and base < point.segment and follower is not None:
            segment.adopt(follower)
            continue
        recovered = segment.recover(_flushed(base, point))
        scanned += recovered.scanned_bytes
        cut += recovered.cut_bytes
        if follower is None:
            break
        # Below the log start a hole is only a removal that did not finish.
        lost_its_end = (recovered.cut_bytes or segment.next_offset < follower) and follower > state.log_start
        if lost_its_end and point is not None:
            dropped = _drop(backend, segments[-1], bases)
            return segments, RecoveryReport(scanned, cut, dropped)
        segment.seal()
        segment.adopt(follower)
    return segments, RecoveryReport(scanned, cut, 0)


def _flushed(base: Offset, point: RecoveryPoint | None) -> EndOfSegment | None:
    """How much of a segment that is not older than the recovery point was flushed."""
    if point is None:
        return None
    if base == point.segment:
        return EndOfSegment(point.next_offset, point.size_bytes, point.indexed)
    return EndOfSegment(base, 0)


def _drop(backend: Backend, last: Segment, bases: list[Offset]) -> int:
    """Remove the segments behind a torn one: whatever they hold was never flushed, and nothing leads to it."""
    behind = [base for base in bases if base > last.base_offset]
    for base in reversed(behind):
        logger.warning("segment %d stands behind a torn one and was never flushed; it is removed", base)
        backend.open(base).delete()
    backend.sync_names()
    return len(behind)


def _relearn_epochs(epochs: LeaderEpochs, segments: list[Segment]) -> None:
    """Read the epochs from the batches, because the file that lists them is lost."""
    found: list[tuple[int, Offset]] = []
    for segment in segments:
        for _, header in segment.batches(segment.base_offset, lenient=True):
            if header.leader_epoch > (found[-1][0] if found else NO_EPOCH):
                found.append((header.leader_epoch, header.base_offset))
    epochs.replace(found)


def _assemble(
    parts: Parts, config: LogConfig, segments: list[Segment], report: RecoveryReport, point: RecoveryPoint | None
) -> PartitionLog:
    """Put the log together and bring all that is beside the segments in line with them."""
    active, state = segments[-1], parts.state
    go_on_at = active.next_offset + report.lost_records
    if point is None or point[:3] != (active.next_offset, active.base_offset, active.size_bytes):
        for segment in segments:
            if point is None or segment.base_offset >= point.segment:
                segment.sync(sealed=segment is not active)
        point = RecoveryPoint(active.next_offset, active.base_offset, active.size_bytes)
        set_recovery_point(parts.disk, state.directory, point)
    state.log_start = max(state.log_start, segments[0].base_offset)
    parts.epochs.truncate_end(active.next_offset)
    log = PartitionLog(parts, config, segments, point)
    end = active.next_offset
    if state.log_start > end:
        logger.error("%s ends at %d, before its start", state.directory, active.next_offset)
        log.start_over(state.log_start)
    else:
        log.reload_producers()
        if len(log.producers):
            log.sync_snapshots()
    if report.lost_records:
        logger.error("%s has lost the flushed records from %d on; it goes on at %d", state.directory, end, go_on_at)
        log.roll(go_on_at)  # their offsets are never given to others
        log.flush()
        set_recovery_point(parts.disk, state.directory, RecoveryPoint(go_on_at, go_on_at, 0))
    return log
