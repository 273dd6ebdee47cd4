"""What a store that keeps batches as rows gives to a segment: sqlite and RocksDB are two.

A table holds the batches of one segment, each exactly as it came over the wire, in the order of their offsets. What a
segment is beside that (limits, checks, recovery, holds) is `table_segment`'s and the same for all tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from odradek.model import Offset


class Row(NamedTuple):
    """One batch. All but `data` says again what the batch's own header says, so that it can be found by it."""

    base_offset: Offset
    last_offset: Offset
    max_timestamp: int
    position: int  # the bytes of the batches before it in this segment
    newest: int  # the largest max_timestamp up to here, this one included: it never goes down
    data: bytes  # after stamping

    @property
    def end(self) -> int:
        """The bytes of the segment up to and including this batch."""
        return self.position + len(self.data)


class Table(Protocol):
    """The batches of one segment.

    `append`, `truncate` and `reset` are called by the owner of the log alone, `sync` in another thread at the same time
    as `append`; all reads run in any thread. Reads see what was appended at once. Errors: what cannot be written or
    flushed is a DiskError, always; a read raises DiskError if the disk refuses, DamagedLogError if the store itself
    is damaged. What a batch says is never checked here.
    """

    path: str  # what messages name
    written_through: bool  # an append must survive the end of this process at once (flush is not `group`)

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows behind all others. Not durable before `sync`; does not wait for the disk."""

    def find(self, offset: Offset) -> Row | None:
        """The first row with last_offset >= offset; its `data` may be left empty. In O(log n)."""

    def rows(self, offset: Offset) -> Iterator[Row]:
        """All rows from that one on, in order; few of them in memory at a time, nothing locked in between."""

    def read(self, offset: Offset, max_bytes: int, upto: Offset) -> list[Row]:
        """Rows from that one on with base_offset < upto, at most `max_bytes` of data, but at least one."""

    def last(self) -> Row | None:
        """The last row, with its data."""

    def truncate(self, offset: Offset) -> None:
        """Remove the rows with last_offset >= offset, durably."""

    def reset(self) -> None:
        """Begin as an empty table, whatever is there: it cannot be read, and nothing of it was ever flushed."""

    def sync(self, *, sealed: bool) -> None:
        """Return when all that was appended before the call is on stable storage. `sealed`: nothing more will come."""

    def set_aside(self) -> None:
        """Let another table have its place in the store; it stays readable for this process until `discard`.

        A start after a crash finds nothing of it.
        """

    def discard(self) -> None:
        """Free its bytes; it was set aside, and nobody reads it any more."""

    def close(self) -> None:
        """Give back what it has open, for good; what was synced stays. A later read raises LogClosedError.

        Nothing may be done under its name from now on: it may be another table's.
        """
