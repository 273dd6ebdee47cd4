"""One RocksDB database: opened when it is needed, shut when others need the room, ended for good with its log.

RocksDB makes files under the path it was opened with, whoever has that name by then. So a database whose log is closed
is never opened again, and no iterator outlives the call that made it: it would keep the database open, and locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Condition, Thread
from typing import NamedTuple

from odradek.disk.errors import DiskError, DiskFullError, LockedError
from odradek.log.backends.library import NOT_INSTALLED
from odradek.log.backends.open_tables import OpenTables
from odradek.log.backends.rocksdb_cursor import Cursor, walk
from odradek.log.backends.rocksdb_keys import Range, Run
from odradek.log.errors import DamagedLogError, LogClosedError, LogError
from odradek.model import Offset

try:
    from rocksdict import (
        BlockBasedOptions,
        Cache,
        DBCompressionType,
        Options,
        Rdict,
        WriteBatch,
        WriteBufferManager,
    )
except ImportError as error:
    raise LogError(NOT_INSTALLED) from error

WRITE_BUFFER_BYTES = 4 << 20  # of one database, before it is written out as a sorted file
WRITE_BUFFERS_BYTES_MAX = 64 << 20  # of all databases together: who goes beyond writes out early
BLOCK_CACHE_BYTES = 64 << 20  # of all databases together
BLOCK_BYTES = 16 << 10
OPEN_FILES_MAX = 32  # of one database
_ARENA_BYTES = 64 << 10  # a quiet partition has no more memory than this
_INFO_LOG_BYTES = 64 << 10
_MANIFEST_BYTES_MAX = 1 << 20
# Sorted files that were not merged yet slow a reader down a little; to let appends wait for them would be worse.
_UNMERGED_FILES_MAX = 1 << 20


class _Shared(NamedTuple):
    """The memory that all databases of a process have in common."""

    blocks: Cache
    write_buffers: WriteBufferManager


@cache
def _shared() -> _Shared:
    return _Shared(Cache(BLOCK_CACHE_BYTES), WriteBufferManager(WRITE_BUFFERS_BYTES_MAX, False))


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_write_buffer_manager(_shared().write_buffers)
    options.set_arena_block_size(_ARENA_BYTES)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(_INFO_LOG_BYTES)
    options.set_max_manifest_file_size(_MANIFEST_BYTES_MAX)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_level_zero_slowdown_writes_trigger(_UNMERGED_FILES_MAX)
    options.set_level_zero_stop_writes_trigger(_UNMERGED_FILES_MAX)
    options.set_compression_type(DBCompressionType.lz4())
    blocks = BlockBasedOptions()
    blocks.set_block_cache(_shared().blocks)
    blocks.set_block_size(BLOCK_BYTES)
    options.set_block_based_table_factory(blocks)
    return options


class Database:
    """The database of one partition. Any thread may use it; `end` waits for those that do."""

    def __init__(self, path: str, tables: OpenTables) -> None:
        self.path = path
        self._tables = tables
        self._db: Rdict | None = None
        self._users = 0
        self._ended = False
        self._written = False  # by this process, since it was opened
        self._doubtful = False  # damage was found before anything was written: a log is being opened, or only read
        self._open_runs: set[Run] = set()  # of the log's segments; with the last one that is closed, all is closed
        self._state = Condition()  # guards all of the above
        self._freed: list[Range] = []  # to be compacted, so that the disk gets the room back
        self._sweeper: Thread | None = None

    # Opening and closing.

    @contextmanager
    def use(self, action: str) -> Iterator[Rdict]:
        """The open database, for one call; what it raises becomes ours. `action` says what is tried."""
        db = self._enter()
        try:
            self._tables.use(self)
            yield db
        except Exception as error:
            if type(error) is not Exception:  # the library has no finer class; all others are ours
                raise
            failure = self._translated(action, error)
            self._doubtful |= isinstance(failure, DamagedLogError) and not self._written
            raise failure from error
        finally:
            del db
            self._leave()

    def _enter(self) -> Rdict:
        with self._state:
            if self._ended:
                raise LogClosedError(f"{self.path} is closed")
            if self._db is None:
                self._db = self._open()
            self._users += 1
            return self._db

    def _leave(self) -> None:
        with self._state:
            self._users -= 1
            if self._users:
                return
            if self._doubtful and self._db is not None:
                # A log that could not be opened is closed by nobody: its name may be made anew, and must not be locked.
                self._db.close()
                self._db, self._doubtful = None, False
            self._state.notify_all()

    def _open(self) -> Rdict:
        try:
            return Rdict(self.path, _options())
        except Exception as error:  # the library has no finer class
            raise self._translated("open", error) from error

    def shut(self) -> bool:
        """Close it until it is needed again; False, and nothing done, if somebody uses it at this moment."""
        with self._state:
            if self._users:
                return False
            self._db, self._written = (
                None,
                False,
            )  # what was written stands in its write-ahead log; the next opening reads it
            return True

    def end(self) -> None:
        """Close it for good, written out and unlocked, when those inside a call are done. Once is enough."""
        with self._state:
            if self._ended:
                return
            self._ended = True
            while self._users:
                self._state.wait()
            db, self._db = self._db, None
        self._tables.forget(self)
        if db is not None:
            try:
                db.close()
            except Exception as error:  # the library has no finer class
                raise self._translated("close", error) from error

    def _translated(self, action: str, error: Exception) -> DiskError | DamagedLogError:
        text = str(error)
        if "No space left" in text:
            return DiskFullError(action, self.path, "no space is left on the device; free some and start again")
        if "lock hold" in text or "While lock file" in text:
            return LockedError(action, self.path, "another process has it open")
        if text.startswith("Corruption") and action in ("open", "read"):
            return DamagedLogError(self.path, 0, text)
        return DiskError(action, self.path, text)

    def open_run(self, run: Run) -> None:
        """Note a segment of the log."""
        with self._state:
            self._open_runs.add(run)

    def forget_run(self, run: Run) -> None:
        """Note that a segment is not the log's any more."""
        with self._state:
            self._open_runs.discard(run)

    def forget_runs(self, bases: Iterable[Offset]) -> None:
        """Note that the segments of these base offsets are not the log's any more."""
        with self._state:
            self._open_runs -= {run for run in self._open_runs if run.base_offset in bases}

    def close_run(self, run: Run) -> None:
        """Note that a segment is closed; the last one closes the database for good."""
        with self._state:
            if run not in self._open_runs:
                return
            self._open_runs.discard(run)
            if self._open_runs:
                return
        self.end()

    # Writing. Nothing is durable before `sync`, but all of it survives the end of this process.

    def put(self, key: bytes, value: bytes) -> None:
        """Write one entry."""
        with self.use("append to") as db:
            self._written = True
            db.put(key, value)

    def write(self, *, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """Write and delete several entries, all or none."""
        batch = WriteBatch(raw_mode=True)
        for key, value in puts.items():
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)
        with self.use("append to") as db:
            self._written = True
            db.write(batch)

    def delete_if(self, key: bytes, value: bytes) -> None:
        """Delete an entry if it has this value."""
        with self.use("delete from") as db:
            if db.get(key) == value:
                db.delete(key)

    def delete_range(self, keys: Range) -> None:
        """Delete all entries of a range; `sweep` gives their room back."""
        with self.use("delete from") as db:
            self._written = True
            db.delete_range(*keys)

    def sync(self) -> None:
        """Return when all that was written before the call is on stable storage."""
        with self.use("flush") as db:
            db.flush_wal(True)

    def sweep(self, keys: Range) -> None:
        """Give the room of a deleted range back to the disk, in a thread that ends when it is done."""
        with self._state:
            self._freed.append(keys)
            if self._sweeper is None and not self._ended:
                self._sweeper = Thread(target=self._sweep, name="rocksdb-sweep", daemon=True)
                self._sweeper.start()

    def _sweep(self) -> None:
        while True:
            with self._state:
                if not self._freed or self._ended:
                    self._sweeper = None
                    return
                keys = self._freed.pop()
            try:
                with self.use("compact") as db:
                    db.flush(True)  # what is still in memory cannot be compacted
                    db.compact_range(*keys)
            except (DiskError, LogClosedError, DamagedLogError):
                pass  # only room is lost, and a write that fails for the same reason is heard

    # Reading. The iterator must not be kept.

    @contextmanager
    def iterator(self) -> Iterator[Cursor]:
        """A place in the database, for one call."""
        with self.use("read") as db:
            cursor = Cursor(db.iter())
            try:
                yield cursor
                cursor.status()  # damage ends an iteration as the end of the data does
            finally:
                cursor.close()
                del db

    @contextmanager
    def entries(self, start: bytes) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        """The entries from a key on, for one call: each is one step, which is twice as fast as an iterator's four."""
        with self.use("read") as db:
            entries = walk(db, start)
            try:
                yield entries
            finally:
                entries.close()
                del db
