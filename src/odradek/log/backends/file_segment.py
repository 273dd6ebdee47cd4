"""One segment as three files: the batches as they came over the wire, and two sparse indexes beside them.

Bytes that this process appended or recovered are known to be good. What an earlier process left is checked, CRC and
all, before it is served for the first time; `_good` says which part has been.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

from odradek.disk.interface import Buffer, Disk, File
from odradek.log.backends.file_indexes import SegmentIndexes
from odradek.log.backends.file_recovery import rebuild_indexes, recover_segment
from odradek.log.config import LogConfig
from odradek.log.index import IndexCache
from odradek.log.scan import Damage, survey
from odradek.log.segment import BatchCheck, Chunk, EndOfSegment, Mark, Placed, Recovered, TimestampOffset
from odradek.model import Offset
from odradek.records.errors import CorruptBatchError
from odradek.records.header import HEADER_BYTES, LENGTH_OVERHEAD, NO_TIMESTAMP, check_batch, read_header
from odradek.records.parse import parse_batch

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"

OFFSET_SPAN_MAX = 2**31 - 1  # relative offsets are four bytes, and Kafka's are signed
POSITION_MAX = 2**31 - 1
UNINDEXED_BYTES_MAX = 1 << 20  # walking further than this without an index entry means that the index is wrong
PARSED_BYTES_MAX = 1 << 30

_PEEK = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_COPY_BYTES = 1 << 20
_NEVER_MS = 1 << 63

log = logging.getLogger(__name__)


def segment_path(directory: str, base_offset: Offset, kind: str) -> str:
    """The name of one of a segment's files: twenty digits, as Kafka has it."""
    return f"{directory}/{base_offset:020d}{kind}"


class _WrongIndexError(Exception):
    """An index entry points at something else than it says, or is missing."""


class FileSegment:
    """Batches in a file; see `Segment` for what each method promises."""

    __slots__ = (
        "_bytes_max",
        "_check",
        "_checked",
        "_config",
        "_disk",
        "_gone",
        "_good_from",
        "_offset_max",
        "_sealed",
        "_timestamp_max",
        "base_offset",
        "file",
        "indexes",
        "next_offset",
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
        self._check = check
        self._offset_max = base_offset + OFFSET_SPAN_MAX
        self._timestamp_max = _NEVER_MS
        self._sealed = False
        self._gone = False  # deleted or replaced: its names belong to nobody, or to another segment
        # Positions from which what this process wrote or recovered is good, and (from, to) of what readers have checked
        # since. A pair in one attribute, so that other threads see both or neither.
        self._good_from = size_bytes
        self._checked = (0, 0)
        self.configure(config)
        if not size_bytes:
            self.indexes.start_empty()

    @property
    def path(self) -> str:
        """The file of the batches."""
        return self.file.path

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""
        self._config = config
        self._bytes_max = min(config.segment_bytes, POSITION_MAX)
        if self.next_offset > self.base_offset:
            self._limit_age()
        self.indexes.configure(config.index_interval_bytes, config.segment_index_bytes)

    # Called by the owner of the log.

    def append(self, data: Buffer, last_offset: Offset, max_timestamp: int) -> bool:
        """Add a batch that is already checked and stamped; False, and nothing done, if it does not fit."""
        position = self.size_bytes
        end = position + len(data)
        if (
            end > self._bytes_max
            or max_timestamp > self._timestamp_max
            or last_offset > self._offset_max
            or self.indexes.full
        ) and position:  # an empty segment takes anything
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
        if self.indexes.full or newest > self._timestamp_max or marks[-1].last_offset > self._offset_max:
            return False
        if not self.append(data, marks[0].last_offset, marks[0].max_timestamp):
            return False
        for at, _, last_offset, timestamp in marks[1:]:
            self.indexes.note(position + at, last_offset, timestamp)
        self.next_offset = marks[-1].last_offset + 1
        return True

    def _limit_age(self) -> None:
        """Work out the timestamp from which on a batch belongs into another segment, by segment.ms."""
        first = self.first_timestamp()
        self._timestamp_max = first + self._config.segment_ms if first != NO_TIMESTAMP else _NEVER_MS

    def truncate(self, offset: Offset) -> None:
        """Remove the batch that holds `offset` and all that follow."""
        found = next(self.batches(offset, lenient=True), None)
        self._sealed = False
        end = offset
        if found is not None:
            self.cut(found.position)
            end = min(offset, found.header.base_offset)
        self.recover(EndOfSegment(min(self.next_offset, end), self.size_bytes, indexed=True))

    def cut(self, size_bytes: int) -> None:
        """Shorten the file, durably."""
        self.file.truncate(size_bytes)
        self.file.sync()
        self.size_bytes = size_bytes
        self._good_from = min(self._good_from, size_bytes)
        self._checked = (min(self._checked[0], size_bytes), min(self._checked[1], size_bytes))

    def save_copy(self, path: str, start: int) -> None:
        """Copy what stands from `start` on into another file, durably."""
        copy = self._disk.open(path, create=True)
        for position in range(start, self.size_bytes, _COPY_BYTES):
            copy.append(self.file.read(min(_COPY_BYTES, self.size_bytes - position), position))
        copy.sync()
        copy.close()

    def recover(self, flushed: EndOfSegment | None) -> Recovered:
        """Check what came after `flushed` (None: everything), cut a torn tail, bring the indexes up to date."""
        recovered = recover_segment(self, flushed, self._check)
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

    def _is_good(self, start: int, end: int) -> bool:
        """Whether a part of the file has been checked."""
        return start >= self._good_from or self._checked[0] <= start <= end <= self._checked[1]

    def seal(self) -> None:
        """Nothing will be added any more."""
        self._sealed = True
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
        try:
            return self._read(offset, max_bytes, upto, nowait)
        except _WrongIndexError as error:
            if nowait:
                return None
            entry = None
            if self._rebuild_indexes(str(error)):
                entry = self.indexes.offsets.floor(offset - self.base_offset)
            return self._read_past_damage(offset, max_bytes, upto, *(entry or (-1, 0)))

    def _read(self, offset: Offset, max_bytes: int, upto: Offset, nowait: bool) -> Chunk | None:
        size = self.size_bytes
        entry = self.indexes.offsets.floor(offset - self.base_offset, nowait=nowait)
        if entry is None:
            return None
        claim, position = entry
        if position >= size:
            if claim < 0:
                return _nothing(offset)
            raise _WrongIndexError(f"an entry points at byte {position} of {size}")
        wanted = min(max_bytes + self._config.index_interval_bytes + HEADER_BYTES, size - position)
        if not self._is_good(position, position + wanted):
            return None if nowait else self._read_unchecked(offset, max_bytes, upto, claim, position)
        fetch = self.file.read_cached if nowait else self.file.read
        data = fetch(wanted, position)
        at = 0
        while data is not None:
            if at + HEADER_BYTES > len(data):  # go on where the index has no entry
                position += at
                if position >= size:
                    return _nothing(offset)
                at, data = 0, fetch(min(wanted, size - position), position)
                continue
            base, length, delta = _PEEK.unpack_from(data, at)
            if claim >= 0 and base + delta != self.base_offset + claim:
                raise _WrongIndexError(f"an entry claims offset {self.base_offset + claim} at byte {position}")
            claim, whole = -1, length + LENGTH_OVERHEAD
            if base + delta < offset:
                at += whole
            elif base >= upto:
                return _nothing(offset)
            elif at + whole > len(data):  # a batch larger than what was read comes alone
                at, position, data = 0, position + at, fetch(whole, position + at)
            else:
                return self._whole_batches(data, at, max(max_bytes, whole), position, upto, nowait)
        return None

    def _whole_batches(
        self, data: Buffer, start: int, max_bytes: int, position: int, upto: Offset, nowait: bool
    ) -> Chunk:
        """Cut checked bytes to whole batches; `data` stands at `position`, the first batch begins at `start`."""
        limit = min(len(data), start + max_bytes)
        offsets = self.indexes.offsets
        entry = offsets.floor_position(position + limit - HEADER_BYTES, nowait=nowait)
        if upto < self.next_offset:
            before = offsets.floor(upto - self.base_offset, nowait=nowait) or (-1, 0)
            entry = min(entry, before)
        first, _, delta = _PEEK.unpack_from(data, start)
        at, following = start, first
        if entry[1] - position > start:  # do not walk over what the index can jump over
            base, _, delta = _PEEK.unpack_from(data, entry[1] - position)
            if base + delta == self.base_offset + entry[0]:
                at = entry[1] - position
        while at + HEADER_BYTES <= limit:
            base, length, delta = _PEEK.unpack_from(data, at)
            following = base
            end = at + length + LENGTH_OVERHEAD
            if end > limit or base >= upto:
                break
            following = base + delta + 1
            at = end
        return Chunk(memoryview(data)[start:at], first, following)

    def _read_unchecked(self, offset: Offset, max_bytes: int, upto: Offset, claim: int, position: int) -> Chunk:
        """Read what nobody has checked since this process began: every batch, before it is served."""
        wanted = min(max_bytes + self._config.index_interval_bytes + HEADER_BYTES, self.size_bytes - position)
        view = memoryview(self.file.read(wanted, position))
        expected = None if claim >= 0 else self.base_offset
        start = at = 0
        first = following = None
        while at < len(view):
            try:
                header = check_batch(view, at)
            except CorruptBatchError:
                break  # damaged, or only cut off by what was read
            end = at + header.size_bytes
            if self._check(header, expected) is not None or (first is not None and end - start > max_bytes):
                break
            if at == 0 and claim >= 0 and header.last_offset != self.base_offset + claim:
                raise _WrongIndexError(f"an entry claims offset {self.base_offset + claim} at byte {position}")
            if header.base_offset >= upto:
                break
            expected = header.next_offset
            if first is None and header.last_offset >= offset:
                start, first = at, header.base_offset
            following, at = expected, end
        if first is None or following is None:
            return self._read_past_damage(offset, max_bytes, upto, claim, position)
        self.mark_good(position, position + at)
        return Chunk(view[start:at], first, following)

    def _read_past_damage(self, offset: Offset, max_bytes: int, upto: Offset, claim: int, position: int) -> Chunk:
        """The same where the batch is large, far from its index entry, or behind damage: slower, batch by batch."""
        expected = None if claim >= 0 else self.base_offset
        damage: Damage | None = None
        for found in survey(self.file, position, self.size_bytes, self._check, expected):
            if isinstance(found, Damage):
                damage = found
                log.error("%s; it is not served", found.error())
                continue
            header = found.header
            if claim >= 0 and header.last_offset != self.base_offset + claim:
                raise _WrongIndexError(f"an entry claims offset {self.base_offset + claim} at byte {found.position}")
            claim = -1
            if header.last_offset < offset:
                damage = None
                if found.position - position > max(UNINDEXED_BYTES_MAX, 4 * self._config.index_interval_bytes):
                    raise _WrongIndexError(f"no entry between the bytes {position} and {found.position}")
                continue
            if damage is not None and header.base_offset > offset:
                raise damage.error()
            if header.base_offset >= upto:
                return _nothing(offset)
            data = memoryview(self.file.read(header.size_bytes, found.position))
            return Chunk(data, header.base_offset, header.next_offset)
        if damage is not None:
            raise damage.error()
        return _nothing(offset)

    def _rebuild_indexes(self, reason: str) -> bool:
        """Make the indexes anew; False if they are not this one's to change, so that it must do without."""
        if not self._sealed or self._gone:  # its owner may be appending, or the names are another segment's
            return False
        log.warning("rebuilding the indexes of %s: %s", self.path, reason)
        with self.indexes.lock:
            rebuild_indexes(self, self.size_bytes, self._check, self.base_offset)
            self.indexes.seal()
        return True

    def batches(self, offset: Offset, *, lenient: bool = False) -> Iterator[Placed]:
        """Walk over the headers from the batch that holds `offset`. Damage raises, or is stepped over."""
        size = self.size_bytes
        position = self._indexed_position(offset)
        good = self._is_good(position, size)
        for found in survey(self.file, position, size, self._check, None, crc=not good):
            if isinstance(found, Damage):
                if not lenient:
                    raise found.error()
            elif found.header.last_offset >= offset:
                yield found

    def _indexed_position(self, offset: Offset) -> int:
        """Where to begin to look for an offset, after a look at whether the index tells the truth."""
        claim, position = self.indexes.offsets.floor(offset - self.base_offset) or (-1, 0)
        if claim < 0:
            return 0
        head = self.file.read(HEADER_BYTES, position)
        if len(head) == HEADER_BYTES and read_header(head).last_offset == self.base_offset + claim:
            return position
        if self._rebuild_indexes(f"an entry claims offset {self.base_offset + claim} at byte {position}"):
            return (self.indexes.offsets.floor(offset - self.base_offset) or (-1, 0))[1]
        return 0

    def max_timestamp(self, *, confirmed: bool = False) -> int:
        """The largest timestamp by the time index; `confirmed`: the batch was asked, too."""
        timestamp = self.indexes.max_timestamp()
        if timestamp is None:
            self._rebuild_indexes("the time index is empty")
        elif confirmed and self._sealed and timestamp != NO_TIMESTAMP:
            last = self.indexes.times.last()
            found = next(self.batches(self.base_offset + last[1]), None) if last is not None else None
            if (
                last is None
                or found is None
                or (found.header.last_offset, found.header.max_timestamp)
                != (
                    self.base_offset + last[1],
                    last[0],
                )
            ):
                self._rebuild_indexes(f"the time index claims {timestamp}, its batch does not")
        timestamp = self.indexes.max_timestamp()
        return NO_TIMESTAMP if timestamp is None else timestamp

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
        found = next(self.batches(claim[0]), None)
        if found is not None and (found.header.last_offset, found.header.max_timestamp) == claim:
            return claim[0] + 1
        if self._rebuild_indexes(f"the time index claims that offset {claim[0]} has the time {claim[1]}"):
            entry = self.indexes.times.before(timestamp)
            return self.base_offset + entry[1] + 1 if entry is not None else self.base_offset
        return self.base_offset


def _nothing(offset: Offset) -> Chunk:
    return Chunk(memoryview(b""), offset, offset)
