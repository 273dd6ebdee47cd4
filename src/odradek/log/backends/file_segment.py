"""One segment as three files: the batches as they came over the wire, and two sparse indexes beside them.

Bytes that this process appended or recovered are known to be good. What an earlier process left is checked, CRC and
all, before it is served for the first time; `_good` says which part has been.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from odradek.disk.interface import Buffer, Disk, File
from odradek.log.backends.file_indexes import SegmentIndexes
from odradek.log.backends.file_read import read_segment
from odradek.log.backends.file_recovery import rebuild_indexes, recover_segment
from odradek.log.config import LogConfig
from odradek.log.index import IndexCache
from odradek.log.scan import OFFSET_SPAN_MAX, Damage, survey
from odradek.log.segment import BatchCheck, Chunk, EndOfSegment, Mark, Placed, Recovered, TimestampOffset
from odradek.model import Offset
from odradek.records.header import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, read_header
from odradek.records.parse import parse_batch

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"

POSITION_MAX = 2**31 - 1
PARSED_BYTES_MAX = 1 << 30

RESERVE_FROM_BYTES = 1 << 20  # small segments reserve nothing: there may be thousands of them
RESERVE_BYTES_MAX = 16 << 20

_COPY_BYTES = 1 << 20
_NEVER_MS = 1 << 63

logger = logging.getLogger(__name__)


def segment_path(directory: str, base_offset: Offset, kind: str) -> str:
    """The name of one of a segment's files: twenty digits, as Kafka has it."""
    return f"{directory}/{base_offset:020d}{kind}"


class FileSegment:
    """Batches in a file; see `Segment` for what each method promises."""

    __slots__ = (
        "_bytes_max",
        "_checked",
        "_disk",
        "_gone",
        "_good_from",
        "_offset_max",
        "_ready",
        "_sealed",
        "_timestamp_max",
        "base_offset",
        "check",
        "config",
        "cuts",
        "file",
        "indexes",
        "next_offset",
        "read_end",
        "rebuilt",
        "size_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        size_bytes: int,
        *,
        config: LogConfig,
        cache: IndexCache,
        check: BatchCheck,
        index_sizes: tuple[int, int],
        suffix: str = "",
    ) -> None:
        paths = [segment_path(directory, base_offset, kind) + suffix for kind in (LOG, INDEX, TIME_INDEX)]
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = size_bytes
        self.file: File = disk.open(paths[0])
        self.indexes = SegmentIndexes(disk, cache, base_offset, (paths[1], paths[2]), index_sizes)
        self._disk = disk
        self.check = check  # by what a batch is known to belong into this log
        self._offset_max = base_offset + OFFSET_SPAN_MAX
        self._timestamp_max = _NEVER_MS
        self._ready = 0  # up to this size it may grow: blocks are set aside, or it is not worth it yet
        self._sealed = False
        self.rebuilt = False  # the indexes were made anew by this process
        self._gone = False  # deleted or replaced: its names belong to nobody, or to another segment
        # Positions from which what this process wrote or recovered is good, and (from, to) of what readers have checked
        # since. A pair in one attribute, so that other threads see both or neither.
        self._good_from = size_bytes
        self._checked = (0, 0)
        self.cuts = 0  # how often it has become shorter: positions that were found before are void
        self.read_end = (-1, 0, 0)  # the offset and position at which the last read ended, and `cuts` when it began
        self.configure(config)
        if not size_bytes:
            self.indexes.start_empty()

    @property
    def path(self) -> str:
        """The file of the batches."""
        return self.file.path

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""
        self.config = config
        self._bytes_max = min(config.segment_bytes, POSITION_MAX)
        self._ready = min(self._ready, self._bytes_max)
        if self.next_offset > self.base_offset:
            self._limit_age()
        self.indexes.configure(config.index_interval_bytes, config.segment_index_bytes)

    # Called by the owner of the log.

    def append(self, data: Buffer, last_offset: Offset, max_timestamp: int) -> bool:
        """Add a batch that is already checked and stamped; False, and nothing done, if it does not fit."""
        position = self.size_bytes
        end = position + len(data)
        if last_offset > self._offset_max or (position and (max_timestamp > self._timestamp_max or self.indexes.full)):
            return False
        if end > self._ready and not self._make_ready(end):
            return False
        self.file.append(data)
        self.size_bytes = end
        self.indexes.note(position, last_offset, max_timestamp)
        self.next_offset = last_offset + 1
        if not position:
            self._limit_age()
        return True

    def append_many(self, data: Buffer, marks: list[Mark]) -> bool:
        """Add several of them that lie one behind the other; False, and nothing done, if they do not all fit."""
        position, newest = self.size_bytes, max(mark.max_timestamp for mark in marks)
        if (
            (position + len(data) > self._bytes_max and len(marks) > 1)
            or newest > self._timestamp_max
            or marks[-1].last_offset > self._offset_max
            or self.indexes.full
        ):
            return False
        if not self.append(data, marks[0].last_offset, marks[0].max_timestamp):
            return False
        for at, _, last_offset, timestamp in marks[1:]:
            self.indexes.note(position + at, last_offset, timestamp)
        self.next_offset = marks[-1].last_offset + 1
        return True

    def _make_ready(self, end: int) -> bool:
        """Have blocks ready for what comes, measured as a sixth of an append's time: as much again, within bounds.

        False if the segment may not grow to this size; but an empty one takes a batch of any size.
        """
        if end > self._bytes_max and self.size_bytes:
            return False
        self._ready = min(end + min(max(end, RESERVE_FROM_BYTES), RESERVE_BYTES_MAX), self._bytes_max)
        if end >= RESERVE_FROM_BYTES:
            self.file.reserve(self._ready)
        return True

    def _give_reserve_back(self) -> None:
        """Free the blocks that were set aside and not needed."""
        if self._ready:
            self._ready = 0
            self.file.truncate(self.size_bytes)

    def _limit_age(self) -> None:
        """Work out the timestamp from which on a batch belongs into another segment, by segment.ms."""
        first = self.first_timestamp()
        self._timestamp_max = first + self.config.age_max_ms if first != NO_TIMESTAMP else _NEVER_MS

    def truncate(self, offset: Offset) -> None:
        """Remove the batch that holds `offset`, or the damage in its place, and all that follow."""
        end, cut_at = offset, self.size_bytes
        for found in self._survey(offset):
            if isinstance(found, Damage):
                cut_at = min(cut_at, found.position)
            elif found.header.last_offset >= offset:
                cut_at, end = min(cut_at, found.position), min(offset, found.header.base_offset)
                break
            else:
                cut_at = self.size_bytes
        self._sealed = False
        if cut_at < self.size_bytes:
            self.cut(cut_at)
        self.recover(EndOfSegment(min(self.next_offset, end), self.size_bytes, indexed=True))

    def cut(self, size_bytes: int) -> None:
        """Shorten the file, durably."""
        self.file.truncate(size_bytes)
        self.file.sync()
        self.size_bytes = size_bytes
        self._good_from = min(self._good_from, size_bytes)
        self._checked = (min(self._checked[0], size_bytes), min(self._checked[1], size_bytes))
        self.cuts += 1  # last: who reads from now on sees the new size

    def save_copy(self, path: str, start: int) -> None:
        """Copy what stands from `start` on into another file, durably."""
        copy = self._disk.open(path, create=True)
        for position in range(start, self.size_bytes, _COPY_BYTES):
            copy.append(self.file.read(min(_COPY_BYTES, self.size_bytes - position), position))
        copy.sync()
        copy.close()

    def write_again(self, start: int) -> None:
        """Put the same bytes from `start` on in their place once more, so that the next sync has to write them."""
        for position in range(start, self.size_bytes, _COPY_BYTES):
            data = self.file.read(min(_COPY_BYTES, self.size_bytes - position), position)
            self._disk.overwrite(self.path, data, at=position)

    def recover(self, flushed: EndOfSegment | None) -> Recovered:
        """Check what came after `flushed` (None: everything), cut a torn tail, bring the indexes up to date."""
        if flushed is None or not flushed.indexed:
            self.file.truncate(self.size_bytes)  # gives back blocks that a killed process had set aside
        self._ready = 0
        recovered = recover_segment(self, flushed)
        self.indexes.first_timestamp = None  # a cut may have removed the first batch
        self._limit_age()
        return recovered

    def mark_good(self, start: int, end: int) -> None:
        """Remember that a part of the file has been checked."""
        checked_from, checked_to = self._checked
        if start <= checked_to and end >= checked_from:
            start, end = min(start, checked_from), max(end, checked_to)
        if end >= self._good_from:
            self._good_from = min(self._good_from, start)
        elif end - start > checked_to - checked_from:
            self._checked = (start, end)

    def is_good(self, start: int, end: int) -> bool:
        """Whether a part of the file has been checked."""
        return start >= self._good_from or self._checked[0] <= start <= end <= self._checked[1]

    def seal(self) -> None:
        """Nothing will be added any more."""
        self._sealed = True
        self._give_reserve_back()
        self.indexes.seal()

    def adopt(self, next_offset: Offset) -> None:
        """Take over a segment that was sealed by an earlier process: its successor begins at `next_offset`."""
        self._sealed = True
        self.next_offset = next_offset

    def checkpoint(self) -> None:
        """Write out the newest index entries, so that a start after a crash need not walk over their batches."""
        self.indexes.write_out()

    def sync(self, *, sealed: bool = False) -> None:
        """Return when all of it is on stable storage; the indexes only when no more entries will come."""
        self.file.sync()
        if sealed:
            self.indexes.sync()

    def hold(self) -> None:
        """Keep its bytes readable, also after `delete`, until `release`."""
        self.file.pin()

    def release(self) -> None:
        """Undo one `hold`."""
        self.file.unpin()

    def close(self) -> None:
        """Give back what it has open."""
        if not self._gone:
            self._give_reserve_back()
        self.file.close()

    def delete(self) -> None:
        """Remove its files; the log first, since indexes without a log are cleared away at the next start."""
        self._gone = True
        self._disk.remove(self.path)
        self.indexes.delete()
        self.file.close()

    def retire(self) -> None:
        """Another segment has taken over its names; those who hold it may read on."""
        self._gone = True
        self.indexes.forget()
        self.file.close()

    # Called by readers, perhaps in another thread while the segment is held.

    def read(self, offset: Offset, max_bytes: int, upto: Offset, *, nowait: bool = False) -> Chunk | None:
        """Give whole batches from the one that holds `offset`, or the next one, up to `upto` and `max_bytes`."""
        return read_segment(self, offset, max_bytes, upto, nowait)

    def verify(self, header: BatchHeader, expected: Offset | None) -> str | None:
        """Say what is wrong with a batch beside its CRC; None if it belongs here."""
        if header.base_offset < self.base_offset or (self._sealed and header.last_offset >= self.next_offset):
            return f"the offsets {header.base_offset} to {header.last_offset} do not belong here"
        return self.check(header, expected)

    def rebuild_indexes(self, reason: str) -> bool:
        """Make the indexes anew, once; False if they are not this one's to change, so that it must do without."""
        if not self._sealed or self._gone:  # its owner may be appending, or the names are another segment's
            return False
        with self.indexes.lock:
            if not self.rebuilt:
                logger.warning("rebuilding the indexes of %s: %s", self.path, reason)
                rebuild_indexes(self, self.size_bytes)
                self.indexes.seal()
                self.rebuilt = True
        return True

    def batches(self, offset: Offset, *, lenient: bool = False) -> Iterator[Placed]:
        """Walk over the headers from the batch that holds `offset`. Damage raises, or is stepped over."""
        for found in self._survey(offset):
            if isinstance(found, Damage):
                if not lenient:
                    raise found.error()
            elif found.header.last_offset >= offset:
                yield found

    def _survey(self, offset: Offset) -> Iterator[Placed | Damage]:
        """What stands in the file from a place before `offset` on."""
        position, size = self._indexed_position(offset), self.size_bytes
        expected = self.base_offset if position == 0 else None
        crc = not self.is_good(position, size)
        return survey(self.file, position, size, self.verify, expected, self.base_offset, crc=crc)

    def _indexed_position(self, offset: Offset) -> int:
        """Where to begin to look for an offset, after a look at whether the index tells the truth."""
        claim, position = self.indexes.offsets.floor(offset - self.base_offset) or (-1, 0)
        if claim < 0:
            return 0
        head = self.file.read(HEADER_BYTES, position)
        if len(head) == HEADER_BYTES and read_header(head).last_offset == self.base_offset + claim:
            return position
        if self.rebuild_indexes(f"an entry claims offset {self.base_offset + claim} at byte {position}"):
            return (self.indexes.offsets.floor(offset - self.base_offset) or (-1, 0))[1]
        return 0

    def max_timestamp(self, *, confirmed: bool = False) -> int:
        """The largest timestamp by the time index; `confirmed`: the batches were asked, too."""
        timestamp = self.indexes.max_timestamp()
        if timestamp is None:
            self.rebuild_indexes("the time index is empty")
        elif confirmed and self._sealed and not self._time_index_is_true():
            self.rebuild_indexes(f"the time index claims {timestamp} as the largest, the batches do not")
        timestamp = self.indexes.max_timestamp()
        return NO_TIMESTAMP if timestamp is None else timestamp

    def _time_index_is_true(self) -> bool:
        """Whether the batch of the last entry has that time, and none behind it a later one."""
        last = self.indexes.times.last()
        if last is None:
            return not self.size_bytes
        timestamp, offset = last[0], self.base_offset + last[1]
        batches = self.batches(offset, lenient=True)
        found = next(batches, None)
        if found is None or (found.header.last_offset, found.header.max_timestamp) != (offset, timestamp):
            return False
        return all(placed.header.max_timestamp <= timestamp for placed in batches)

    def first_timestamp(self) -> int:
        """The timestamp of its first batch; -1 if there is none."""
        if self.indexes.first_timestamp is None and self.size_bytes >= HEADER_BYTES:
            self.indexes.first_timestamp = read_header(self.file.read(HEADER_BYTES, 0)).max_timestamp
        return self.indexes.first_timestamp if self.indexes.first_timestamp is not None else NO_TIMESTAMP

    def offset_for_timestamp(self, timestamp: int, from_offset: Offset) -> TimestampOffset | None:
        """The first record at or after this time and this offset."""
        start = max(from_offset, self._older_than(timestamp))
        for position, header in self.batches(start, lenient=True):
            if header.max_timestamp < timestamp:
                continue
            batch = self.file.read(header.size_bytes, position)
            for record in parse_batch(batch, size_max=PARSED_BYTES_MAX):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
        return None

    def _older_than(self, timestamp: int) -> Offset:
        """An offset before which every record is older, after a look at whether the time index tells the truth."""
        entry = self.indexes.times.before(timestamp)
        if entry is None:
            return self.base_offset
        claim = (self.base_offset + entry[1], entry[0])
        found = next(self.batches(claim[0], lenient=True), None)
        if found is not None and (found.header.last_offset, found.header.max_timestamp) == claim:
            return claim[0] + 1
        if self.rebuild_indexes(f"the time index claims that offset {claim[0]} has the time {claim[1]}"):
            entry = self.indexes.times.before(timestamp)
            return self.base_offset + entry[1] + 1 if entry is not None else self.base_offset
        return self.base_offset
