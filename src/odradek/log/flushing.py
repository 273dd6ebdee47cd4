"""The pieces of a flush: what has to be brought to stable storage, one job that does it, and what is counted.

A log begins a flush (`PartitionLog.begin_flush`), some thread runs it, the log finishes it. Everything that was
appended before the beginning is covered; what comes while it runs is covered by the next one. That is group flush.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter

from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.log.segment import Segment
from odradek.log.snapshots import ProducerSnapshots
from odradek.log.state import RecoveryPoint, advance_recovery_point
from odradek.model import Offset


@dataclass
class FlushStats:
    """Counters of all flushes of a log, or of a store."""

    flushes: int = 0
    batches: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0

    @property
    def batches_per_flush(self) -> float:
        """How many batches one flush made safe, on average."""
        return self.batches / self.flushes if self.flushes else 0.0

    def count(self, batches: int, size_bytes: int, seconds: float) -> None:
        """Take note of one flush."""
        self.flushes += 1
        self.batches += batches
        self.size_bytes += size_bytes
        self.seconds += seconds
        self.seconds_max = max(self.seconds_max, seconds)

    def add(self, other: FlushStats) -> None:
        """Add the counters of another log."""
        self.flushes += other.flushes
        self.batches += other.batches
        self.size_bytes += other.size_bytes
        self.seconds += other.seconds
        self.seconds_max = max(self.seconds_max, other.seconds_max)


@dataclass(slots=True)
class Unflushed:
    """What a log has written since its last flush began."""

    sealed: list[Segment] = field(default_factory=list)  # finished segments, in order
    batches: int = 0
    size_bytes: int = 0
    names_changed: bool = False  # files were made

    def count(self, size_bytes: int, batches: int = 1) -> None:
        """Take note of something written."""
        self.batches += batches
        self.size_bytes += size_bytes

    def add(self, other: Unflushed) -> None:
        """Take back what a job did not do; it is older than what is here."""
        self.sealed[:0] = other.sealed
        self.batches += other.batches
        self.size_bytes += other.size_bytes
        self.names_changed |= other.names_changed


@dataclass(slots=True)
class FlushJob:
    """One flush of one log: made by the log's owner, run anywhere, finished by the owner."""

    disk: Disk
    directory: str
    covered: Unflushed
    active: Segment
    snapshots: ProducerSnapshots
    snapshot_offsets: list[Offset]  # of those that are not on stable storage yet
    sync_names: Callable[[], None]
    point: RecoveryPoint  # what is safe when the job has run
    turn: int
    seconds: float = 0.0
    failure: DiskError | None = None
    cancelled: bool = False
    lock: Lock = field(default_factory=Lock)

    def hold(self) -> None:
        """Keep what will be synced."""
        for segment in (*self.covered.sealed, self.active):
            segment.hold()

    def release(self) -> None:
        """Let it go."""
        for segment in (*self.covered.sealed, self.active):
            segment.release()

    def run(self) -> None:
        """Bring everything up to `point` to stable storage; raises DiskError if that is in doubt."""
        begin = perf_counter()
        with self.lock:
            if self.cancelled:
                return
            try:
                self._sync()
            except DiskError as error:
                self.failure = error
                raise
        self.seconds = perf_counter() - begin

    def _sync(self) -> None:
        for segment in self.covered.sealed:
            segment.sync(sealed=True)
        self.active.sync()
        self.snapshots.sync(self.snapshot_offsets)
        if self.covered.names_changed or self.snapshot_offsets:
            self.sync_names()
        advance_recovery_point(self.disk, self.directory, self.point, self.turn)

    def cancel(self) -> None:
        """Wait until it is not running, and see that it does not begin any more."""
        with self.lock:
            self.cancelled = True
