"""What the metadata know of a partition's archived segments: which offsets are in the object store, and how large.

Pure, and values that are replaced, never changed, as the rest of the image. Where a segment's objects are follows from
the topic, its id and the offsets (`odradek.objects.archive`), so that no key stands here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple

ARCHIVE_SEGMENT = "archive-segment"
FORGET_ARCHIVED = "forget-archived"
ARCHIVE_DELETED = "archive-deleted"


class Piece(NamedTuple):
    """One archived segment: the offsets from `base_offset` up to `end_offset` (exclusive)."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int  # of its records; -1: none has one


class PartitionArchive(NamedTuple):
    """All archived segments of a partition, oldest first; none overlaps another."""

    start: int  # nothing below this offset is kept, wherever it is
    pieces: tuple[Piece, ...] = ()

    @property
    def end(self) -> int:
        """All from `start` up to here (exclusive) is archived."""
        return self.pieces[-1].end_offset if self.pieces else self.start

    def piece_at(self, offset: int) -> Piece | None:
        """The piece that holds an offset, or the next one; None behind the last."""
        at = bisect_right(self.pieces, offset, key=lambda piece: piece.end_offset)
        return self.pieces[at] if at < len(self.pieces) else None

    def with_piece(self, piece: Piece) -> PartitionArchive:
        """Go on with another piece; ValueError if it does not come behind the others."""
        if not self.end <= piece.base_offset < piece.end_offset:
            raise ValueError(
                f"the segment from {piece.base_offset} to {piece.end_offset} does not follow an archive that ends at "
                f"{self.end}"
            )
        return PartitionArchive(self.start, (*self.pieces, piece))

    def from_offset(self, start: int) -> PartitionArchive:
        """Keep nothing below an offset; pieces that reach over it stay."""
        start = max(start, self.start)
        return PartitionArchive(start, tuple(piece for piece in self.pieces if piece.end_offset > start))

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it, for a snapshot."""
        return {"start": self.start, "pieces": [list(piece) for piece in self.pieces]}


def read_piece(body: Mapping[str, Any]) -> Piece:
    """The piece that a record speaks of."""
    return Piece(*(int(body[name]) for name in Piece._fields))


def read_archives(content: Mapping[str, Any]) -> dict[int, PartitionArchive]:
    """The archives of a topic's partitions, as a snapshot has them."""
    return {
        int(index): PartitionArchive(int(body["start"]), tuple(Piece(*map(int, piece)) for piece in body["pieces"]))
        for index, body in content.items()
    }


def archives_json(archives: Mapping[int, PartitionArchive]) -> dict[str, Any]:
    """What `read_archives` reads."""
    return {str(index): archives[index].to_json() for index in sorted(archives)}
