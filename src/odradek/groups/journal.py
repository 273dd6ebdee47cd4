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

    def leads(self, partition: int) -> bool:
        """Whether this broker leads the partition now and may say so; asked with every request, so it must be quick.

        A broker that stands alone leads them all, before there is a topic, too.
        """

    def append(self, partition: int, records: Sequence[NewRecord]) -> asyncio.Future[None]:
        """Write records, in the order of calls; the future is done when they are safe: flushed, and replicated.

        The futures of one partition are done in the order of calls, and each is done some time. One fails with
        PeerError if its records are lost or may be: NOT_LEADER_OR_FOLLOWER when the partition's leader has changed.
        """

    def read(self, partition: int) -> Iterator[Record]:
        """All records from the start of the log to its end; PeerError where it is damaged, or not led any more.

        Whoever reads may pause for long between two records: a single step must take no more than some milliseconds.
        """
