"""All logs of a data directory: one folder a partition, `<topic>-<number>`, and a lock so that one process has them.

The store opens, makes and deletes logs and looks after them. It has no timer: `expire`, `plan_compaction` and
`checkpoint` are called by whoever has a clock; and no threads but for closing. A partition that cannot be opened is
offline, with its reason; the others serve. A file `clean-stop` says that the last process ended in good order.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from odradek.clock import Clock
from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.disk.real import RealDisk
from odradek.log.backends.choice import found_kind
from odradek.log.backends.open_tables import OpenTables
from odradek.log.compaction import CompactionPlan, plan_compaction
from odradek.log.config import LogConfig, StoreConfig
from odradek.log.epochs import NO_EPOCH
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.flushing import FlushStats
from odradek.log.index import IndexCache
from odradek.log.log import PartitionLog
from odradek.log.outcomes import Removal
from odradek.log.recovery import RecoveryReport, Shared, open_log
from odradek.log.state import RECOVERY_POINT_NAME, STATE_NAME, LogState
from odradek.model import PARTITION_MAX, Offset, TopicPartition, parse_partition_directory, topic_name_problem

LOCK_NAME = ".lock"
CLEAN_STOP_NAME = "clean-stop"
_DELETED = re.compile(r"\.deleted-[0-9a-f]+-0[0-9a-f]{15}")  # the 0: no partition of a topic `.deleted-...` has it

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Creation:
    """New logs: begun and finished by the store's owner, made in any thread."""

    shared: Shared
    directory: str
    wanted: list[tuple[TopicPartition, LogConfig]]
    leader_epoch: int
    topic_id: str
    made: dict[TopicPartition, PartitionLog] = field(default_factory=dict)

    def run(self) -> None:
        """Make them, durably. Waits for the disk."""
        for partition, config in self.wanted:
            directory = f"{self.directory}/{partition}"
            self.made[partition], _ = open_log(self.shared, directory, config, self.leader_epoch, self.topic_id)


class LogStore:
    """The logs below one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: StoreConfig,
        clock: Clock,
        config_of: Callable[[TopicPartition], LogConfig],
    ) -> None:
        """Open everything that is there. `config_of` gives the settings of a partition."""
        self.directory = directory
        self.config = config
        self.reports: dict[TopicPartition, RecoveryReport] = {}  # of the logs that had to be checked
        self.offline: dict[TopicPartition, Exception] = {}  # partitions that could not be opened, and why
        self._clock = clock
        self._disk = disk
        self._config_of = config_of
        self._logs: dict[TopicPartition, PartitionLog] = {}
        tables = OpenTables(disk.open_files_max if isinstance(disk, RealDisk) else 0)
        self._shared = Shared(disk, clock, config, IndexCache(config.log_index_cache_bytes), tables)
        self._deletions = 0
        self._closed = False
        disk.make_directory(directory)
        self._lock = disk.lock(f"{directory}/{LOCK_NAME}")
        self.was_clean = disk.exists(f"{directory}/{CLEAN_STOP_NAME}")
        if self.was_clean:
            disk.remove(f"{directory}/{CLEAN_STOP_NAME}")
            disk.sync_directory(directory)
        try:
            self._open_all()
        except Exception:
            self._lock.release()
            raise

    def _open_all(self) -> None:
        for entry in sorted(self._disk.list(self.directory)):
            if not entry.is_directory:
                continue
            partition = parse_partition_directory(entry.name)
            if partition is not None:
                self._open_found(partition)
            elif _DELETED.fullmatch(entry.name):
                self._disk.remove_tree(f"{self.directory}/{entry.name}")
        if self.reports:
            scanned = sum(report.scanned_bytes for report in self.reports.values())
            logger.info("checked %d bytes of %d partitions, not known to be flushed", scanned, len(self.reports))

    def _open_found(self, partition: TopicPartition) -> None:
        """Open what is there; a directory that only looks like a partition's by its name is left alone."""
        try:
            directory = f"{self.directory}/{partition}"
            own = (f"{directory}/{name}" for name in (RECOVERY_POINT_NAME, STATE_NAME))
            if found_kind(self._disk, directory) is not None or any(map(self._disk.exists, own)):
                self._open(partition)
        except (DiskError, LogError) as error:
            self.offline[partition] = error
            logger.critical("%s is offline: %s", partition, error)

    def _open(self, partition: TopicPartition) -> PartitionLog:
        log, report = open_log(self._shared, f"{self.directory}/{partition}", self._config_of(partition))
        self._logs[partition] = log
        if any(report):
            self.reports[partition] = report
        return log

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All logs by partition."""
        return self._logs

    def create(self, partition: TopicPartition) -> PartitionLog:
        """Make the log of a new partition, durably, here and now."""
        creation = self.begin_create([partition])
        creation.run()
        self.finish_create(creation)
        return self._logs[partition]

    def begin_create(
        self,
        partitions: Sequence[TopicPartition],
        leader_epoch: int = NO_EPOCH,
        topic_id: str = "",
        config: LogConfig | None = None,
    ) -> Creation:
        """Prepare the logs of new partitions; nobody else may make them before `finish_create`."""
        for partition in partitions:
            self._check_new(partition)
        wanted = [(partition, config or self._config_of(partition)) for partition in partitions]
        return Creation(self._shared, self.directory, wanted, leader_epoch, topic_id)

    def finish_create(self, creation: Creation) -> None:
        """Take over the logs that were made."""
        if self._closed:
            raise LogError(f"{self.directory} is closed")
        self._logs.update(creation.made)

    def _check_new(self, partition: TopicPartition) -> None:
        problem = topic_name_problem(partition.topic)
        if not 0 <= partition.partition <= PARTITION_MAX:
            problem = f"there is no partition {partition.partition}: they count from 0 to {PARTITION_MAX}"
        if problem is not None:
            raise LogError(problem)
        if self._closed:
            raise LogError(f"{self.directory} is closed")
        if partition in self._logs:
            raise LogError(f"{partition} exists already; it is `store.logs[TopicPartition(...)]`")
        if partition in self.offline:
            raise LogError(f"{partition} exists already and is offline: {self.offline[partition]}")

    def delete(self, partition: TopicPartition) -> Callable[[], None]:
        """Take a partition away at once and for good; the call that comes back frees its bytes, in any thread."""
        log = self._logs.get(partition)
        if log is None and partition not in self.offline:
            raise LogError(f"there is no partition {partition}")
        self._deletions += 1
        doomed = f"{self.directory}/.deleted-{self._clock.now_ms():x}-{self._deletions:016x}"
        if log is not None:
            log.abandon()
        self._disk.rename(f"{self.directory}/{partition}", doomed)
        self._disk.sync_directory(self.directory)
        self._logs.pop(partition, None)
        self.offline.pop(partition, None)
        self.reports.pop(partition, None)  # another log of this name has lost nothing
        return lambda: self._disk.remove_tree(doomed)

    def owner_of(self, partition: TopicPartition) -> str:
        """Whose a log says that it is (`topic_id` of its state), also one that is offline; "" if it does not."""
        log = self._logs.get(partition)
        if log is not None:
            return log.state.topic_id
        try:
            return LogState(self._disk, f"{self.directory}/{partition}").topic_id
        except DiskError:
            return ""

    def flush_stats(self) -> FlushStats:
        """The flush counters of all logs together."""
        total = FlushStats()
        for log in self._logs.values():
            total.add(log.flush_stats)
        return total

    def expire(self, partition: TopicPartition, upto: Offset | None = None) -> Removal | None:
        """Apply segment.ms and retention to one log, up to its high watermark; run what comes back, in any thread."""
        log, now = self._logs[partition], self._clock.now_ms()
        log.roll_if_older(now)
        return log.expire(now, upto)

    def plan_compaction(self, partition: TopicPartition, upto: Offset | None = None) -> CompactionPlan | None:
        """Say what compaction should clean in one log now; build it in a thread, then install it or drop it.

        Only what is flushed is cleaned, and nothing beyond the last stable offset, `upto`.
        """
        log, key_map_bytes = self._logs[partition], self.config.log_cleaner_key_map_bytes
        return plan_compaction(log, self._clock.now_ms(), key_map_bytes, upto=upto)

    def checkpoint(self) -> None:
        """Write out what makes the next start short; call it every log.checkpoint.interval.ms."""
        for log in self._logs.values():
            with suppress(LogStoppedError):  # it has said so, and the others go on
                log.checkpoint()

    def close(self) -> None:
        """Flush and close every log; the marker is left only if none of them failed. Once is enough."""
        if self._closed:
            return
        self._closed = True
        healthy = not self.offline and all(log.stopped is None for log in self._logs.values())
        # Closing a log is waiting for the disk, and there may be thousands.
        with ThreadPoolExecutor(self.config.log_flush_threads) as threads:
            failures = [failure for failure in threads.map(_close, self._logs.values()) if failure is not None]
        try:
            if healthy and not failures:
                self._disk.write_atomic(f"{self.directory}/{CLEAN_STOP_NAME}", b"1\n")
        finally:
            self._lock.release()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close(log: PartitionLog) -> LogError | None:
    try:
        log.close()
    except LogError as error:
        return error
    return None


def open_store(
    directory: str, config: StoreConfig, clock: Clock, config_of: Callable[[TopicPartition], LogConfig]
) -> LogStore:
    """Open the logs of a directory of this machine, with no more files open than log.open.files.max says."""
    return LogStore(RealDisk(config.log_open_files_max), directory, config, clock, config_of)
