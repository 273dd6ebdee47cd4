"""The port to `__consumer_offsets`: what the coordinator writes to and loads from; the broker implements it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

from odradek.records.record import NewRecord, Record


class Journal(Protocol):
    """The partitions of `__consumer_offsets`."""

    @property
    def partition_count(self) -> int:
        """How many partitions there are; it never changes, since ids are hashed onto them."""

    def append(self, partition: int, records: Sequence[NewRecord]) -> asyncio.Future[None]:
        """Write records, in the order of calls; the future is done when they are on stable storage.

        The futures of one partition are done in the order of calls. One fails with PeerError if its records are lost.
        """

    def read(self, partition: int) -> Iterator[Record]:
        """All records from the start of the log; PeerError where it is damaged."""
