"""The files of one sqlite database, and how it is opened, synced and kept from being taken for another.

A database has up to three files beside it (`-wal`, `-shm`, `-journal`). Here is what sqlite itself does not do: a flush
of its write-ahead log without holding anybody up, and a look at whether that log is still the one that was written.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from odradek.disk.errors import DiskError, DiskFullError, disk_error
from odradek.disk.real import sync_descriptor
from odradek.log.errors import DamagedLogError

SIDES = ("-wal", "-shm", "-journal")
LOCKED_WAIT_S = 5.0  # for another program that has the database
CACHE_KIB = 256  # of pages, by connection
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PRIMARY = 0xFF  # the part of an error code that says what kind it is
_DAMAGES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


def connect(path: str) -> sqlite3.Connection:
    """Open a database that exists, for any thread, one at a time."""
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=LOCKED_WAIT_S,
    )
    try:
        # NORMAL: a commit does not wait for the disk, a checkpoint does; who needs more asks `WalFile.sync`.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except BaseException:
        connection.close()
        raise
    return connection


def write_failure(action: str, path: str, error: Exception) -> DiskError:
    """What could not be written is in doubt, whatever the reason."""
    if _code(error) == sqlite3.SQLITE_FULL:
        return DiskFullError(action, path, "no space is left on the device; free some and start again")
    return DiskError(action, path, str(error))


def read_failure(path: str, error: sqlite3.Error) -> DiskError | DamagedLogError:
    """Tell a database that is not what was written from a disk that does not answer."""
    if _code(error) in _DAMAGES:
        return DamagedLogError(path, 0, f"sqlite says: {error}")
    return DiskError("read", path, str(error))


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another program has the database at this moment, and nothing else is wrong."""
    return _code(error) in _BUSY


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & _PRIMARY


class KeptFile:
    """A descriptor for syncing a file of a database that is open.

    It stays open as long as the database is: closing any descriptor of a file would drop sqlite's locks on it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise disk_error("open", path, error) from error

    def sync(self) -> None:
        """Return when its bytes are on stable storage; DiskError if its name has become another file's, or nobody's."""
        try:
            sync_descriptor(self._descriptor)
            kept, named = os.fstat(self._descriptor), Path(self.path).stat()
        except OSError as error:
            raise disk_error("flush", self.path, error) from error
        if (kept.st_dev, kept.st_ino) != (named.st_dev, named.st_ino):
            reason = "another program has removed or replaced it; open segments of a running broker read-only"
            raise DiskError("flush", self.path, reason)

    @property
    def size_bytes(self) -> int:
        """How large it is now."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Give the descriptor back; once is enough."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
