"""One RocksDB database: opened when it is needed, shut when others need the room, ended for good with its log.

RocksDB makes files under the path it was opened with, whoever has that name by then. So a database whose log is closed
is never opened again, and no iterator outlives the call that made it: it would keep the database open, and locked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from threading import Condition
from typing import NamedTuple

from odradek.disk.errors import DiskError, DiskFullError, LockedError
from odradek.log.backends.library import NOT_INSTALLED
from odradek.log.backends.open_tables import OpenTables
from odradek.log.backends.rocksdb_cursor import Cursor, walk
from odradek.log.backends.rocksdb_keys import Range, Run
from odradek.log.backends.rocksdb_sweeper import sweeper
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
OPEN_FILES_MAX = 20  # of one database; RocksDB knows no less
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

    descriptors = 16  # sorted files, as far as they are kept open, and those that every database has

    def __init__(self, path: str, tables: OpenTables) -> None:
        self.path = path
        self._tables = tables
        self._db: Rdict | None = None
        self._users = 0
        self._ended = False
        self._written = False  # by this process, since it was opened
        self._unsynced = False  # something was written since the last sync began
        self._failed: str | None = None  # why a sync failed: it is never tried again, and nothing more is written
        self._doubtful = False  # damage was found before anything was written: a log is being opened, or only read
        self._open_runs: set[Run] = set()  # of the log's segments; with the last one that is closed, all is closed
        self._state = Condition()  # guards all of the above
        self._compacting = False  # a range that was deleted is being freed

    # Opening and closing.

    @contextmanager
    def use(self, action: str) -> Iterator[Rdict]:
        """The open database, for one call; what it raises becomes ours. `action` says what is tried."""
        db = self._enter()
        try:
            self._tables.use(self)
            yield db
        except struct.error as error:  # an entry that nobody here has written
            raise DamagedLogError(self.path, 0, f"an entry is not what it should be: {error}") from error
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
                db, self._db, self._doubtful = self._db, None, False
                with suppress(Exception):  # the library has no finer class; nothing was written to it
                    db.close()
            self._state.notify_all()

    def _open(self) -> Rdict:
        self._refuse_lost_head()
        try:
            return Rdict(self.path, _options())
        except Exception as error:  # the library has no finer class
            raise self._translated("open", error) from error

    def _refuse_lost_head(self) -> None:
        """Keep RocksDB from making a new database over the files of one that has lost `CURRENT`: it removes them."""
        path = Path(self.path)
        if path.is_dir() and not (path / "CURRENT").exists():
            batches = [file for file in path.iterdir() if file.suffix in (".sst", ".log") and file.stat().st_size]
            if batches:
                reason = f"the file CURRENT is not there, although {sorted(batches)[0].name} and others are"
                raise DamagedLogError(self.path, 0, reason)

    def shut(self) -> bool:
        """Close it until it is needed again; False, and nothing done, if somebody uses it at this moment.

        Only what is safe: what the system failed to write could be missing when it is opened again.
        """
        with self._state:
            if self._users or self._failed is not None:
                return False
            if self._db is not None and self._unsynced:
                try:
                    self._flush_log(self._db)
                except Exception:  # the library has no finer class; who writes next hears of it
                    return False
            self._db, self._written, self._unsynced = None, False, False
            return True

    def end(self) -> None:
        """Close it for good, written out and unlocked, when those inside a call are done. Once is enough."""
        with self._state:
            if self._ended:
                return
            self._ended = True
            if self._compacting and self._db is not None:
                self._db.cancel_all_background(False)  # only room comes of it: nobody should wait for that
            while self._users:
                self._state.wait()
            db, self._db = self._db, None
        self._tables.forget(self)
        if db is not None:
            try:
                db.close()
            except Exception as error:  # the library has no finer class
                if not str(error).startswith(
                    "Shutdown in progress"
                ):  # the write-ahead log has what was not written out
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

    @contextmanager
    def _writes(self, action: str) -> Iterator[Rdict]:
        with self.use(action) as db:
            if self._failed is not None:
                raise DiskError(action, self.path, self._failed)
            self._written = True
            try:
                yield db
            finally:
                self._unsynced = True  # behind: a sync that has begun meanwhile may not cover it
                del db

    def put(self, key: bytes, value: bytes) -> None:
        """Write one entry."""
        with self._writes("append to") as db:
            db.put(key, value)

    def write(self, *, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """Write and delete several entries, all or none."""
        batch = WriteBatch(raw_mode=True)
        for key, value in puts.items():
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)
        with self._writes("append to") as db:
            db.write(batch)

    def delete_if(self, key: bytes, value: bytes) -> None:
        """Delete an entry if it has this value."""
        with self._writes("delete from") as db:
            if db.get(key) == value:
                db.delete(key)

    def delete_range(self, keys: Range) -> None:
        """Delete all entries of a range; `sweep` gives their room back."""
        with self._writes("delete from") as db:
            db.delete_range(*keys)

    def sync(self) -> None:
        """Return when all that was written before the call is on stable storage."""
        with self.use("flush") as db:
            if self._failed is not None:
                raise DiskError("flush", self.path, self._failed)
            self._unsynced = False  # before: what is written while it runs is for the next one
            self._flush_log(db)

    def _flush_log(self, db: Rdict) -> None:
        try:
            db.flush_wal(True)
        except Exception as error:  # the library has no finer class
            self._failed = str(error)
            raise
        finally:
            del db

    def sweep(self, keys: Range) -> None:
        """Give the room of a deleted range back to the disk, some time, in a thread."""
        sweeper.add(partial(self._compact, keys))

    def _compact(self, keys: Range) -> None:
        # Only room is lost if it fails, and a write that fails for the same reason is heard.
        with suppress(DiskError, LogClosedError, DamagedLogError), self.use("compact") as db:
            with self._state:
                if self._ended:
                    return
                self._compacting = True
            try:
                db.flush(True)  # what is still in memory cannot be compacted
                db.compact_range(*keys)
            finally:
                self._compacting = False
                del db

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
