"""How far a log is on stable storage: the recovery point, what has been written since, and the flush under way.

It makes the jobs and takes their results; when to flush is decided elsewhere (`GroupFlusher`, or `PartitionLog.flush`).
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.log.flushing import FlushJob, FlushStats, Unflushed
from odradek.log.segment import Segment
from odradek.log.snapshots import ProducerSnapshots
from odradek.log.state import RecoveryPoint, set_recovery_point


class Durability:
    """What of one log is flushed, and what is not."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        snapshots: ProducerSnapshots,
        sync_names: Callable[[], None],
        point: RecoveryPoint,
    ) -> None:
        self.point = point  # all before this is on stable storage, and stands in `recovery-point` or will soon
        self.unflushed = Unflushed()
        self.stats = FlushStats()
        self._disk = disk
        self._directory = directory
        self._snapshots = snapshots
        self._sync_names = sync_names
        self._job: FlushJob | None = None

    def begin(self, active: Segment) -> FlushJob | None:
        """Cover all that is written now; None if all of it is safe, or a flush is under way."""
        clean = self.point.next_offset == active.next_offset and not self.unflushed.names_changed
        if clean or self._job is not None:
            return None
        job = FlushJob(
            disk=self._disk,
            directory=self._directory,
            covered=self.unflushed,
            active=active,
            snapshots=self._snapshots,
            snapshot_offsets=self._snapshots.begin_sync(),
            sync_names=self._sync_names,
            point=RecoveryPoint(active.next_offset, active.base_offset, active.size_bytes),
            turn=self.stats.flushes,
        )
        job.hold()
        self.unflushed = Unflushed()
        self._job = job
        return job

    def finish(self, job: FlushJob, error: Exception | None) -> None:
        """Take a job's result; raises DiskError if it failed."""
        if self._job is job:
            self._job = None
        job.release()
        if error is not None:
            raise error if isinstance(error, DiskError) else DiskError("flush", self._directory, str(error))
        if not job.cancelled:
            self.point = job.point
            self._snapshots.finish_sync(job.snapshot_offsets)
            self.stats.count(job.covered.batches, job.covered.size_bytes, job.seconds)

    def take_back(self) -> None:
        """Wait for a job that runs in another thread, keep one that has not begun from it, and own its work again.

        One that has failed raises what it failed with: it must not be tried a second time.
        """
        job, self._job = self._job, None
        if job is None:
            return
        job.cancel()
        if job.failure is not None:
            raise job.failure
        self.unflushed.add(job.covered)
        self._snapshots.add_unsynced(job.snapshot_offsets)

    def sync_snapshots(self) -> None:
        """Bring the producer snapshots to stable storage here and now; otherwise the next flush does."""
        offsets = self._snapshots.begin_sync()
        self._snapshots.sync(offsets)
        self._sync_names()
        self._snapshots.finish_sync(offsets)

    def set_point(self, point: RecoveryPoint) -> None:
        """Move the point to where the log stands now, durably: it has become shorter, or is being closed."""
        set_recovery_point(self._disk, self._directory, point)
        self.point = point

    def is_settled(self, active: Segment) -> bool:
        """Whether all is as a log that is closed in good order leaves it: nothing was written since, if ever."""
        return self.point == (active.next_offset, active.base_offset, active.size_bytes, True)

    def settle(self, active: Segment) -> None:
        """Note that everything up to the end is on stable storage."""
        self.unflushed = Unflushed()
        self.set_point(RecoveryPoint(active.next_offset, active.base_offset, active.size_bytes))
