"""Opens a partition, or one file of it, for the tools: what is on the disk decides by which library.

The databases' libraries are imported only where there is something for them to read.
"""

from __future__ import annotations

from odradek.disk.interface import Disk
from odradek.log.backends.choice import found_kind
from odradek.log.backends.library import library_problem
from odradek.log.errors import LogError
from odradek.log.sources import FileSources, OneFile, Sources
from odradek.model import Offset

SQLITE = ".sqlite"


def open_sources(disk: Disk, directory: str) -> Sources:
    """The segments of a partition's directory; LogError, DiskError if they cannot be read at all."""
    kind = found_kind(disk, directory)
    if kind == "sqlite":
        from odradek.log.sources_sqlite import open_sqlite  # noqa: PLC0415

        return open_sqlite(disk, directory)
    problem = library_problem(kind)
    if problem is not None:
        raise LogError(f"{directory}: {problem}")
    if kind == "rocksdb":
        from odradek.log.sources_rocksdb import open_rocksdb  # noqa: PLC0415

        return open_rocksdb(directory)
    return FileSources(disk, directory)


def open_file(disk: Disk, path: str, base: Offset | None) -> Sources:
    """One file of batches, or one sqlite segment."""
    if path.endswith(SQLITE):
        from odradek.log.sources_sqlite import open_sqlite_files  # noqa: PLC0415

        return open_sqlite_files({base or 0: path})
    return OneFile(disk, path, base)
