"""The batches of one segment in a RocksDB database, as `Table` asks for them.

A value is where the batch stands in its segment and how far its times reach, and then the batch; `rocksdb_keys` says
what the keys are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from odradek.log.backends.rocksdb_cursor import Cursor
from odradek.log.backends.rocksdb_database import Database
from odradek.log.backends.rocksdb_keys import KEY_BYTES, NUMBER, PREFIX, Range, Run, catalog_key
from odradek.log.backends.table import Row
from odradek.log.errors import DamagedLogError, LogClosedError
from odradek.model import Offset

_HEAD = struct.Struct(">qqqq")  # last offset, largest timestamp, position, newest
_FIRST_BYTES = 1 << 10
_CHUNK_BYTES = 1 << 20
_ANY_OFFSET = 1 << 63


class RocksTable:
    """The batches of one run."""

    def __init__(self, database: Database, run: Run) -> None:
        self.path = f"{database.path}#{run.base_offset:020d}"
        self.written_through = True  # whatever is asked: the write-ahead log has them when `append` returns
        self._database = database
        self._run = run
        self._keys = run.keys

    # Called by the owner of the log.

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows behind all others. Not durable before `sync`; does not wait for the disk."""
        if len(rows) == 1:
            self._database.put(*self._entry(rows[0]))
        else:
            self._database.write(puts=dict(map(self._entry, rows)), deletes=[])

    def _entry(self, row: Row) -> tuple[bytes, bytes]:
        head = _HEAD.pack(row.last_offset, row.max_timestamp, row.position, row.newest)
        return self._keys.begin + NUMBER.pack(row.base_offset), head + row.data

    def truncate(self, offset: Offset) -> None:
        """Remove the rows with last_offset >= offset, durably."""
        found = self.find(offset)
        if found is not None:
            self._database.delete_range(Range(self._keys.begin + NUMBER.pack(found.base_offset), self._keys.end))
        self._database.sync()

    def reset(self) -> None:
        """Begin as an empty table, whatever is there."""
        self._database.delete_range(self._keys)

    def set_aside(self) -> None:
        """Let another table have its place; it stays readable for this process until `discard`."""
        self._database.forget_run(self._run)
        self._database.delete_if(catalog_key(self._run.base_offset), NUMBER.pack(self._run.number))

    def discard(self) -> None:
        """Free its bytes; it was set aside, and nobody reads it any more."""
        with suppress(LogClosedError):  # then the next start does it
            self._database.delete_range(self._keys)
            self._database.sweep(self._keys)

    def close(self) -> None:
        """Read no more; the database is closed with the last segment of the log."""
        self._database.close_run(self._run)

    # Called in any thread.

    def sync(self, *, sealed: bool) -> None:
        """Return when all that was appended before the call is on stable storage."""
        del sealed  # one write-ahead log serves all
        self._database.sync()

    def find(self, offset: Offset) -> Row | None:
        """The first row with last_offset >= offset."""
        with self._database.iterator() as iterator:
            return self._seek(iterator, offset)

    def last(self) -> Row | None:
        """The last row, with its data."""
        with self._database.iterator() as iterator:
            iterator.seek_for_prev(self._keys.end)
            return self._here(iterator)

    def read(self, offset: Offset, max_bytes: int, upto: Offset) -> list[Row]:
        """Rows from the one that holds `offset` on with base_offset < upto, at least one, at most `max_bytes`."""
        with self._database.iterator() as iterator:
            first = self._seek(iterator, offset)
        if first is None or first.base_offset >= upto:
            return []
        rows, max_bytes = [first], max_bytes - len(first.data)
        if max_bytes > 0:
            with suppress(DamagedLogError):  # what stands before the damage is good
                self._read_on(rows, max_bytes, upto)
        return rows

    def _read_on(self, rows: list[Row], max_bytes: int, upto: Offset) -> None:
        """Add the rows behind the last one."""
        begin, before = self._keys.begin, len(self._keys.begin)
        unpack, head_bytes, new_row, add = _HEAD.unpack_from, _HEAD.size, tuple.__new__, rows.append
        start = begin + NUMBER.pack(rows[-1].base_offset + 1)
        with self._database.entries(start) as entries:
            for key, value in entries:
                max_bytes -= len(value) - head_bytes
                base_offset = int.from_bytes(key[before:], "big")
                if not key.startswith(begin) or base_offset >= upto or max_bytes < 0:
                    return
                add(new_row(Row, (base_offset, *unpack(value), value[head_bytes:])))

    def rows(self, offset: Offset) -> Iterator[Row]:
        """All rows from that one on; few at first, since often only the first is wanted, then more at a time."""
        wanted_bytes = _FIRST_BYTES
        while chunk := self.read(offset, wanted_bytes, _ANY_OFFSET):
            yield from chunk
            offset = max(chunk[-1].base_offset, chunk[-1].last_offset) + 1  # never back, whatever the row says
            wanted_bytes = min(2 * wanted_bytes, _CHUNK_BYTES)

    def _seek(self, iterator: Cursor, offset: Offset) -> Row | None:
        key = self._keys.begin + NUMBER.pack(offset)
        iterator.seek_for_prev(key)
        row = self._here(iterator)
        if row is not None and row.last_offset >= offset:
            return row
        iterator.status()
        iterator.seek(key)
        return self._here(iterator)

    def _here(self, iterator: Cursor) -> Row | None:
        """The row at which the iterator stands, if that is one of this run."""
        if not iterator.valid():
            return None
        key = iterator.key()
        if len(key) != KEY_BYTES or not key.startswith(self._keys.begin):
            return None
        value = iterator.value()
        (base_offset,) = NUMBER.unpack_from(key, PREFIX.size)
        last_offset, max_timestamp, position, newest = _HEAD.unpack_from(value)
        return Row(base_offset, last_offset, max_timestamp, position, newest, value[_HEAD.size :])
