"""The batches of one segment in one sqlite database, which belongs to this process alone, but for readers.

An append goes into memory; `sync`, in another thread, writes all of it in one transaction and flushes the write-ahead
log. Where the topic's `flush` acknowledges at once, an append is written through before it returns, so that it
survives the end of the process. A write that failed is never tried again: everything fails from then on.

Locks are taken in the order in which they are declared.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock, RLock
from typing import Any
from uuid import uuid4

from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.log.backends.open_tables import OpenTables
from odradek.log.backends.sqlite_files import SIDES, KeptFile, connect, is_busy, read_failure, write_failure
from odradek.log.backends.sqlite_places import places_of
from odradek.log.backends.sqlite_schema import INSERT_BATCH, INSERT_CONTENTS, ROW, empty_database
from odradek.log.backends.table import Row
from odradek.log.errors import DamagedLogError, LogClosedError
from odradek.model import Offset

GONE = ".gone"  # ends the names of tables that were set aside
WAITING_BYTES_MAX = 16 << 20  # appended and not written yet; beyond it an append writes all of it first
WAL_BYTES_MAX = 4 << 20  # after a sync that leaves more, its pages are brought into the database
FIRST_ROWS_BYTES, ROWS_BYTES = 1 << 10, 1 << 20  # read at a time by those who may want one row, or many
_FAR = 1 << 62
_TYPES = [int, int, int, int, int, bytes]  # of a row's values


class SqliteTable:
    """A table in a database file; see `Table` for what each method promises."""

    descriptors = 8  # two connections with a database, a log and its index each, and two that are kept for syncing

    def __init__(self, disk: Disk, path: str, tables: OpenTables, *, written_through: bool = False) -> None:
        self.path = path
        self.written_through = written_through
        self._disk = disk
        self._tables = tables
        self._syncing = Lock()
        self._writing = RLock()
        self._reading = RLock()
        self._memory = Lock()
        self._waiting: list[Row] = []  # appended and not in the database yet, in order
        self._waiting_bytes = 0
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._kept: list[KeptFile] = []  # of the database and of its write-ahead log, while the writer is open
        self._unsynced = True  # an earlier process may have written without a sync, or failed at one
        self._is_fresh = False  # the log's name is new, and so may be the database's bytes: a flush covers them, too
        self._failed: DiskError | None = None
        self._is_finished = False  # nothing will be added, and this process has brought all into one file
        self._is_aside = False
        self._closed = False

    def make(self) -> None:
        """Make the database, empty, in the place of whatever is there. Its bytes are durable after `sync`."""
        for side in SIDES:  # first: a log that an earlier database of this name left would be taken for its own
            self._disk.remove(self.path + side)
        file = self._disk.open(self.path, create=True)
        file.append(empty_database())
        file.close()

    # Writing.

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows behind all others: in memory, and in the database if they must survive this process."""
        self._check()
        with self._memory:
            self._waiting += rows
            self._waiting_bytes += sum(len(row.data) for row in rows)
        if self.written_through or self._waiting_bytes > WAITING_BYTES_MAX:
            with self._writing:
                self._write_out()
            self._tables.use(self)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed or self._is_aside:
            raise DiskError("write", self.path, "it is closed, or its place is taken")

    @contextmanager
    def _writes(self, action: str) -> Iterator[sqlite3.Connection]:
        """The connection that writes; whatever goes wrong with it is final. Call it with `_writing` held."""
        self._check()
        try:
            yield self._open_writer()
        except DiskError as error:
            self._failed = error
            raise
        except Exception as error:  # also what is not sqlite's: a transaction may have been left half done
            self._failed = write_failure(action, self.path, error)
            raise self._failed from error

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = connect(self.path)
            if self._writer.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise DiskError("open", self.path, "sqlite cannot keep a write-ahead log here")
            # What is in its log may have failed to reach the disk and pass for clean: it is written again.
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._writer.execute("BEGIN IMMEDIATE")  # makes the log's file
            self._writer.execute("ROLLBACK")
            self._kept = [KeptFile(self.path), KeptFile(f"{self.path}-wal")]
            self._is_fresh = self._unsynced = True
            self._is_finished = False
        return self._writer

    def _write_out(self) -> None:
        """Write what waits, in one transaction; it survives the process then, and the machine after a sync."""
        with self._memory:
            rows = self._waiting[:]
        if not rows:
            return
        with self._writes("append to") as connection:
            self._unsynced = True
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT_BATCH, rows)
            places = ((row.base_offset, places_of(row.data)) for row in rows)
            connection.executemany(INSERT_CONTENTS, ((base, *found) for base, found in places if found is not None))
            connection.execute("COMMIT")
        with self._memory:  # only now: until it is in the database it is read from memory
            del self._waiting[: len(rows)]
            self._waiting_bytes -= sum(len(row.data) for row in rows)

    def sync(self, *, sealed: bool) -> None:
        """Return when all that was appended before the call is on stable storage."""
        with self._syncing:
            if self._is_aside:
                return
            self._check()
            with self._writing:
                self._write_out()
            self._flush()
            if sealed:
                self._finish()
            elif self._kept and self._kept[1].size_bytes > WAL_BYTES_MAX:
                with self._writing, self._writes("flush") as connection:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not sealed:
            self._tables.use(self)

    def _flush(self) -> None:
        """Flush the files; nobody who writes or reads waits for it. Call it with `_syncing` held."""
        if not self._unsynced:
            return
        with self._writing, self._writes("flush"):
            fresh, kept = self._is_fresh, self._kept
            self._is_fresh = self._unsynced = False  # before: what is written while it runs is for the next one
        try:
            for file in kept if fresh else kept[1:]:
                file.sync()
            if fresh:
                self._disk.sync_directory(self.path.rpartition("/")[0] or ".")
        except DiskError as error:
            self._failed = error
            raise

    def _finish(self) -> None:
        """Bring everything into the one file, which nobody will change any more. Call it with `_syncing` held.

        If another program is reading at this moment, it stays as it is: all of it is safe already.
        """
        with self._writing, self._reading:
            if self._is_finished:
                return
            _close(self._reader)
            self._reader = None
            with self._writes("flush") as connection:
                try:
                    connection.execute("PRAGMA journal_mode = DELETE").fetchone()
                except sqlite3.Error as error:
                    if not is_busy(error):
                        raise
            self._is_finished, self._unsynced = True, False
            self._close_all()

    def truncate(self, offset: Offset) -> None:
        """Remove the rows with last_offset >= offset, durably."""
        with self._syncing:
            with self._writing:
                with self._memory:
                    del self._waiting[bisect_left(self._waiting, offset, key=_last_offset) :]
                    self._waiting_bytes = sum(len(row.data) for row in self._waiting)
                with self._writes("truncate") as connection:
                    self._unsynced = True
                    connection.execute("BEGIN IMMEDIATE")
                    for table in ("contents", "batches"):
                        connection.execute(
                            f"DELETE FROM {table} WHERE base_offset IN"
                            " (SELECT base_offset FROM batches WHERE last_offset >= ?1)",
                            (offset,),
                        )
                    connection.execute("COMMIT")
                self._write_out()
            self._flush()
        self._tables.use(self)

    def reset(self) -> None:
        """Begin as an empty table, whatever is there."""
        with self._all_locked():
            self._close_all()
            self.make()
            self._unsynced = True

    # Reading.

    @contextmanager
    def _reads(self) -> Iterator[sqlite3.Connection]:
        with self._reading:
            if self._closed:
                raise LogClosedError(f"{self.path} is closed")
            try:
                if self._reader is None:
                    self._reader = connect(self.path)
                self._tables.use(self)
                yield self._reader
            except sqlite3.Error as error:
                if self._is_aside and not self._disk.exists(self.path):
                    raise LogClosedError(f"{self.path} is gone with its partition") from error
                raise read_failure(self.path, error) from error

    def _waiting_since(self, offset: Offset) -> tuple[list[Row], Offset]:
        """The rows in memory from an offset on, and the offset before which all is in the database."""
        with self._memory:
            first = self._waiting[0].base_offset if self._waiting else _FAR
            return self._waiting[bisect_left(self._waiting, offset, key=_last_offset) :], first

    def find(self, offset: Offset) -> Row | None:
        """The first row with last_offset >= offset, without its data."""
        waiting, written_to = self._waiting_since(offset)  # first: what leaves the memory is in the database by then
        if offset >= written_to:
            return next(iter(waiting), None)
        with self._reads() as connection:
            start = _start(connection, offset)
            found = connection.execute(
                "SELECT base_offset, last_offset, max_timestamp, position, newest, x'' FROM batches"
                " WHERE base_offset >= ? AND base_offset < ? ORDER BY base_offset LIMIT 1",
                (start, written_to),
            ).fetchone()
        return self._row(found) if found is not None else next(iter(waiting), None)

    def _row(self, found: tuple[Any, ...]) -> Row:
        """A row as the database has it; damage can make anything of a value, and sqlite does not mind."""
        if [*map(type, found)] != _TYPES:
            raise DamagedLogError(self.path, 0, f"a row has values that no batch has: {found[:5]}")
        return Row(*found)

    def read(self, offset: Offset, max_bytes: int, upto: Offset) -> list[Row]:
        """Rows from that one on with base_offset < upto, at most `max_bytes` of data, but at least one."""
        return self._read(offset, max_bytes, upto, None)

    def _read(self, offset: Offset, max_bytes: int, upto: Offset, behind: Row | None) -> list[Row]:
        """The same, or all that follow a row, which may be wrong about its last offset."""
        waiting, written_to = self._waiting_since(offset)
        if behind is not None:
            waiting = [row for row in waiting if row.base_offset > behind.base_offset]
        rows: list[Row] = []
        size = 0
        if offset < written_to:
            try:
                with self._reads() as connection:
                    start = _start(connection, offset) if behind is None else offset
                    cursor = connection.execute(
                        f"{ROW} WHERE base_offset >= ? AND base_offset < ? ORDER BY base_offset",
                        (start, min(upto, written_to)),
                    )
                    for found in cursor:
                        row = self._row(found)
                        size += len(row.data)
                        if rows and size > max_bytes:
                            cursor.close()  # or it would keep its view of the database
                            return rows
                        rows.append(row)
            except DamagedLogError:
                if rows:  # what stands before the damage is good
                    return rows
                raise
        for row in waiting:
            size += len(row.data)
            if row.base_offset >= upto or (rows and size > max_bytes):
                break
            rows.append(row)
        return rows

    def rows(self, offset: Offset) -> Iterator[Row]:
        """All rows from that one on, in order."""
        max_bytes, found = FIRST_ROWS_BYTES, self._read(offset, FIRST_ROWS_BYTES, _FAR, None)
        while found:
            yield from found
            max_bytes = min(2 * max_bytes, ROWS_BYTES)
            found = self._read(found[-1].base_offset + 1, max_bytes, _FAR, found[-1])

    def last(self) -> Row | None:
        """The last row."""
        with self._memory:
            if self._waiting:
                return self._waiting[-1]
        with self._reads() as connection:
            found = connection.execute(f"{ROW} ORDER BY base_offset DESC LIMIT 1").fetchone()
            # Where the next rows will go is looked at, too: damage there must be told by a read, not by a write.
            connection.execute("SELECT base_offset FROM contents ORDER BY base_offset DESC LIMIT 1").fetchone()
            if found is None:  # it may be new, and not have reached the disk whole
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise DamagedLogError(self.path, 0, f"sqlite says: {verdict}")
        return self._row(found) if found is not None else None

    # Its place in the store.

    def set_aside(self) -> None:
        """Take another name, which nobody else will have."""
        with self._all_locked():
            if self._is_aside:
                return
            self._close_all()
            aside = f"{self.path}.{uuid4().hex}{GONE}"
            if self._disk.exists(self.path):
                self._disk.rename(self.path, aside)
            for side in SIDES:
                self._disk.remove(self.path + side)
            self.path = aside
            self._is_aside = True

    def discard(self) -> None:
        """Free its bytes."""
        self.close()
        for side in ("", *SIDES):
            self._disk.remove(self.path + side)

    def close(self) -> None:
        """Give back what it has open, for good."""
        with self._all_locked():
            self._closed = True
            self._close_all()

    def shut(self) -> bool:
        """Close what is open until it is needed again; False if somebody uses it at this moment."""
        with ExitStack() as held:
            for lock in (self._syncing, self._writing, self._reading):
                if not lock.acquire(blocking=False):
                    return False
                held.callback(lock.release)
            # Only what is safe: sqlite does not say whether closing went well.
            if self._writer is not None and (self._unsynced or self._waiting) and not self._is_flushed():
                return False
            self._close_all()
        return True

    def _is_flushed(self) -> bool:
        """Flush what is there now; whoever writes to it next hears of a failure."""
        with suppress(DiskError):
            self._write_out()
            self._flush()
        return self._failed is None

    @contextmanager
    def _all_locked(self) -> Iterator[None]:
        with self._syncing, self._writing, self._reading:
            yield

    def _close_all(self) -> None:
        """Close the connections, which brings the log into the database, then the descriptors kept for syncing."""
        closers: list[Callable[[], None]] = [file.close for file in self._kept]
        for connection in (self._reader, self._writer):
            _close(connection)
        self._reader = self._writer = None
        self._kept = []
        for closer in closers:
            closer()
        self._tables.forget(self)


def _start(connection: sqlite3.Connection, offset: Offset) -> Offset:
    """The base offset of the batch that holds an offset; the offset itself if none does."""
    found = connection.execute(
        "SELECT base_offset, last_offset FROM batches WHERE base_offset <= ? ORDER BY base_offset DESC LIMIT 1",
        (offset,),
    ).fetchone()
    return int(found[0]) if found is not None and isinstance(found[1], int) and found[1] >= offset else offset


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()


def _last_offset(row: Row) -> Offset:
    return row.last_offset
