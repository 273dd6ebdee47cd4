"""Writing to one partition of the journal: which groups it keeps, and what to do when their records are durable.

Whoever waits is told by a call from the loop, in the order of writing, so that a request that is given up does not
take its records' consequences with it. When the partition is lost to another broker, all are told so at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import unpack
from types import MappingProxyType

from odradek.groups.journal import Journal
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError

logger = logging.getLogger(__name__)

_TOLD: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
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
    """The pen for one partition, in one term of its leadership."""

    def __init__(self, journal: Journal, partition: int) -> None:
        self._journal = journal
        self._partition = partition
        self.first: NewRecord | None = None  # of all that was ever written with this pen
        self._under_way: dict[asyncio.Future[None], Callable[[ErrorCode], None]] = {}  # in the order of writing

    def append(self, group_id: str, records: Sequence[NewRecord], then: Callable[[ErrorCode], None]) -> None:
        """Write records of one group; `then` is called once: with NONE when they are durable, or with the error."""
        if self.first is None:
            self.first = records[0]
        future = self._journal.append(self._partition, records)
        self._under_way[future] = then
        future.add_done_callback(partial(self._on_done, group_id))

    async def drain(self) -> None:
        """Wait until all that was written is durable or lost, and everybody has been told."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def abandon(self, error: ErrorCode) -> None:
        """Tell everybody who waits this error, now; what becomes of the records is nobody's concern any more."""
        waiting, self._under_way = self._under_way, {}
        for then in waiting.values():
            then(error)

    def _on_done(self, group_id: str, future: asyncio.Future[None]) -> None:
        then = self._under_way.pop(future, None)
        if then is not None:
            then(self._outcome(group_id, future))
        elif not future.cancelled():
            future.exception()  # seen, lest the loop complain: those who waited were told when it was abandoned

    @staticmethod
    def _outcome(group_id: str, future: asyncio.Future[None]) -> ErrorCode:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            return ErrorCode.NONE
        logger.warning("records of group %r were not stored: %s", group_id, error or type(error).__name__)
        if isinstance(error, PeerError):
            return error.code
        return ErrorCode.UNKNOWN_SERVER_ERROR
