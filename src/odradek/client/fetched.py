"""What a fetch brought for one partition, and how it becomes records. Pure: bytes in, records out.

A broker sends whole batches: offsets before the one asked for are dropped here, as are control batches and, for
read_committed, the batches of aborted transactions (KIP-98). Batches are decoded one by one, when they are wanted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.records.build import ControlType, read_control
from odradek.records.errors import CorruptBatchError
from odradek.records.header import LOG_APPEND_TIME, BatchHeader, iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import Header

CREATE_TIME = 0
APPEND_TIME = 1

_new_tuple = tuple.__new__


class ConsumerRecord(NamedTuple):
    """A record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # milliseconds since 1970
    timestamp_type: int  # 0: set by the producer, 1: by the broker on arrival
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int


class AbortedTransaction(NamedTuple):
    """A producer's records from this offset on, up to its abort marker, do not count."""

    producer_id: int
    first_offset: int


class _Part(NamedTuple):
    """A batch to decode: where it is, and the offset behind it and behind what is skipped after it."""

    at: int
    header: BatchHeader
    next_offset: int


class Fetched:
    """The batches of one answer for one partition, in order."""

    __slots__ = ("_data", "_parts", "_position", "next_offset", "partition", "size_bytes")

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        position: int,
        aborted: Iterable[AbortedTransaction] | None = None,
    ) -> None:
        """`position` is the offset that was asked for; `aborted` is None for read_uncommitted."""
        self.partition = partition
        self.size_bytes = len(data)
        self.next_offset = position  # what to ask for next
        self._data = data
        self._position = position
        self._parts: deque[_Part] = deque()
        aborts = None if aborted is None else _Aborts(aborted)
        for at, header in iter_headers(data):
            if header.next_offset <= position:
                continue
            self.next_offset = header.next_offset
            if header.is_control or (aborts is not None and aborts.covers(header)):
                if header.is_control and aborts is not None:
                    aborts.ended(header, data, at)
                if self._parts:
                    self._parts[-1] = self._parts[-1]._replace(next_offset=header.next_offset)
            else:
                self._parts.append(_Part(at, header, header.next_offset))
        if self.next_offset == position and len(data) > 0 and not self._parts:
            raise CorruptBatchError(f"{len(data)} bytes for offset {position} of {partition} hold no batch with it")

    def __bool__(self) -> bool:
        return bool(self._parts)

    def next_batch(self) -> tuple[list[ConsumerRecord], int]:
        """The records of the next batch, and the offset to go on from when they are consumed."""
        at, header, next_offset = self._parts.popleft()
        records = parse_batch(self._data, at, check_crc=True)
        if header.base_offset < self._position:
            records = [record for record in records if record.offset >= self._position]
        topic, partition = self.partition
        kind = APPEND_TIME if header.attributes & LOG_APPEND_TIME else CREATE_TIME
        epoch = header.leader_epoch
        make = _new_tuple  # what ConsumerRecord() does, less a call
        return [
            make(ConsumerRecord, (topic, partition, offset, timestamp, kind, key, value, headers, epoch))
            for offset, timestamp, key, value, headers in records
        ], next_offset


class _Aborts:
    """Follows, batch by batch, which producers are inside of an aborted transaction."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._open: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        self._advance(header)
        return header.is_transactional and header.producer_id in self._open

    def _advance(self, header: BatchHeader) -> None:
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            self._open.add(self._coming.popleft().producer_id)

    def ended(self, header: BatchHeader, data: memoryview, at: int) -> None:
        """Take note of a marker: an abort ends what was open, even if nothing of it lies before the marker here."""
        self._advance(header)
        for record in parse_batch(data, at):
            if read_control(record)[0] is ControlType.ABORT:
                self._open.discard(header.producer_id)
