"""Where the tools read a partition's batches from: `odradek log dump`, `verify` and `convert`.

A source gives the batches of one segment as they are stored, whole or damaged, and changes nothing; a broker may be at
work beside it. Positions count bytes as if the batches lay one behind the other, which in files they do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from odradek.disk.interface import Disk
from odradek.log.backends.file_segment import INDEX, LOG, segment_path
from odradek.log.index import IndexCache, OffsetIndex
from odradek.log.scan import Damage, survey
from odradek.log.segment import BatchCheck, Placed
from odradek.model import Offset
from odradek.records.header import HEADER_BYTES, BatchHeader, read_header

_FAR = 1 << 70  # beyond every offset
_SEGMENT_FILE = re.compile(r"(?P<base>[0-9]{20})(?P<kind>\.log|\.index|\.timeindex)")


class BatchSource(Protocol):
    """The batches of one segment."""

    path: str  # the file that a message names
    base: Offset | None  # None: a file under another name
    following: Offset | None  # the base of the next segment
    size_bytes: int  # of the batches
    has_indexes: bool  # index files stand beside it

    def survey(self, offset: Offset, *, crc: bool = True) -> Iterator[Placed | Damage]:
        """What stands in it from a place before `offset` on; order and epochs are not judged."""

    def read(self, placed: Placed) -> bytes:
        """The bytes of a batch that `survey` gave."""

    def close(self) -> None:
        """Give back what it has open."""


class Sources(Protocol):
    """The segments of one partition."""

    bases: Sequence[Offset | None]  # in order; None: one file under another name

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches, as far as they can be known without reading them."""

    def path(self, base: Offset | None) -> str:
        """The name of a segment, for messages."""

    def open(self, base: Offset | None) -> BatchSource:
        """The batches of one."""

    def owns(self, name: str) -> bool:
        """Whether a file or directory beside the log's small files belongs to its segments."""

    def close(self) -> None:
        """Give back what it has open."""


def following_base(bases: Sequence[Offset | None], base: Offset | None) -> Offset | None:
    """The base of the next segment; None behind the last."""
    number = bases.index(base) + 1
    return bases[number] if number < len(bases) else None


def loose_check(base: Offset | None, following: Offset | None) -> BatchCheck:
    """A check for `survey` that lets every whole batch pass, so that order and epochs can be judged apart.

    Only what is found in search of the next batch behind damage must have offsets of this segment.
    """

    def check(header: BatchHeader, expected: Offset | None) -> str | None:
        is_possible = (base or 0) <= header.base_offset <= header.last_offset < (following or _FAR)
        return None if expected is not None or is_possible else "this is no batch"

    return check


class FileSource:
    """A segment's `.log` file."""

    has_indexes = True

    def __init__(self, disk: Disk, path: str, base: Offset | None, following: Offset | None) -> None:
        self.path = path
        self.base = base
        self.following = following
        self._disk = disk
        self._file = disk.open(path)
        self.size_bytes = self._file.size()

    def survey(self, offset: Offset, *, crc: bool = True) -> Iterator[Placed | Damage]:
        """What stands in it from a place before `offset` on; order and epochs are not judged."""
        check = loose_check(self.base, self.following)
        return survey(self._file, self._start(offset), self.size_bytes, check, self.base or 0, self.base, crc=crc)

    def _start(self, offset: Offset) -> int:
        """Where to begin to read: what the index says, if that is true."""
        path = f"{self.path.removesuffix(LOG)}{INDEX}"
        if self.base is None or offset <= self.base or not self._disk.exists(path):
            return 0
        index = self._disk.open(path)
        size = index.size()
        index.close()
        claim, position = OffsetIndex(self._disk, IndexCache(0), path, size).floor(offset - self.base) or (-1, 0)
        if claim < 0 or position + HEADER_BYTES > self.size_bytes:
            return 0
        header = read_header(self._file.read(HEADER_BYTES, position))
        return position if header.last_offset == self.base + claim else 0

    def read(self, placed: Placed) -> bytes:
        """The bytes of a batch that `survey` gave."""
        return self._file.read(placed.header.size_bytes, placed.position)

    def close(self) -> None:
        """Give back what it has open."""
        self._file.close()


class FileSources:
    """The `.log` files of a directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.size_bytes = 0
        bases: list[Offset] = []
        for entry in disk.list(directory):
            match = _SEGMENT_FILE.fullmatch(entry.name)
            if match is not None and match["kind"] == LOG and not entry.is_directory:
                bases.append(int(match["base"]))
                self.size_bytes += entry.size_bytes
        self.bases: Sequence[Offset | None] = sorted(bases)

    def path(self, base: Offset | None) -> str:
        """The name of a segment, for messages."""
        return segment_path(self._directory, base or 0, LOG)

    def open(self, base: Offset | None) -> FileSource:
        """The batches of one."""
        return FileSource(self._disk, self.path(base), base, following_base(self.bases, base))

    def owns(self, name: str) -> bool:
        """Whether it is the log or an index of a segment that is there."""
        match = _SEGMENT_FILE.fullmatch(name)
        return match is not None and int(match["base"]) in self.bases

    def close(self) -> None:
        """Nothing is open between calls."""


class OneFile:
    """A log file by itself, under whatever name."""

    def __init__(self, disk: Disk, path: str, base: Offset | None) -> None:
        self._source = FileSource(disk, path, base, None)
        self.bases: Sequence[Offset | None] = [base]
        self.size_bytes = self._source.size_bytes

    def path(self, base: Offset | None) -> str:
        """The name of the file."""
        del base
        return self._source.path

    def open(self, base: Offset | None) -> FileSource:
        """Its batches."""
        del base
        return self._source

    def owns(self, name: str) -> bool:
        """Nothing beside it is looked at."""
        del name
        return True

    def close(self) -> None:
        """Give back what it has open."""
        self._source.close()
