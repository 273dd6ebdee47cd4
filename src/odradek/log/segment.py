"""The small interface behind which a segment keeps its batches.

`log.py` knows segments only by this: files today, other stores beside them. A segment covers the offsets from
`base_offset` up to the base of its successor; the last one of a log is active, all others are sealed and never change.

Threads: everything that changes a segment is called from the owner of the log alone. `read`, `batches` and
`offset_for_timestamp` may run in another thread while the segment is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from odradek.disk.interface import Buffer
from odradek.log.config import LogConfig
from odradek.model import Offset
from odradek.records.header import BatchHeader


class Mark(NamedTuple):
    """Where a batch lies in the bytes that are appended, and what the segment needs to know of it."""

    at: int
    base_offset: Offset
    last_offset: Offset
    max_timestamp: int


class Chunk(NamedTuple):
    """What a read gives: whole batches, as they are on disk."""

    data: memoryview
    base_offset: Offset  # of the first batch; at most the offset that was asked for
    next_offset: Offset  # after the last batch


class Placed(NamedTuple):
    """A batch's header and where it stands in its segment."""

    position: int
    header: BatchHeader


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: Offset
    leader_epoch: int


class EndOfSegment(NamedTuple):
    """How far a segment reaches, as it was known to be flushed."""

    next_offset: Offset
    size_bytes: int
    indexed: bool = False  # the indexes are as complete


class Recovered(NamedTuple):
    """What recovery found in a segment that was not known to be flushed."""

    scanned_bytes: int
    cut_bytes: int  # a torn tail, gone
    reason: str  # why the tail was cut, empty if it was not


# Says what is wrong with a batch that follows offset `expected` (None: not known), or None.
BatchCheck = Callable[[BatchHeader, Offset | None], str | None]


class Segment(Protocol):
    """A run of batches in the order of their offsets."""

    base_offset: Offset
    next_offset: Offset  # base_offset <= next_offset; of a sealed one: at most its successor's base_offset
    size_bytes: int

    def append(self, data: Buffer, last_offset: Offset, max_timestamp: int) -> bool:
        """Add a batch that is already checked and stamped; False, and nothing done, if it does not fit."""

    def append_many(self, data: Buffer, marks: list[Mark]) -> bool:
        """Add several of them that lie one behind the other; False, and nothing done, if they do not all fit."""

    def read(self, offset: Offset, max_bytes: int, upto: Offset, *, nowait: bool = False) -> Chunk | None:
        """Give whole batches from the one that holds `offset`, or the next one, up to `upto` and `max_bytes`.

        At least one batch comes, however large. Empty data: nothing there. None (only with `nowait`): it would wait.
        """

    def batches(self, offset: Offset, *, lenient: bool = False) -> Iterator[Placed]:
        """Walk over the headers from the batch that holds `offset`. Damage raises, or is stepped over."""

    def max_timestamp(self, *, confirmed: bool = False) -> int:
        """The largest timestamp of its records; -1 if there is none. `confirmed`: as the batches say, not an index."""

    def first_timestamp(self) -> int:
        """The timestamp of its first batch; -1 if there is none."""

    def offset_for_timestamp(self, timestamp: int, from_offset: Offset) -> TimestampOffset | None:
        """The first record at or after this time and this offset."""

    def truncate(self, offset: Offset) -> None:
        """Remove the batch that holds `offset` and all that follow; the segment becomes active again."""

    def recover(self, flushed: EndOfSegment | None) -> Recovered:
        """Check what came after `flushed` (None: everything), cut a torn tail, bring the indexes up to date."""

    def seal(self) -> None:
        """Nothing will be added any more."""

    def adopt(self, next_offset: Offset) -> None:
        """Take over a segment that was sealed by an earlier process: its successor begins at `next_offset`."""

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""

    def checkpoint(self) -> None:
        """Write out what only speeds up the next start."""

    def sync(self, *, sealed: bool = False) -> None:
        """Return when all of it is on stable storage. Runs in another thread while the segment is held."""

    def hold(self) -> None:
        """Keep its bytes readable, also after `delete`, until `release`."""

    def release(self) -> None:
        """Undo one `hold`."""

    def close(self) -> None:
        """Give back what it has open."""

    def delete(self) -> None:
        """Remove it from the store."""

    def retire(self) -> None:
        """Another segment has taken its place; those who hold it may read on."""


class Backend(Protocol):
    """Makes, finds and replaces the segments of one log."""

    replacement_suffix: str  # tells this log's replacements from those of others that had its names

    def find(self) -> list[Offset]:
        """The base offsets of the segments that are there, in order; leftovers of a crash are cleared away."""

    def open(self, base_offset: Offset) -> Segment:
        """Give a segment that `find` found or that was just installed."""

    def create(self, base_offset: Offset) -> Segment:
        """Make an empty, active segment; its name is durable after `sync_names`."""

    def create_replacement(self, base_offset: Offset) -> Segment:
        """Make a segment that is not part of the log until `install_replacement`."""

    def install_replacement(self, base_offset: Offset, replaced: list[Offset], suffix: str) -> None:
        """Put it in the place of those it replaces. Finishes what a crash interrupted when called again."""

    def discard_replacements(self) -> None:
        """Forget replacements that were not installed."""

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings, for the segments opened or made from now on."""

    def sync_names(self) -> None:
        """Return when creations and removals are on stable storage."""
