"""Moves a partition that no broker has open into another kind of segments.

The new partition is built beside the old one under a name that every start clears away, compared with it batch by
batch, and then the two change names in one step. So whatever happens, one good partition stands under the name; what
has the other name is a leftover.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from odradek.disk.exchange import exchange
from odradek.log.backends.choice import Kind, backend_of, found_kind
from odradek.log.backends.table_segment import unlimited
from odradek.log.config import LogConfig
from odradek.log.epochs import LeaderEpochs
from odradek.log.errors import DamagedLogError, LogError
from odradek.log.incoming import marks_of, split
from odradek.log.log import PartitionLog
from odradek.log.recovery import Shared, batch_check, open_log
from odradek.log.segment import Backend, Segment
from odradek.log.sources_open import open_sources
from odradek.log.state import RECOVERY_POINT_NAME, LogState, RecoveryPoint, set_recovery_point
from odradek.log.store import LOCK_NAME
from odradek.model import Offset

_CHUNK_BYTES = 1 << 20
_SYNC_BYTES = 16 << 20  # so that what is not on the disk yet stays small
_LEFTOVER = re.compile(r"\.deleted-[0-9a-f]+-0[0-9a-f]{15}")  # names that the store removes when it starts
_SEGMENT_LIKE = re.compile(r"[0-9]{20}\.(log|index|timeindex|sqlite).*|segments\.rocksdb.*")


class Converted(NamedTuple):
    """What a partition was and is."""

    was: Kind
    now: Kind  # the same: there was nothing to do
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0  # of the batches


def convert(shared: Shared, directory: str, kind: Kind, config: LogConfig, advance: Callable[[int], None]) -> Converted:
    """Move a partition; LockedError if a broker runs. `advance` hears of bytes: each is copied, then compared."""
    disk = shared.disk
    data_directory = directory.rpartition("/")[0]
    with closing(_Lock(shared, data_directory)):
        for entry in disk.list(data_directory):
            if entry.is_directory and _LEFTOVER.fullmatch(entry.name):
                disk.remove_tree(f"{data_directory}/{entry.name}")
        was = found_kind(disk, directory)
        if was is None:
            raise LogError(f"{directory} has no segments")
        if was == kind:
            return Converted(was, kind)
        open_log(shared, directory, config)[0].close()  # as a start would: what a crash left is put right
        _refuse_strange_files(shared, directory)
        beside = f"{data_directory}/.deleted-{shared.clock.now_ms():x}-{0:016x}"
        try:
            with _opened(shared, directory, config) as log:
                copied = _Copy(shared, log, beside, replace(config, segment_backend=kind), advance).run()
                _compare(shared, log, beside, config, advance)
            disk.sync_directory(beside)
            exchange(directory, beside)
        except BaseException:
            disk.remove_tree(beside)  # the new one
            raise
        disk.sync_directory(data_directory)
        disk.remove_tree(beside)  # the old one
    return Converted(was, kind, *copied)


class _Lock:
    """The data directory, as a broker has it."""

    def __init__(self, shared: Shared, data_directory: str) -> None:
        self._lock = shared.disk.lock(f"{data_directory}/{LOCK_NAME}")

    def close(self) -> None:
        """Let others have it."""
        self._lock.release()


@contextmanager
def _opened(shared: Shared, directory: str, config: LogConfig) -> Iterator[PartitionLog]:
    log, report = open_log(shared, directory, config)
    try:
        if any(report):
            raise LogError(f"{directory} was closed and is not whole when it is opened again: {report}")
        yield log
    finally:
        log.close()


def _refuse_strange_files(shared: Shared, directory: str) -> None:
    """What recovery has put aside would go with the old directory; a person may want it."""
    with closing(open_sources(shared.disk, directory)) as sources:
        for entry in sorted(shared.disk.list(directory)):
            if not sources.owns(entry.name) and (entry.is_directory or _SEGMENT_LIKE.fullmatch(entry.name)):
                raise LogError(
                    f"{directory}/{entry.name} belongs to no segment; it may be a torn tail that a start put aside. "
                    "Move it out of the directory, then convert again"
                )


def _small_files(shared: Shared, directory: str) -> list[str]:
    """What stands beside the segments, but for the recovery point, which speaks of their bytes."""
    names = (entry.name for entry in shared.disk.list(directory) if not entry.is_directory)
    return sorted(name for name in names if name != RECOVERY_POINT_NAME and not _SEGMENT_LIKE.fullmatch(name))


def _chunks(log: PartitionLog, segment: Segment) -> Iterator[memoryview]:
    """The batches of a segment, checked; damage and gaps that no compaction explains raise."""
    offset, end = segment.base_offset, segment.next_offset
    while offset < end:
        chunk = segment.read(offset, _CHUNK_BYTES, end)
        missing = chunk is None or not chunk.data
        if not log.state.sparse and (missing or (chunk is not None and chunk.base_offset > offset)):
            raise DamagedLogError(f"{log.directory}, segment {segment.base_offset}", 0, f"offset {offset} is missing")
        if chunk is None or not chunk.data:
            return
        yield chunk.data
        offset = chunk.next_offset


class _Copy:
    """Builds the new partition. The segments begin where the old ones do, and where a limit asks for another one."""

    def __init__(
        self, shared: Shared, log: PartitionLog, beside: str, config: LogConfig, advance: Callable[[int], None]
    ) -> None:
        self._shared, self._log, self._beside, self._advance = shared, log, beside, advance
        self._records_max = config.segment_records_max
        self._config = replace(unlimited(config), segment_records_max=self._records_max)
        self._segments: list[Segment] = []
        self._batches = self._records = self._size_bytes = self._unsynced_bytes = 0

    def run(self) -> tuple[int, int, int, int]:
        """Copy everything, durably; gives the numbers of segments, batches, records and bytes."""
        disk, log = self._shared.disk, self._log
        disk.make_directory(self._beside)
        for name in _small_files(self._shared, log.directory):
            disk.write_atomic(f"{self._beside}/{name}", disk.read_file(f"{log.directory}/{name}") or b"")
        check = batch_check(LeaderEpochs(disk, self._beside), LogState(disk, self._beside))
        shared = self._shared
        backend = backend_of(disk, self._beside, shared.cache, self._config, check, shared.tables)
        backend.find()
        try:
            for segment in log.segments:
                self._begin(backend, segment.base_offset)
                for data in _chunks(log, segment):
                    self._add(backend, data)
            active = self._segments[-1]
            active.checkpoint()
            active.sync(sealed=True)
            backend.sync_names()
            point = RecoveryPoint(log.next_offset, active.base_offset, active.size_bytes, indexed=True)
            set_recovery_point(disk, self._beside, point)
        finally:
            for segment in self._segments:
                segment.close()
        return len(self._segments), self._batches, self._records, self._size_bytes

    def _begin(self, backend: Backend, base: Offset) -> None:
        if self._segments:
            self._segments[-1].seal()
            self._segments[-1].sync(sealed=True)
        self._segments.append(backend.create(base))

    def _add(self, backend: Backend, data: memoryview) -> None:
        batches = split(data)
        if not self._segments[-1].append_many(data, marks_of(batches)):
            for header, batch in batches:
                if not self._segments[-1].append(batch, header.last_offset, header.max_timestamp):
                    self._begin(backend, self._segments[-1].next_offset)
                    self._segments[-1].append(batch, header.last_offset, header.max_timestamp)
        self._batches += len(batches)
        self._records += sum(header.record_count for header, _ in batches)
        self._size_bytes += len(data)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= _SYNC_BYTES:
            self._segments[-1].sync()
            self._unsynced_bytes = 0
        self._advance(len(data))


def _compare(shared: Shared, log: PartitionLog, beside: str, config: LogConfig, advance: Callable[[int], None]) -> None:
    """Open the new partition as a start would, and hold all of it against the old one."""
    for name in _small_files(shared, log.directory):
        if shared.disk.read_file(f"{beside}/{name}") != shared.disk.read_file(f"{log.directory}/{name}"):
            raise _differs(beside, name)
    with _opened(shared, beside, config) as copy:
        if (copy.log_start, copy.next_offset) != (log.log_start, log.next_offset):
            raise _differs(beside, "the offsets")
        for old, new in zip_longest(_batches(log), _batches(copy), fillvalue=None):
            if old != new:
                raise _differs(beside, "a batch")
            advance(len(old or b""))


def _batches(log: PartitionLog) -> Iterator[memoryview]:
    for segment in log.segments:
        for data in _chunks(log, segment):
            for _, batch in split(data):
                yield batch


def _differs(beside: str, what: str) -> LogError:
    return LogError(f"the copy in {beside} is not what was copied: {what} differs. Nothing was changed")
