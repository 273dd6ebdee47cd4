"""The pieces of a flush: what one covers, and what is counted.

A log begins a flush (`PartitionLog.begin_flush`), some thread runs it, the log finishes it. Everything that was
appended before the beginning is covered; what comes while it runs is covered by the next one. That is group flush.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter

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
class FlushJob:
    """One flush of one log: made by the log's owner, run anywhere, finished by the owner."""

    disk: Disk
    directory: str
    sealed: list[Segment]  # finished segments that are not on stable storage yet, in order
    active: Segment
    snapshots: ProducerSnapshots
    snapshot_offsets: list[Offset]  # of those that are not on stable storage yet
    sync_names: Callable[[], None] | None  # set when files were made
    point: RecoveryPoint  # what is safe when the job has run
    turn: int
    batches: int
    size_bytes: int
    seconds: float = 0.0
    cancelled: bool = False
    lock: Lock = field(default_factory=Lock)

    def run(self) -> None:
        """Bring everything up to `point` to stable storage; raises DiskError if that is in doubt."""
        begin = perf_counter()
        with self.lock:
            if self.cancelled:
                return
            for segment in self.sealed:
                segment.sync(sealed=True)
            self.active.sync()
            self.snapshots.sync(self.snapshot_offsets)
            if self.sync_names is not None:
                self.sync_names()
            advance_recovery_point(self.disk, self.directory, self.point, self.turn)
        self.seconds = perf_counter() - begin

    def cancel(self) -> None:
        """Wait until it is not running, and see that it does not begin: the log is about to become shorter."""
        with self.lock:
            self.cancelled = True
