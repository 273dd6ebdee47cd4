"""The two indexes of a file segment together: what is entered when, and how they are mended.

An entry is made for the first batch that begins `index.interval.bytes` or more after the last one that has an
entry. The time index gets an entry at the same moments, if the largest timestamp has grown, and one more when the
segment is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock

from odradek.disk.interface import Disk
from odradek.log.index import IndexCache, OffsetIndex, TimeIndex
from odradek.log.segment import Placed
from odradek.model import Offset
from odradek.records.header import NO_TIMESTAMP


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
        self.full = len(self.offsets) >= self._entries_max

    def start_empty(self) -> None:
        """Begin with nothing noted."""
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
            if self.offsets.append(last_offset - self._base_offset, position) >= self._entries_max:
                self.full = True
            if self._max_timestamp > self._entered_timestamp:
                self._enter_time()
        if not position:
            self.first_timestamp = timestamp

    def note_time(self, last_offset: Offset, timestamp: int) -> None:
        """Take note of a batch's timestamp only."""
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset

    def _enter_time(self) -> None:
        """Enter the largest timestamp, which has grown since the last entry."""
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
        if self._max_timestamp > self._entered_timestamp:
            self._enter_time()
        self.write_out()

    def write_out(self) -> None:
        """Write what is only in memory to the files."""
        self.offsets.write_out()
        self.times.write_out()

    def resume(self, size_bytes: int, next_offset: Offset) -> None:
        """Keep only the entries below a position and an offset, and go on from there."""
        last = self.offsets.last()
        if last is not None and last[1] >= size_bytes:
            self.offsets.cut(self.offsets.count_before_position(size_bytes))
        last_time = self.times.last()
        if last_time is not None and last_time[1] >= next_offset - self._base_offset:
            self.times.cut(self.times.count_below_offset(next_offset - self._base_offset))
        last, last_time = self.offsets.last(), self.times.last()
        self._loaded = True
        self.full = len(self.offsets) >= self._entries_max
        self._indexed_position = last[1] if last is not None else 0
        self._max_timestamp = self._entered_timestamp = last_time[0] if last_time is not None else NO_TIMESTAMP
        self._max_timestamp_offset = self._base_offset + (last_time[1] if last_time is not None else 0)

    def known(self, *, trusted: bool) -> tuple[int, dict[Offset, int | None]]:
        """From which position the batches must be noted, and what those met on the way must be for it to be true.

        The claims are last offsets of batches, with their timestamp if one is claimed. Entries that were written
        out may have been lost on one side only: unless both are trusted, it begins where the older one of the two
        ends.
        """
        claims: dict[Offset, int | None] = {}
        last, last_time = self.offsets.last(), self.times.last()
        position = self._indexed_position
        if last is not None:
            claims[self._base_offset + last[0]] = None
        if not trusted:
            time_offset = last_time[1] if last_time is not None else -1
            before = self.offsets.floor(time_offset) or (-1, 0)
            if before[1] < position:
                position = before[1]
                if before[0] >= 0:
                    claims[self._base_offset + before[0]] = None
            if last_time is not None:
                claims[self._base_offset + last_time[1]] = last_time[0]
        return position, claims

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
