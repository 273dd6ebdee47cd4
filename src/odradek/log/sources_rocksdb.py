"""Reading RocksDB segments beside a broker that may be at work on them: nothing is written, no lock is taken.

RocksDB's library writes small files into a directory even if it only reads. So it is given a directory of its own, in
which links lead to the files of the database; it goes when the reading is done.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

from odradek.disk.errors import DiskError
from odradek.log.backends.choice import ROCKSDB_NAME
from odradek.log.backends.open_tables import OpenTables
from odradek.log.backends.rocksdb_catalog import catalog
from odradek.log.backends.rocksdb_database import Database
from odradek.log.backends.rocksdb_table import RocksTable
from odradek.log.errors import DamagedLogError
from odradek.log.sources_table import TableSources

_ATTEMPTS = 5  # a broker may remove a file between the listing and the opening
_NOT_LINKED = ("LOCK", "LOG", "rocksdict-config.json")


class ReadOnlyDatabase(Database):
    """A database as it was when it was opened."""

    def __init__(self, path: str) -> None:
        super().__init__(path, OpenTables())
        self._links = tempfile.mkdtemp(prefix="odradek-reading-")

    def _open(self) -> Rdict:
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return self._open_links()
            except (DiskError, DamagedLogError):
                if not attempts_left:
                    raise
        raise AssertionError

    def _open_links(self) -> Rdict:
        shutil.rmtree(self._links, ignore_errors=True)
        links = Path(self._links)
        try:
            links.mkdir()
            for file in Path(self.path).resolve().iterdir():
                if file.name not in _NOT_LINKED:
                    (links / file.name).symlink_to(file)
        except OSError as error:
            raise DiskError("read", self.path, os.strerror(error.errno or 0)) from error
        options = Options(raw_mode=True)
        options.create_if_missing(False)
        options.set_max_open_files(-1)  # all at once: a broker may remove the names of some
        try:
            return Rdict(self._links, options, access_type=AccessType.read_only(False))
        except Exception as error:  # the library has no finer class
            raise self._translated("open", error) from error

    def end(self) -> None:
        """Close it and remove the links."""
        super().end()
        shutil.rmtree(self._links, ignore_errors=True)


def open_rocksdb(directory: str) -> TableSources:
    """The RocksDB segments of a partition's directory."""
    database = ReadOnlyDatabase(f"{directory}/{ROCKSDB_NAME}")
    try:
        tables = {base: RocksTable(database, run) for base, run in catalog(database).items()}
        return TableSources(tables, lambda name: name == ROCKSDB_NAME, database.end)
    except BaseException:
        database.end()
        raise
