"""Segments in RocksDB: one database a partition, `segments.rocksdb`, with the batches of all its segments.

A segment is there if the database's catalogue names it. What replaces segments is written as a run beside them and
takes their place by one atomic write. What is inside a run is `rocksdb_table`'s.
"""

from __future__ import annotations

from itertools import count
from uuid import uuid4

from odradek.disk.interface import Disk
from odradek.disk.real import RealDisk
from odradek.log.backends.choice import ROCKSDB_NAME
from odradek.log.backends.open_tables import OpenTables
from odradek.log.backends.rocksdb_catalog import catalog, replacements, stored_runs
from odradek.log.backends.rocksdb_database import Database
from odradek.log.backends.rocksdb_keys import NUMBER, Run, catalog_key, replacement_key
from odradek.log.backends.rocksdb_table import RocksTable
from odradek.log.backends.table_segment import TableSegment, unlimited
from odradek.log.config import LogConfig
from odradek.log.errors import LogError
from odradek.log.segment import BatchCheck
from odradek.model import Offset


class RocksdbBackend:
    """The segments of one log in one database."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, check: BatchCheck, tables: OpenTables) -> None:
        if not isinstance(disk, RealDisk):
            raise LogError(f"{directory}: RocksDB has files of its own and needs the machine's disk")
        self._disk = disk
        self._directory = directory
        self._config = config
        self._check = check
        self._database = Database(f"{directory}/{ROCKSDB_NAME}", tables)
        self.replacement_suffix = uuid4().hex
        self._numbers = count()  # of the runs that are made; `find` sets it behind those that are there
        self._found: dict[Offset, Run] = {}

    def find(self) -> list[Offset]:
        """The base offsets of the catalogue; runs that no entry names are removed."""
        self._found = catalog(self._database)
        named = {*self._found.values(), *replacements(self._database).values()}
        stored = stored_runs(self._database)
        for run in stored:
            if run not in named:
                RocksTable(self._database, run).discard()
        self._numbers = count(max((run.number for run in {*named, *stored}), default=0) + 1)
        return sorted(self._found)

    def open(self, base_offset: Offset) -> TableSegment:
        """Give a segment that `find` found or that was just installed."""
        run = self._found.pop(base_offset, None) or catalog(self._database).get(base_offset)
        if run is None:
            raise LogError(f"{self._database.path} has no segment {base_offset}")
        return self._segment(run)

    def create(self, base_offset: Offset) -> TableSegment:
        """Make an empty, active segment."""
        run = Run(base_offset, next(self._numbers))
        self._database.put(catalog_key(base_offset), NUMBER.pack(run.number))
        return self._segment(run)

    def create_replacement(self, base_offset: Offset) -> TableSegment:
        """Make a segment beside the log, for compaction to fill."""
        run = Run(base_offset, next(self._numbers))
        self._database.put(replacement_key(base_offset, self.replacement_suffix), NUMBER.pack(run.number))
        table = RocksTable(self._database, run)
        return TableSegment(self._disk, table, base_offset, unlimited(self._config), self._check)

    def install_replacement(self, base_offset: Offset, replaced: list[Offset], suffix: str) -> None:
        """Put a replacement in the place of the segments it was made from, by one write."""
        waiting = replacement_key(base_offset, suffix)
        run = replacements(self._database).get(waiting)
        if run is not None:  # else it was done before a crash
            self._database.write(
                puts={catalog_key(base_offset): NUMBER.pack(run.number)},
                deletes=[waiting, *(catalog_key(base) for base in replaced if base != base_offset)],
            )
            # Their bytes go when nobody holds them any more, or at the next start.
            self._database.forget_runs(replaced)
            self._found.clear()
        self.sync_names()

    def discard_replacements(self) -> None:
        """Remove what compaction left unfinished."""
        for key, run in replacements(self._database).items():
            self._database.write(puts={}, deletes=[key])
            RocksTable(self._database, run).discard()

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""
        self._config = config

    def sync_names(self) -> None:
        """Return when creations and removals are on stable storage."""
        self._database.sync()
        self._disk.sync_directory(self._directory)

    def _segment(self, run: Run) -> TableSegment:
        self._database.open_run(run)
        return TableSegment(self._disk, RocksTable(self._database, run), run.base_offset, self._config, self._check)
