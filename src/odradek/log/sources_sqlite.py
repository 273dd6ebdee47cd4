"""Reading sqlite segments beside a broker that may be at work on them: nothing is written, nothing stays locked.

A database that was closed in good order is opened as a file that does not change, so that sqlite makes no files beside
it. One with a write-ahead log is opened read-only, as any other program would.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from odradek.disk.interface import Disk
from odradek.log.backends.sqlite_files import LOCKED_WAIT_S, read_failure
from odradek.log.backends.sqlite_schema import ROW
from odradek.log.backends.table import Row
from odradek.log.sources_table import TableSources
from odradek.model import Offset

_SEGMENT_FILE = re.compile(r"(?P<base>[0-9]{20})\.sqlite(?P<side>-wal|-shm|-journal)?")
_CHUNK_ROWS = 64


class SqliteReading:
    """The rows of one database file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def find(self, offset: Offset) -> Row | None:
        """The first row with last_offset >= offset."""
        rows = self._select("WHERE base_offset <= ? ORDER BY base_offset DESC LIMIT 1", offset)
        if rows and rows[0].last_offset >= offset:
            return rows[0]
        return next(iter(self._select("WHERE base_offset > ? ORDER BY base_offset LIMIT 1", offset)), None)

    def last(self) -> Row | None:
        """The last row."""
        return next(iter(self._select("ORDER BY base_offset DESC LIMIT 1")), None)

    def rows(self, offset: Offset) -> Iterator[Row]:
        """All rows from the one that holds `offset` on, a few at a time, so that nothing is locked in between."""
        row = self.find(offset)
        while row is not None:
            yield row
            following = self._select(f"WHERE base_offset > ? ORDER BY base_offset LIMIT {_CHUNK_ROWS}", row.base_offset)
            yield from following[:-1]
            row = following[-1] if following else None

    def _select(self, where: str, *values: int) -> list[Row]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            found: list[Any] = self._connection.execute(f"{ROW} {where}", values).fetchall()
        except sqlite3.Error as error:
            raise read_failure(self.path, error) from error
        return [Row(*fields) for fields in found]

    def _connect(self) -> sqlite3.Connection:
        log = f"{self.path}-wal"
        mode = "mode=ro" if os.path.exists(log) and os.path.getsize(log) else "mode=ro&immutable=1"  # noqa: PTH110, PTH202
        return sqlite3.connect(f"file:{quote(self.path)}?{mode}", uri=True, timeout=LOCKED_WAIT_S)

    def close(self) -> None:
        """Give back what it has open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def open_sqlite_files(paths: dict[Offset, str]) -> TableSources:
    """The segments in these database files."""
    tables = {base: SqliteReading(path) for base, path in paths.items()}

    def owns(name: str) -> bool:
        match = _SEGMENT_FILE.fullmatch(name)
        return match is not None and int(match["base"]) in tables

    def close() -> None:
        for table in tables.values():
            table.close()

    return TableSources(tables, owns, close)


def open_sqlite(disk: Disk, directory: str) -> TableSources:
    """The sqlite segments of a partition's directory."""
    matches = (_SEGMENT_FILE.fullmatch(entry.name) for entry in disk.list(directory))
    names = {int(match["base"]): match[0] for match in matches if match is not None and not match["side"]}
    return open_sqlite_files({base: f"{directory}/{name}" for base, name in names.items()})
