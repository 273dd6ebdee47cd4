"""Writing to the journal: which partition a group's records go to, and what to do when they are durable.

Whoever waits is told by a call from the loop, in the order of writing, so that a request that is given up does not
take its records' consequences with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from struct import unpack
from types import MappingProxyType

from odradek.groups.journal import Journal
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError

logger = logging.getLogger(__name__)

_PARTITIONS_REMEMBERED = 10_000

_TOLD: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    }
)
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def told(error: ErrorCode) -> ErrorCode:
    """What a client is told when its group's records could not be stored: errors of a log mean nothing to it here."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in TOO_LARGE else _TOLD.get(error, error)


def java_hash(text: str) -> int:
    """Java's String.hashCode: what Kafka places groups by."""
    encoded = text.encode("utf-16-be")
    value = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that keeps a group."""
    value = java_hash(group_id)
    return (0 if value == -(2**31) else abs(value)) % partition_count


class Ledger:
    """The coordinator's pen."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._partition_of = lru_cache(maxsize=_PARTITIONS_REMEMBERED)(partition_of)
        self._under_way: set[asyncio.Future[None]] = set()

    def append(self, group_id: str, records: Sequence[NewRecord], then: Callable[[ErrorCode], None]) -> None:
        """Write records of one group; `then` is called with NONE when they are durable, or with the error."""
        partition = self._partition_of(group_id, self._journal.partition_count)
        future = self._journal.append(partition, records)
        self._under_way.add(future)
        future.add_done_callback(partial(self._on_done, group_id, then))

    async def drain(self) -> None:
        """Wait until all that was written is durable or lost, and everybody has been told."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _on_done(self, group_id: str, then: Callable[[ErrorCode], None], future: asyncio.Future[None]) -> None:
        self._under_way.discard(future)
        then(self._outcome(group_id, future))

    @staticmethod
    def _outcome(group_id: str, future: asyncio.Future[None]) -> ErrorCode:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            return ErrorCode.NONE
        logger.warning("records of group %r were not stored: %s", group_id, error or type(error).__name__)
        if isinstance(error, PeerError):
            return error.code
        return ErrorCode.UNKNOWN_SERVER_ERROR
