"""One segment over a table: limits, checks, searches and holds, the same for every store that keeps rows.

What this process appended or recovered is known to be good. What an earlier one left is checked, CRC and all, before
it is served for the first time. The newest batches are in memory, too, so that a reader at the end waits for nothing.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from threading import Lock

from odradek.disk.interface import Buffer, Disk
from odradek.log.backends.table import Row, Table
from odradek.log.backends.table_check import damage_of
from odradek.log.backends.table_recovery import recover_table
from odradek.log.config import Flush, LogConfig
from odradek.log.errors import DamagedLogError
from odradek.log.scan import OFFSET_SPAN_MAX
from odradek.log.segment import BatchCheck, Chunk, EndOfSegment, Mark, Placed, Recovered, TimestampOffset
from odradek.model import Offset
from odradek.records.header import NO_TIMESTAMP, BatchHeader, read_header
from odradek.records.parse import parse_batch

PARSED_BYTES_MAX = 1 << 30
TAIL_BYTES_MAX = 128 << 10  # of the newest batches in memory, for those who read at the end
_NEVER_MS = 1 << 64  # beyond every timestamp
_BYTES_MAX = 2**40
_ATTEMPTS = 3  # at a read that a cut comes between
_NOTHING = memoryview(b"")

logger = logging.getLogger(__name__)


class TableSegment:
    """Batches in a table; see `Segment` for what each method promises."""

    def __init__(self, disk: Disk, table: Table, base_offset: Offset, config: LogConfig, check: BatchCheck) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.table = table
        self.disk = disk
        self.check = check  # by what a batch is known to belong into this log
        self._offset_max = base_offset + OFFSET_SPAN_MAX
        self._timestamp_max = _NEVER_MS
        self._first_timestamp = NO_TIMESTAMP
        self._newest = NO_TIMESTAMP
        self._sealed = False
        self._tail: list[Row] = []  # the newest rows, one behind the other; only the owner of the log uses it
        self._tail_bytes = 0
        # Offsets from which what this process wrote or recovered is good, and (from, to) of what readers have checked
        # since. A pair in one attribute, so that other threads see both or neither.
        self._good_from = base_offset
        self._checked = (base_offset, base_offset)
        self._cuts = 0  # odd while rows are being removed: who reads meanwhile may see some of before and some of after
        self._holds = 0
        self._holds_lock = Lock()
        self._aside = False  # deleted or replaced: its bytes go with the last hold
        self.configure(config)

    @property
    def path(self) -> str:
        """What messages name."""
        return self.table.path

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""
        self.config = config
        self.table.written_through = config.flush is not Flush.GROUP
        self._offset_max = self.base_offset + min(OFFSET_SPAN_MAX, max(0, config.segment_records_max - 1))
        self._limit_age()

    def _limit_age(self) -> None:
        """Work out the timestamp from which on a batch belongs into another segment, by segment.ms."""
        first = self._first_timestamp
        self._timestamp_max = first + self.config.age_max_ms if first != NO_TIMESTAMP else _NEVER_MS

    # Called by the owner of the log.

    def append(self, data: Buffer, last_offset: Offset, max_timestamp: int) -> bool:
        """Add a batch that is already checked and stamped; False, and nothing done, if it does not fit."""
        base = int.from_bytes(data[:8], "big")
        return self._append(data, [Mark(0, base, last_offset, max_timestamp)])

    def append_many(self, data: Buffer, marks: list[Mark]) -> bool:
        """Add several of them that lie one behind the other; False, and nothing done, if they do not all fit."""
        return self._append(data, marks)

    def _append(self, data: Buffer, marks: list[Mark]) -> bool:
        if not self._fits(len(data), marks):
            return False
        rows, newest, position = [], self._newest, self.size_bytes
        for mark, end in zip(marks, [*(mark.at for mark in marks[1:]), len(data)], strict=True):
            newest = max(newest, mark.max_timestamp)
            batch = bytes(data[mark.at : end])  # a copy: the bytes it came in are used again
            rows.append(Row(mark.base_offset, mark.last_offset, mark.max_timestamp, position + mark.at, newest, batch))
        self.table.append(rows)
        if not position:
            self._first_timestamp = marks[0].max_timestamp
            self._limit_age()
        self._newest = newest
        self.size_bytes = position + len(data)
        self._remember(rows, len(data))
        self.next_offset = marks[-1].last_offset + 1
        return True

    def _fits(self, added_bytes: int, marks: list[Mark]) -> bool:
        """Whether these batches may stand here; but an empty segment takes one of any size, number and age."""
        last_offset = marks[-1].last_offset
        if last_offset - self.base_offset > OFFSET_SPAN_MAX:
            return False
        if not self.size_bytes and len(marks) == 1:
            return True
        if self.size_bytes + added_bytes > self.config.segment_bytes or last_offset > self._offset_max:
            return False
        return max(mark.max_timestamp for mark in marks) <= self._timestamp_max

    def _remember(self, rows: list[Row], size_bytes: int) -> None:
        self._tail += rows
        self._tail_bytes += size_bytes
        if self._tail_bytes > 2 * TAIL_BYTES_MAX:
            kept = len(self._tail)
            while kept and self._tail[-1].end - self._tail[kept - 1].position <= TAIL_BYTES_MAX:
                kept -= 1
            self._forget_tail(kept)

    def _forget_tail(self, count: int | None = None) -> None:
        """Let go of the oldest rows in memory, or of all."""
        self._tail = self._tail[count:] if count is not None else []
        self._tail_bytes = sum(len(row.data) for row in self._tail)

    def truncate(self, offset: Offset) -> None:
        """Remove the batch that holds `offset`, or the damage in its place, and all that follow."""
        found = self.table.find(offset)
        end = min(offset, found.base_offset) if found is not None else offset
        self._sealed = False
        if found is not None:
            self.cut(found.base_offset)
        self.next_offset = min(self.next_offset, end)
        self.learn(self.table.last())

    def cut(self, offset: Offset) -> None:
        """Remove all rows from an offset on, durably."""
        self._cuts += 1
        self.table.truncate(offset)
        self._forget_tail()
        self._good_from = min(self._good_from, offset)
        self._checked = (min(self._checked[0], offset), min(self._checked[1], offset))
        self._cuts += 1

    def learn(self, last: Row | None) -> None:
        """Take over what the table's last row says of all of it."""
        first = self.table.find(self.base_offset) if last is not None else None
        self.size_bytes = last.end if last is not None else 0
        self._newest = last.newest if last is not None else NO_TIMESTAMP
        self._first_timestamp = first.max_timestamp if first is not None else NO_TIMESTAMP
        self._limit_age()

    def recover(self, flushed: EndOfSegment | None) -> Recovered:
        """Check what came after `flushed` (None: everything), cut a torn tail."""
        self._forget_tail()
        return recover_table(self, flushed)

    def mark_good(self, start: Offset, end: Offset) -> None:
        """Remember that the batches between two offsets have been checked."""
        checked_from, checked_to = self._checked
        if start <= checked_to and end >= checked_from:
            start, end = min(start, checked_from), max(end, checked_to)
        if end >= self._good_from:
            self._good_from = min(self._good_from, start)
        elif end - start > checked_to - checked_from:
            self._checked = (start, end)

    def doubt_all(self) -> None:
        """Know nothing of what is there: an earlier process wrote it."""
        self._good_from = self.next_offset
        self._checked = (self.base_offset, self.base_offset)

    def _is_good(self, row: Row) -> bool:
        checked_from, checked_to = self._checked
        return row.base_offset >= self._good_from or checked_from <= row.base_offset <= row.last_offset < checked_to

    def seal(self) -> None:
        """Nothing will be added any more."""
        self._sealed = True
        self._forget_tail()

    def adopt(self, next_offset: Offset) -> None:
        """Take over a segment that was sealed by an earlier process: its successor begins at `next_offset`."""
        if not self._sealed:
            self.learn(self.table.last())
            self.next_offset = next_offset
            self.doubt_all()
        self._sealed = True
        self.next_offset = next_offset

    def checkpoint(self) -> None:
        """Nothing is kept back that would speed up the next start."""

    def sync(self, *, sealed: bool = False) -> None:
        """Return when all of it is on stable storage."""
        self.table.sync(sealed=sealed and self._sealed)

    def hold(self) -> None:
        """Keep its bytes readable, also after `delete`, until `release`."""
        with self._holds_lock:
            self._holds += 1

    def release(self) -> None:
        """Undo one `hold`."""
        with self._holds_lock:
            self._holds -= 1
            unused = self._aside and not self._holds
        if unused:
            self.table.discard()

    def close(self) -> None:
        """Give back what it has open; those who hold it are refused from now on."""
        self.table.close()

    def delete(self) -> None:
        """Remove it from the store; those who hold it may read on."""
        self.table.set_aside()
        self.retire()

    def retire(self) -> None:
        """Another segment has taken its place; those who hold it may read on."""
        with self._holds_lock:
            self._aside = True
            unused = not self._holds
        self._forget_tail()
        if unused:
            self.table.discard()

    # Called by readers, perhaps in another thread while the segment is held.

    def read(self, offset: Offset, max_bytes: int, upto: Offset, *, nowait: bool = False) -> Chunk | None:
        """Give whole batches from the one that holds `offset`, or the next one, up to `upto` and `max_bytes`."""
        if nowait:
            return self._read_tail(offset, max_bytes, upto)
        good: list[Row] = []
        rows = self._read_rows(offset, max_bytes, upto)
        for row in rows:
            damage = self._damage(row, good[-1].last_offset + 1 if good else None)
            if damage is not None:
                if good:
                    break
                logger.error("%s; it is not served", damage)
                raise damage
            good.append(row)
        if good and not (self._is_good(good[0]) and self._is_good(good[-1])):
            self.mark_good(good[0].base_offset, good[-1].last_offset + 1)
        return _chunk(good, offset)

    def _read_rows(self, offset: Offset, max_bytes: int, upto: Offset) -> list[Row]:
        """Rows that stood in the table together: what is read while others are removed is read again."""
        for _ in range(_ATTEMPTS):
            cuts = self._cuts
            rows = self.table.read(offset, max_bytes, upto)
            if cuts == self._cuts and not cuts % 2:
                return rows
        # It is being cut all the time. One row was there at some moment; but it may never have been checked.
        return [row for row in rows[:1] if damage_of(self.path, row, self.verify, None) is None]

    def _read_tail(self, offset: Offset, max_bytes: int, upto: Offset) -> Chunk | None:
        """Serve from memory, or say that somebody has to wait."""
        if offset >= min(self.next_offset, upto):
            return Chunk(_NOTHING, offset, offset)
        tail = self._tail
        # The row before the first one in memory may hold the offset: only what lies behind its beginning is known.
        if not tail or (offset < tail[0].base_offset and tail[0].position):
            return None
        at = bisect_left(tail, offset, key=_last_offset)
        chosen: list[Row] = []
        size = 0
        for row in tail[at:]:
            size += len(row.data)
            if row.base_offset >= upto or (chosen and size > max_bytes):
                break
            chosen.append(row)
        return _chunk(chosen, offset)

    def verify(self, header: BatchHeader, expected: Offset | None) -> str | None:
        """Say what is wrong with a batch beside its CRC; None if it belongs here."""
        if header.base_offset < self.base_offset or (self._sealed and header.last_offset >= self.next_offset):
            return f"the offsets {header.base_offset} to {header.last_offset} do not belong here"
        return self.check(header, expected)

    def _damage(self, row: Row, expected: Offset | None = None) -> DamagedLogError | None:
        """What is wrong with a row; None if nothing is, or if it has been checked before."""
        return None if self._is_good(row) else damage_of(self.path, row, self.verify, expected)

    def batches(self, offset: Offset, *, lenient: bool = False) -> Iterator[Placed]:
        """Walk over the headers from the batch that holds `offset`. Damage raises, or is stepped over."""
        expected: Offset | None = None
        for row in self.table.rows(offset):
            damage = self._damage(row, expected)
            if damage is None:
                yield Placed(row.position, read_header(row.data))
            elif not lenient:
                raise damage
            expected = row.last_offset + 1 if damage is None else None

    def max_timestamp(self, *, confirmed: bool = False) -> int:
        """The largest timestamp by the rows; `confirmed`: the batches were asked, too."""
        if confirmed and self._sealed and not self._newest_is_true():
            logger.warning("%s claims %d as its largest timestamp, the batches do not", self.path, self._newest)
            times = (header.max_timestamp for _, header in self.batches(self.base_offset, lenient=True))
            self._newest = max(times, default=NO_TIMESTAMP)
        return self._newest

    def _newest_is_true(self) -> bool:
        """Whether a batch has that time, and the last one agrees."""
        if not self.size_bytes:
            return True
        start = self._older_than(self._newest)
        found = next(self.batches(start, lenient=True), None)
        last = self.table.last()
        return (
            found is not None
            and last is not None
            and found.header.max_timestamp == self._newest == last.newest
            and read_header(last.data).max_timestamp <= self._newest
        )

    def first_timestamp(self) -> int:
        """The timestamp of its first batch; -1 if there is none."""
        return self._first_timestamp

    def offset_for_timestamp(self, timestamp: int, from_offset: Offset) -> TimestampOffset | None:
        """The first record at or after this time and this offset."""
        for row in self.table.rows(max(from_offset, self._older_than(timestamp))):
            if row.max_timestamp < timestamp or self._damage(row) is not None:
                continue
            for record in parse_batch(row.data, size_max=PARSED_BYTES_MAX):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return TimestampOffset(record.timestamp, record.offset, read_header(row.data).leader_epoch)
        return None

    def _older_than(self, timestamp: int) -> Offset:
        """The offset before which every record is older, by halving: `newest` never goes down."""
        low, high = self.base_offset, self.next_offset
        while low < high:
            row = self.table.find((low + high) // 2)
            if row is None or row.newest >= timestamp:
                high = (low + high) // 2
            else:
                low = row.last_offset + 1
        return low


def _chunk(rows: list[Row], offset: Offset) -> Chunk:
    if not rows:
        return Chunk(_NOTHING, offset, offset)
    data = rows[0].data if len(rows) == 1 else b"".join([row.data for row in rows])
    return Chunk(memoryview(data), rows[0].base_offset, rows[-1].last_offset + 1)


def _last_offset(row: Row) -> Offset:
    return row.last_offset


def unlimited(config: LogConfig) -> LogConfig:
    """The settings of a replacement: what it refused would be lost, although the segments it replaces held it."""
    return replace(
        config,
        segment_bytes=_BYTES_MAX,
        segment_ms=_NEVER_MS,
        max_compaction_lag_ms=_NEVER_MS,
        segment_records_max=OFFSET_SPAN_MAX,
    )
