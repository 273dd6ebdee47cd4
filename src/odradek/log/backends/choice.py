"""Which kind of segments a log has: what is in its directory decides; a new log follows the topic's settings."""

from __future__ import annotations

import re
from typing import Literal

from odradek.disk.interface import Disk
from odradek.log.backends.file import FileBackend
from odradek.log.backends.open_tables import OpenTables
from odradek.log.config import LogConfig
from odradek.log.errors import LogError
from odradek.log.index import IndexCache
from odradek.log.segment import Backend, BatchCheck

Kind = Literal["file", "sqlite", "rocksdb"]

ROCKSDB_NAME = "segments.rocksdb"  # the directory of a partition's one database
_SEGMENT = re.compile(r"[0-9]{20}\.(?P<kind>log|sqlite)(\..+)?")  # replacements and leftovers of a crash, too


def found_kind(disk: Disk, directory: str) -> Kind | None:
    """The kind of the segments in a partition's directory; None if there are none. LogError: of several kinds."""
    kinds: set[Kind] = set()
    for entry in disk.list(directory):
        match = _SEGMENT.fullmatch(entry.name)
        if entry.name == ROCKSDB_NAME and entry.is_directory:
            kinds.add("rocksdb")
        elif match is not None:
            kinds.add("file" if match["kind"] == "log" else "sqlite")
    if len(kinds) > 1:
        raise LogError(
            f"{directory} has segments of several kinds ({', '.join(sorted(kinds))}); a log has one. "
            "Move those that do not belong here out of the directory, then start again"
        )
    return next(iter(kinds), None)


def backend_of(
    disk: Disk, directory: str, cache: IndexCache, config: LogConfig, check: BatchCheck, tables: OpenTables
) -> Backend:
    """The backend of what is in a directory; of an empty one: what `segment.backend` says."""
    kind = found_kind(disk, directory) or config.segment_backend
    # Imported where they are needed: a broker whose topics are all files has neither library in memory.
    if kind == "sqlite":
        from odradek.log.backends.sqlite import SqliteBackend  # noqa: PLC0415

        return SqliteBackend(disk, directory, config, check, tables)
    if kind == "rocksdb":
        from odradek.log.backends.rocksdb import RocksdbBackend  # noqa: PLC0415

        return RocksdbBackend(disk, directory, config, check, tables)
    return FileBackend(disk, directory, cache, config, check)
