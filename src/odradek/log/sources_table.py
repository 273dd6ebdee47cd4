"""Where the tools read batches from that are kept as rows: see `sources`.

Rows that the database cannot give back are stepped over: the next offset from which on it can is searched by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Protocol

from odradek.disk.errors import DiskError
from odradek.log.backends.table import Row
from odradek.log.backends.table_check import damage_of
from odradek.log.errors import DamagedLogError
from odradek.log.scan import OFFSET_SPAN_MAX, Damage
from odradek.log.segment import Placed
from odradek.log.sources import following_base, loose_check
from odradek.model import Offset
from odradek.records.header import HEADER_BYTES, read_header


class Readable(Protocol):
    """What of a `Table` a reader needs."""

    path: str

    def find(self, offset: Offset) -> Row | None:
        """The first row with last_offset >= offset."""

    def rows(self, offset: Offset) -> Iterator[Row]:
        """All rows from that one on, in order."""

    def last(self) -> Row | None:
        """The last row, with its data."""

    def close(self) -> None:
        """Give back what it has open; a later read may open it again."""


class TableSource:
    """The rows of one segment."""

    has_indexes = False

    def __init__(self, table: Readable, base: Offset, following: Offset | None) -> None:
        self.path = table.path
        self.base: Offset | None = base
        self.following = following
        self._table = table
        self._row: Row | None = None  # the last one that was given
        self._limit = following if following is not None else base + OFFSET_SPAN_MAX + 1
        self._check = loose_check(base, following)
        last = table.last()
        self.size_bytes = last.end if last is not None else 0

    def survey(self, offset: Offset, *, crc: bool = True) -> Iterator[Placed | Damage]:
        """What stands in it from the row that holds `offset` on; order and epochs are not judged."""
        damage: DamagedLogError | None = None
        for found in self._rows(offset):
            wrong = found if isinstance(found, DamagedLogError) else self._wrong(found, crc)
            if isinstance(found, DamagedLogError) or wrong is not None:
                damage = damage or wrong
                continue
            placed = Placed(found.position, read_header(found.data))
            if damage is not None:
                yield Damage(self.path, damage.position, damage.reason, placed)
                damage = None
            self._row = found
            yield placed
        if damage is not None:
            yield Damage(self.path, damage.position, damage.reason, None)

    def _wrong(self, row: Row, crc: bool) -> DamagedLogError | None:
        if not crc and len(row.data) >= HEADER_BYTES and read_header(row.data).size_bytes == len(row.data):
            return None
        return damage_of(self.path, row, self._check, self.base)

    def _rows(self, offset: Offset) -> Iterator[Row | DamagedLogError]:
        """The rows, and in the place of those that cannot be read an error."""
        position = 0
        while True:
            try:
                for row in self._table.rows(offset):
                    yield row
                    offset, position = row.last_offset + 1, row.end
                return
            except DamagedLogError as error:
                yield DamagedLogError(self.path, position, error.reason)
                readable = self._next_readable(offset)
                if readable is None:
                    return
                offset = readable

    def _next_readable(self, offset: Offset) -> Offset | None:
        """The first offset behind this one at which the table can be read again."""
        low, step = offset, 1
        while not self._is_readable(offset + step):
            low, step = offset + step, step * 2
            if offset + step >= self._limit:
                return None
        high = offset + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_readable(middle) else (middle, high)
        return high

    def _is_readable(self, offset: Offset) -> bool:
        try:
            self._table.find(offset)
        except DamagedLogError:
            return False
        return True

    def read(self, placed: Placed) -> bytes:
        """The bytes of the batch that `survey` gave last."""
        if self._row is None or self._row.position != placed.position:
            raise DamagedLogError(self.path, placed.position, "this batch has gone by")
        return self._row.data

    def close(self) -> None:
        """Give back what it has open."""
        self._table.close()


class TableSources:
    """The tables of one partition."""

    def __init__(
        self, tables: Mapping[Offset, Readable], owns: Callable[[str], bool], close: Callable[[], None]
    ) -> None:
        self._tables = tables
        self._owns = owns
        self._close = close
        self.bases: Sequence[Offset | None] = sorted(tables)

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches; each table is asked."""
        size = 0
        for table in self._tables.values():
            with suppress(DiskError, DamagedLogError), closing(table):  # who reads it will say so
                last = table.last()
                size += last.end if last is not None else 0
        return size

    def path(self, base: Offset | None) -> str:
        """The name of a segment, for messages."""
        return self._tables[base or 0].path

    def open(self, base: Offset | None) -> TableSource:
        """The batches of one."""
        return TableSource(self._tables[base or 0], base or 0, following_base(self.bases, base))

    def owns(self, name: str) -> bool:
        """Whether a file or directory belongs to the tables."""
        return self._owns(name)

    def close(self) -> None:
        """Give back what it has open."""
        self._close()
