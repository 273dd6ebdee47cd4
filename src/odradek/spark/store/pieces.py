"""What tasks are made of: objects of channels, and pieces of archived segments. They are pickled on their way."""

from __future__ import annotations

from typing import NamedTuple

from odradek.objects.archive import ArchivedSegment


class StoredObject(NamedTuple):
    """An object of a channel."""

    key: str
    size_bytes: int


class Unit(NamedTuple):
    """The objects of one publisher in one slice, in order: one task reads them all."""

    partition: int
    objects: tuple[StoredObject, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all of them."""
        return sum(one.size_bytes for one in self.objects)


class Piece(NamedTuple):
    """The offsets [start, end) of an archived segment."""

    segment: ArchivedSegment
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """About how many bytes that is."""
        whole = self.segment.end_offset - self.segment.base_offset
        return self.segment.size_bytes * (self.end - self.start) // max(1, whole)
