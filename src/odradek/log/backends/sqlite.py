"""Segments in sqlite: one database a segment, `<first offset>.sqlite`, in the partition's directory.

This module knows names: which databases belong to a log, which are leftovers of a crash, how a compacted segment takes
the place of those it was made from. What is inside a database is `sqlite_table`'s.
"""

from __future__ import annotations

import re
from uuid import uuid4
from weakref import WeakValueDictionary

from odradek.disk.interface import Disk
from odradek.disk.real import RealDisk
from odradek.log.backends.open_tables import OpenTables
from odradek.log.backends.sqlite_files import SIDES
from odradek.log.backends.sqlite_table import SqliteTable
from odradek.log.backends.table_segment import TableSegment, unlimited
from odradek.log.config import LogConfig
from odradek.log.errors import LogError
from odradek.log.segment import BatchCheck
from odradek.model import Offset

SQLITE = ".sqlite"
CLEANED = ".cleaned"  # ends the names of a replacement that compaction writes

_DATABASE = re.compile(
    r"(?P<base>[0-9]{20})\.sqlite"
    r"(?P<other>\.[0-9a-f]{32}\.(?P<kind>cleaned|gone))?(?P<side>-wal|-shm|-journal)?"
)


def database_path(directory: str, base_offset: Offset) -> str:
    """The name of a segment's database: twenty digits, as those of file segments."""
    return f"{directory}/{base_offset:020d}{SQLITE}"


class SqliteBackend:
    """The segments of one log as databases of one directory."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, check: BatchCheck, tables: OpenTables) -> None:
        if not isinstance(disk, RealDisk):
            raise LogError(f"{directory}: sqlite has files of its own and needs the machine's disk")
        self._disk = disk
        self._directory = directory
        self._config = config
        self._check = check
        self._tables = tables
        # Of this log and no other: a partition that is deleted and made again may have a build of the old one about.
        self.replacement_suffix = f".{uuid4().hex}{CLEANED}"
        self._known: WeakValueDictionary[Offset, SqliteTable] = WeakValueDictionary()  # the segments that are in use

    def find(self) -> list[Offset]:
        """The base offsets of the databases; what was set aside, or has lost its database, is removed."""
        bases: set[int] = set()
        sides: list[tuple[int, str]] = []
        for entry in self._disk.list(self._directory):
            match = _DATABASE.fullmatch(entry.name)
            if match is None or match["kind"] == "cleaned":
                continue
            if match["kind"] == "gone":
                self._disk.remove(f"{self._directory}/{entry.name}")
            elif match["side"]:
                sides.append((int(match["base"]), entry.name))
            else:
                bases.add(int(match["base"]))
        for base, name in sides:
            if base not in bases:
                self._disk.remove(f"{self._directory}/{name}")
        return sorted(bases)

    def open(self, base_offset: Offset) -> TableSegment:
        """Give a segment that `find` found or that was just installed."""
        return self._segment(base_offset, self._table(base_offset))

    def create(self, base_offset: Offset) -> TableSegment:
        """Make an empty, active segment."""
        table = self._table(base_offset)
        table.make()
        return self._segment(base_offset, table)

    def create_replacement(self, base_offset: Offset) -> TableSegment:
        """Make a segment beside the log, for compaction to fill."""
        path = database_path(self._directory, base_offset) + self.replacement_suffix
        table = SqliteTable(self._disk, path, self._tables)
        table.make()
        return TableSegment(self._disk, table, base_offset, unlimited(self._config), self._check)

    def install_replacement(self, base_offset: Offset, replaced: list[Offset], suffix: str) -> None:
        """Put a replacement in the place of the segments it was made from.

        As long as the replacement has its own name, all of this can be done again after a crash; once it has not, only
        leftovers can remain. Those who read the old ones go on under other names.
        """
        target = database_path(self._directory, base_offset)
        waits = self._disk.exists(target + suffix)
        for base in replaced:
            if base == base_offset and not waits:
                continue
            table = self._known.pop(base, None)
            if table is not None:
                table.set_aside()
            for side in (*SIDES, ""):
                self._disk.remove(database_path(self._directory, base) + side)
        if waits:
            self._disk.rename(target + suffix, target)
        self.sync_names()

    def discard_replacements(self) -> None:
        """Remove what compaction left unfinished."""
        for entry in self._disk.list(self._directory):
            match = _DATABASE.fullmatch(entry.name)
            if match and match["kind"] == "cleaned":
                self._disk.remove(f"{self._directory}/{entry.name}")

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""
        self._config = config

    def sync_names(self) -> None:
        """Return when creations and removals are on stable storage."""
        self._disk.sync_directory(self._directory)

    def _table(self, base_offset: Offset) -> SqliteTable:
        return SqliteTable(self._disk, database_path(self._directory, base_offset), self._tables)

    def _segment(self, base_offset: Offset, table: SqliteTable) -> TableSegment:
        self._known[base_offset] = table
        return TableSegment(self._disk, table, base_offset, self._config, self._check)
