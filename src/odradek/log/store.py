"""All logs of a data directory: one folder a partition, `<topic>-<number>`, and a lock so that one process has them.

The store opens, makes and deletes logs and looks after them. It starts no thread and no timer: `maintain` and
`checkpoint` are called by whoever has a clock. A file `clean-stop` says that the last process ended in good order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from odradek.clock import Clock
from odradek.disk.interface import Disk
from odradek.log.compaction import CompactionPlan, plan_compaction
from odradek.log.config import LogConfig, StoreConfig
from odradek.log.errors import LogError
from odradek.log.flushing import FlushStats
from odradek.log.index import IndexCache
from odradek.log.log import PartitionLog
from odradek.log.outcomes import Removal
from odradek.log.recovery import RecoveryReport, Shared, open_log
from odradek.model import TopicPartition, parse_partition_directory, topic_name_problem

LOCK_NAME = ".lock"
CLEAN_STOP_NAME = "clean-stop"
_DELETED = "-delete"

logger = logging.getLogger(__name__)


class LogStore:
    """The logs below one directory."""

    def __init__(
        self, disk: Disk, directory: str, config: StoreConfig, clock: Clock, config_of: Callable[[str], LogConfig]
    ) -> None:
        """Open everything that is there. `config_of` gives the settings of a topic."""
        self.directory = directory
        self.config = config
        self.reports: dict[TopicPartition, RecoveryReport] = {}  # of the logs that had to be checked
        self._clock = clock
        self._disk = disk
        self._config_of = config_of
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._shared = Shared(disk, clock, config, IndexCache(config.log_index_cache_bytes))
        self._deletions = 0
        disk.make_directory(directory)
        self._lock = disk.lock(f"{directory}/{LOCK_NAME}")
        self.was_clean = disk.exists(f"{directory}/{CLEAN_STOP_NAME}")
        if self.was_clean:
            disk.remove(f"{directory}/{CLEAN_STOP_NAME}")
            disk.sync_directory(directory)
        self._open_all()

    def _open_all(self) -> None:
        for entry in sorted(self._disk.list(self.directory)):
            if not entry.is_directory:
                continue
            partition = parse_partition_directory(entry.name)
            if partition is not None:
                self._open(partition)
            elif entry.name.endswith(_DELETED):
                self._disk.remove_tree(f"{self.directory}/{entry.name}")
        if self.reports:
            scanned = sum(report.scanned_bytes for report in self.reports.values())
            logger.info("checked %d bytes of %d partitions, not known to be flushed", scanned, len(self.reports))

    def _open(self, partition: TopicPartition) -> PartitionLog:
        log, report = open_log(self._shared, f"{self.directory}/{partition}", self._config_of(partition.topic))
        self._logs[partition] = log
        if report.scanned_bytes:
            self.reports[partition] = report
        return log

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All logs by partition."""
        return self._logs

    def create(self, partition: TopicPartition) -> PartitionLog:
        """Make the log of a new partition, durably."""
        problem = topic_name_problem(partition.topic)
        if problem is not None:
            raise LogError(problem)
        if partition in self._logs:
            raise LogError(f"{partition} exists already")
        return self._open(partition)

    def delete(self, partition: TopicPartition) -> Callable[[], None]:
        """Take a partition away at once and for good; the call that comes back frees its bytes, in any thread."""
        log = self._logs.pop(partition, None)
        if log is None:
            raise LogError(f"there is no partition {partition}")
        log.abandon()
        self._deletions += 1
        path = f"{self.directory}/{partition}"
        doomed = f"{path}.{self._clock.now_ms():x}-{self._deletions:x}{_DELETED}"
        self._disk.rename(path, doomed)
        self._disk.sync_directory(self.directory)
        return lambda: self._disk.remove_tree(doomed)

    def flush_stats(self) -> FlushStats:
        """The flush counters of all logs together."""
        total = FlushStats()
        for log in self._logs.values():
            total.add(log.flush_stats)
        return total

    def expire(self, partition: TopicPartition) -> Removal | None:
        """Apply segment.ms and retention to one log; run what comes back, here or in a thread."""
        log, now = self._logs[partition], self._clock.now_ms()
        log.roll_if_older(now)
        return log.expire(now)

    def plan_compaction(self, partition: TopicPartition) -> CompactionPlan | None:
        """Say what compaction should clean in one log now; build it in a thread, then install it."""
        return plan_compaction(self._logs[partition], self._clock.now_ms(), self.config.log_cleaner_key_map_bytes)

    def checkpoint(self) -> None:
        """Write out what makes the next start short; call it every log.checkpoint.interval.ms."""
        for log in self._logs.values():
            log.checkpoint()

    def close(self) -> None:
        """Flush and close every log; the marker is left only if none of them failed."""
        for log in self._logs.values():
            log.close()
        if all(log.stopped is None for log in self._logs.values()):
            self._disk.write_atomic(f"{self.directory}/{CLEAN_STOP_NAME}", b"1\n")
        self._lock.release()
