"""The two indexes of a file segment together: what is entered when, and how they are mended.

An entry is made for the first batch that begins `index.interval.bytes` or more after the last one that has an
entry. The time index gets an entry at the same moments, if the largest timestamp has grown, and one more when the
segment is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import NamedTuple

from odradek.disk.interface import Disk
from odradek.log.index import TAIL_ENTRIES_MAX, IndexCache, OffsetIndex, TimeIndex
from odradek.log.segment import Placed
from odradek.model import Offset
from odradek.records.header import NO_TIMESTAMP


class Known(NamedTuple):
    """How much of a segment its indexes claim to know."""

    position: int  # from here on the batches must be noted again
    claims: dict[int, Offset]  # positions at which batches with these last offsets must stand
    time_offset: Offset = -1  # the batch that ends here must have this timestamp
    timestamp: int = NO_TIMESTAMP


class SegmentIndexes:
    """Where in the file an offset or a time is to be looked for."""

    __slots__ = (
        "_base_offset",
        "_entered_timestamp",
        "_entries_max",
        "_indexed_position",
        "_interval_bytes",
        "_loaded",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_room",
        "first_timestamp",
        "full",
        "lock",
        "offsets",
        "times",
    )

    def __init__(
        self, disk: Disk, cache: IndexCache, base_offset: Offset, paths: tuple[str, str], sizes: tuple[int, int]
    ) -> None:
        self.offsets = OffsetIndex(disk, cache, paths[0], sizes[0])
        self.times = TimeIndex(disk, cache, paths[1], sizes[1])
        self.lock = RLock()  # readers in other threads may find that the indexes must be rebuilt
        self.first_timestamp: int | None = None  # None: not looked up yet
        self._base_offset = base_offset
        self.full = False  # no more entries fit: the segment must be rolled
        self._interval_bytes = 0
        self._entries_max = 1
        self._room = 0  # entries until the next look at whether there is room
        self._indexed_position = 0  # of the last batch that has an entry
        self._loaded = False  # whether the next three are known; of a sealed segment only when somebody asks
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset  # the last offset of the batch that has it
        self._entered_timestamp = NO_TIMESTAMP  # the last one in the time index

    def configure(self, interval_bytes: int, bytes_max: int) -> None:
        """Set how many bytes may lie between two entries, and how large an index may grow."""
        self._interval_bytes = interval_bytes
        # The time index, whose entries are larger, has never more of them than the offset index.
        self._entries_max = max(1, bytes_max // self.times.entry_bytes)
        self._make_room()

    def _make_room(self) -> None:
        """Write out a full block of entries, and see whether more of them may come."""
        if len(self.offsets.tail.keys) >= TAIL_ENTRIES_MAX:
            self.offsets.write_out()
        self.full = len(self.offsets) >= self._entries_max
        self._room = min(TAIL_ENTRIES_MAX - len(self.offsets.tail.keys), self._entries_max - len(self.offsets))

    def start_empty(self) -> None:
        """Begin with nothing noted."""
        self._make_room()
        self._indexed_position = 0
        self._loaded = True
        self._entered_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self._base_offset
        self.first_timestamp = None

    def note(self, position: int, last_offset: Offset, timestamp: int) -> None:
        """Take note of a batch that stands at `position`."""
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset
        if position - self._indexed_position >= self._interval_bytes:
            self._indexed_position = position
            tail = self.offsets.tail
            tail.keys.append(last_offset - self._base_offset)
            tail.values.append(position)
            self._room = room = self._room - 1
            if room <= 0:
                self._make_room()
            if self._max_timestamp > self._entered_timestamp:
                self._enter_time()
        if not position:
            self.first_timestamp = timestamp

    def note_time(self, last_offset: Offset, timestamp: int) -> None:
        """Take note of a batch's timestamp only."""
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset

    def enter_time(self) -> None:
        """Enter the largest timestamp if it has grown since the last entry."""
        if self._max_timestamp > self._entered_timestamp:
            self._enter_time()

    def _enter_time(self) -> None:
        self._entered_timestamp = self._max_timestamp
        self.times.append(self._max_timestamp, self._max_timestamp_offset - self._base_offset)

    def max_timestamp(self) -> int | None:
        """The largest timestamp; of a sealed segment, the one that its time index ends with. None: it has none."""
        if not self._loaded:
            last = self.times.last()
            if last is None:
                return None
            self._max_timestamp = self._entered_timestamp = last[0]
            self._max_timestamp_offset = self._base_offset + last[1]
            self._loaded = True
        return self._max_timestamp

    def seal(self) -> None:
        """Enter the last timestamp and write all out."""
        self.enter_time()
        self.write_out()

    def write_out(self) -> None:
        """Write what is only in memory to the files."""
        self.offsets.write_out()
        self.times.write_out()

    def make_files(self) -> None:
        """Make both files, even if they stay empty: what takes the place of other segments must take theirs, too."""
        self.offsets.make_file()
        self.times.make_file()

    def resume(self, size_bytes: int, next_offset: Offset) -> None:
        """Keep only the entries below a position and an offset, and go on from there."""
        self.offsets.trim()
        self.times.trim()
        last = self.offsets.last()
        if last is not None and last[1] >= size_bytes:
            self.offsets.cut(self.offsets.count_before_position(size_bytes))
        last_time = self.times.last()
        if last_time is not None and last_time[1] >= next_offset - self._base_offset:
            self.times.cut(self.times.count_below_offset(next_offset - self._base_offset))
        last, last_time = self.offsets.last(), self.times.last()
        self._loaded = True
        self._make_room()
        self._indexed_position = last[1] if last is not None else 0
        self._max_timestamp = self._entered_timestamp = last_time[0] if last_time is not None else NO_TIMESTAMP
        self._max_timestamp_offset = self._base_offset + (last_time[1] if last_time is not None else 0)

    def are_ordered(self) -> bool:
        """Whether both files hold growing numbers: what a crash left in them may be anything."""
        return self.offsets.is_ordered() and self.times.is_ordered()

    def known(self, *, trusted: bool) -> Known:
        """From where on the batches must be noted, and what those met on the way must be for that to be true.

        Entries that were written out may have been lost on one side only: unless both are trusted, it begins where
        the older one of the two ends.
        """
        last, last_time = self.offsets.last(), self.times.last()
        claims = {last[1]: self._base_offset + last[0]} if last is not None else {}
        position = self._indexed_position
        if trusted:
            return Known(position, claims)
        before = self.offsets.floor(last_time[1] if last_time is not None else -1) or (-1, 0)
        if before[0] >= 0 and before[1] < position:
            claims[before[1]] = self._base_offset + before[0]
        if last_time is None:
            return Known(min(position, before[1]), claims)
        return Known(min(position, before[1]), claims, self._base_offset + last_time[1], last_time[0])

    def rebuild(self, batches: Iterable[Placed]) -> None:
        """Make both anew from the batches themselves."""
        with self.lock:
            self.offsets.clear()
            self.times.clear()
            self.start_empty()
            for position, header in batches:
                self.note(position, header.last_offset, header.max_timestamp)

    def sync(self) -> None:
        """Return when what was written out is on stable storage."""
        self.offsets.sync()
        self.times.sync()

    def forget(self) -> None:
        """Drop what is loaded of both."""
        self.offsets.forget()
        self.times.forget()

    def delete(self) -> None:
        """Remove both files."""
        self.offsets.delete()
        self.times.delete()
