"""Sparse indexes in Kafka's format: `.index` (relative offset, position) and `.timeindex` (timestamp, relative offset).

Most of an index lies in its file; the newest entries are in memory and are written out in blocks. What is looked up
is loaded into a cache that all logs share and that is bounded in bytes. An index is never the truth: the log is,
and `segment` checks each claim an entry makes before it believes it.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain
from threading import Lock

from odradek.disk.interface import Disk

TAIL_ENTRIES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys that never fall, and their values."""

    keys: array[int]
    values: array[int]


class IndexCache:
    """The entries of the indexes that were looked up lately, for all logs of a broker."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._loaded: OrderedDict[SparseIndex, Entries] = OrderedDict()
        self._lock = Lock()

    def get(self, index: SparseIndex) -> Entries | None:
        """What is loaded of this index, if it is."""
        entries = self._loaded.get(index)
        if entries is not None:
            with self._lock:
                if index in self._loaded:
                    self._loaded.move_to_end(index)
        return entries

    def put(self, index: SparseIndex, entries: Entries) -> None:
        """Keep an index's entries; forget those that were not used for longest."""
        with self._lock:
            self._drop(index)
            self._loaded[index] = entries
            self.bytes_used += _bytes_of(entries)
            while self.bytes_used > self.bytes_max and len(self._loaded) > 1:
                self._drop(next(iter(self._loaded)))

    def forget(self, index: SparseIndex) -> None:
        """Drop an index that changed or is gone."""
        with self._lock:
            self._drop(index)

    def _drop(self, index: SparseIndex) -> None:
        entries = self._loaded.pop(index, None)
        if entries is not None:
            self.bytes_used -= _bytes_of(entries)


def _bytes_of(entries: Entries) -> int:
    return len(entries.keys) * (entries.keys.itemsize + entries.values.itemsize)


class SparseIndex(ABC):
    """Entries of two growing numbers; see the two kinds below."""

    __slots__ = ("_cache", "_disk", "_ragged", "path", "tail", "written")

    entry_bytes: int
    key_type: str

    def __init__(self, disk: Disk, cache: IndexCache, path: str, size_bytes: int) -> None:
        self.path = path
        self.written = size_bytes // self.entry_bytes  # entries in the file; grows only with a new `tail`
        self.tail = self._no_entries()  # entries after those, not in the file yet
        self._disk = disk
        self._cache = cache
        self._ragged = size_bytes % self.entry_bytes != 0  # the file ends inside an entry

    def __len__(self) -> int:
        return self.written + len(self.tail.keys)

    @property
    def size_bytes(self) -> int:
        """What the file will hold when all is written out."""
        return len(self) * self.entry_bytes

    def append(self, key: int, value: int) -> int:
        """Add an entry and give the number of entries; the caller sees to the order."""
        tail = self.tail
        tail.keys.append(key)
        tail.values.append(value)
        count = len(tail.keys)
        if count >= TAIL_ENTRIES_MAX:
            self.write_out()
            return self.written
        return self.written + count

    def write_out(self) -> None:
        """Write the entries in memory to the file. Not durable until `sync`."""
        tail = self.tail
        if not tail.keys:
            return
        if self._ragged:
            self.trim()
        self._disk.append_file(self.path, self._encode(tail))
        cached = self._cache.get(self)
        if cached is not None and len(cached.keys) == self.written:
            self._cache.put(self, Entries(cached.keys + tail.keys, cached.values + tail.values))
        self.tail = self._no_entries()
        self.written += len(tail.keys)

    def make_file(self) -> None:
        """See that there is a file, though it may be empty."""
        if self.written:
            self.trim()
        else:
            self._disk.truncate_file(self.path, 0)
            self._ragged = False

    def trim(self) -> None:
        """Cut off what is no whole entry at the end of the file."""
        if self._ragged:
            self._disk.truncate_file(self.path, self.written * self.entry_bytes)
            self._ragged = False

    def sync(self) -> None:
        """Return when what was written out is on stable storage."""
        self._disk.sync_file(self.path)

    def entries(self, *, nowait: bool = False) -> Entries | None:
        """The entries in the file, from the cache or the disk; None with `nowait` if they are not in memory."""
        if not self.written:
            return self._no_entries()
        cached = self._cache.get(self)
        if cached is not None and len(cached.keys) == self.written:
            return cached
        return None if nowait else self._load()

    def _load(self) -> Entries:
        written = self.written
        data = self._disk.read_file(self.path) or b""
        entries = self._decode(data[: written * self.entry_bytes])
        if self.written == written:  # else it was cut, or written to, meanwhile
            self._cache.put(self, entries)
        return entries

    def is_ordered(self) -> bool:
        """Whether the file holds as many entries as it should, in order."""
        entries = self._load() if self.written else self._no_entries()
        return len(entries.keys) == self.written and _rises(entries.keys) and _rises(entries.values)

    def last(self) -> tuple[int, int] | None:
        """The last entry."""
        if self.tail.keys:
            return self.tail.keys[-1], self.tail.values[-1]
        if not self.written:
            return None
        entries = self.entries(nowait=True)
        if entries is None:  # one entry is not worth loading the others
            at = (self.written - 1) * self.entry_bytes
            entries = self._decode(self._disk.read_range(self.path, self.entry_bytes, at))
        return (entries.keys[-1], entries.values[-1]) if entries.keys else None

    def cut(self, count: int) -> None:
        """Keep only the first `count` entries."""
        if count >= len(self):
            return
        self.write_out()
        self._disk.truncate_file(self.path, count * self.entry_bytes)
        self._cache.forget(self)
        self._ragged = False
        self.written = count

    def clear(self) -> None:
        """Begin anew, with an empty file."""
        self._disk.truncate_file(self.path, 0)
        self._cache.forget(self)
        self._ragged = False
        self.tail = self._no_entries()
        self.written = 0

    def forget(self) -> None:
        """Drop what is loaded."""
        self._cache.forget(self)

    def delete(self) -> None:
        """Remove the file."""
        self._cache.forget(self)
        self._disk.remove(self.path)

    def _no_entries(self) -> Entries:
        return Entries(array(self.key_type), array("I"))

    @abstractmethod
    def _encode(self, entries: Entries) -> bytes:
        """The entries as the file has them."""

    @abstractmethod
    def _decode(self, data: bytes) -> Entries:
        """The entries of a file's bytes."""


class OffsetIndex(SparseIndex):
    """Last offset of a batch, relative to the segment's base -> the batch's position in the log file."""

    __slots__ = ()
    entry_bytes = 8
    key_type = "I"

    def floor(self, relative_offset: int, *, nowait: bool = False) -> tuple[int, int] | None:
        """The last entry at or before an offset; (-1, 0), the start of the segment, if there is none.

        None only with `nowait`: the index would have to be loaded.
        """
        entries = self.tail
        if not entries.keys or relative_offset < entries.keys[0]:
            loaded = self.entries(nowait=nowait)
            if loaded is None:
                return None
            entries = loaded
        at = bisect_right(entries.keys, relative_offset, 0, _whole(entries)) - 1
        return (entries.keys[at], entries.values[at]) if at >= 0 else (-1, 0)

    def floor_position(self, position: int, *, nowait: bool = False) -> tuple[int, int]:
        """The last entry at or before a position; (-1, 0) if there is none, or none is in memory."""
        entries = self.tail
        if not entries.values or position < entries.values[0]:
            loaded = self.entries(nowait=nowait)
            if loaded is None:
                return -1, 0
            entries = loaded
        at = bisect_right(entries.values, position, 0, _whole(entries)) - 1
        return (entries.keys[at], entries.values[at]) if at >= 0 else (-1, 0)

    def count_before_position(self, position: int) -> int:
        """How many entries point below a position."""
        entries = self.entries()
        in_file = bisect_left(entries.values, position) if entries is not None else 0
        return in_file + bisect_left(self.tail.values, position)

    def _encode(self, entries: Entries) -> bytes:
        words = array("I", chain.from_iterable(zip(entries.keys, entries.values, strict=True)))
        return _big_endian(words).tobytes()

    def _decode(self, data: bytes) -> Entries:
        words = array("I")
        words.frombytes(data[: len(data) // 8 * 8])
        words = _big_endian(words)
        return Entries(words[0::2], words[1::2])


class TimeIndex(SparseIndex):
    """Largest timestamp so far -> last offset of the batch that has it, relative to the segment's base."""

    __slots__ = ()
    entry_bytes = 12
    key_type = "q"

    def before(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry with an earlier time: every record up to its offset is older."""
        for entries in (self.tail, self.entries()):
            if entries is None:
                continue
            at = bisect_left(entries.keys, timestamp, 0, _whole(entries)) - 1
            if at >= 0:
                return entries.keys[at], entries.values[at]
        return None

    def count_below_offset(self, relative_offset: int) -> int:
        """How many entries speak of offsets below this one."""
        entries = self.entries()
        in_file = bisect_left(entries.values, relative_offset) if entries is not None else 0
        return in_file + bisect_left(self.tail.values, relative_offset)

    def _encode(self, entries: Entries) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, entries.keys, entries.values))

    def _decode(self, data: bytes) -> Entries:
        pairs = list(_TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]))
        return Entries(array("q", (key for key, _ in pairs)), array("I", (value for _, value in pairs)))


_TIME_ENTRY = struct.Struct(">qI")


def _big_endian(words: array[int]) -> array[int]:
    """Swap between the file's order of bytes and the machine's."""
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _whole(entries: Entries) -> int:
    """How many entries have both their numbers: another thread may be between the two."""
    return min(len(entries.keys), len(entries.values))


def _rises(numbers: array[int]) -> bool:
    """Whether each number is larger than the one before."""
    listed = numbers.tolist()
    return listed == sorted(set(listed))
