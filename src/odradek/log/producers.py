"""What a log remembers of each idempotent or transactional producer (KIP-98): epoch, last sequences, open transaction.

A batch that comes again is recognised by its sequences and answered with its first offset; a gap is refused. The state
follows from the batch headers alone; snapshots in Kafka's `.snapshot` format spare a start the reading of everything.
A producer's last five batches are written as five entries, of which other readers keep the last.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.log.errors import OutOfOrderSequenceError, StaleProducerEpochError
from odradek.model import Offset
from odradek.records.crc import crc32c
from odradek.records.header import BatchHeader

BATCHES_REMEMBERED = 5  # as many requests as an idempotent producer has in flight
_SEQUENCES = 2**31  # sequence numbers go from 0 to 2**31 - 1 and begin again
_NO_OFFSET = -1
_NO_EPOCH = -1
_NO_SEQUENCE = -1

_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


def follows(sequence: int, other: int) -> bool:
    """Whether a sequence number comes after another one."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2


class Written(NamedTuple):
    """One batch of a producer, as it was written."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset


@dataclass(slots=True)
class Producer:
    """One producer id, as this log knows it."""

    epoch: int
    seen_ms: int  # when it last wrote, by our clock
    coordinator_epoch: int = _NO_EPOCH
    transaction_start: Offset = _NO_OFFSET  # first offset of its open transaction
    written: deque[Written] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def next_sequence(self) -> int | None:
        """With which its next batch must begin; None if any will do."""
        return (self.written[-1].last_sequence + 1) % _SEQUENCES if self.written else None


class Producers:
    """All producers of one log, the least recently seen first."""

    def __init__(self, *, expiration_ms: int, count_max: int) -> None:
        self._expiration_ms = expiration_ms
        self._count_max = count_max
        self._by_id: dict[int, Producer] = {}
        self._open: dict[int, Offset] = {}  # where the transactions begin that are not ended: mostly there are none

    def __len__(self) -> int:
        return len(self._by_id)

    def items(self) -> list[tuple[int, Producer]]:
        """Each producer id with its state."""
        return list(self._by_id.items())

    def clear(self) -> None:
        """Forget all."""
        self._by_id.clear()
        self._open.clear()

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the oldest open transaction begins: readers of committed data stop there."""
        return min(self._open.values()) if self._open else None

    def check(self, header: BatchHeader) -> Written | None:
        """Give the earlier batch that this one repeats, or None for a new one; refuse gaps and old epochs."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return None  # a state that expired: the log cannot know better than the producer
        name = f"producer {header.producer_id}"
        if header.producer_epoch < producer.epoch:
            raise StaleProducerEpochError(f"{name} has epoch {producer.epoch} here, {header.producer_epoch} is fenced")
        if header.is_control:
            return None
        base, last = header.base_sequence, header.last_sequence
        if header.producer_epoch > producer.epoch:
            if base != 0:
                raise OutOfOrderSequenceError(f"{name} begins epoch {header.producer_epoch} with {base}, not 0")
            return None
        for written in producer.written:
            if written.base_sequence == base and written.last_sequence == last:
                return written
        expected = producer.next_sequence
        if base != expected and expected is not None:
            raise OutOfOrderSequenceError(f"{name} sent sequence {base}, {expected} was expected")
        return None

    def may_come(self, header: BatchHeader, sequence: int) -> bool:
        """Whether a batch's producer could go on with this sequence, in the batch's epoch."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return True
        if header.producer_epoch != producer.epoch:
            return header.producer_epoch > producer.epoch and sequence == 0
        return producer.next_sequence in (None, sequence)

    def update(self, header: BatchHeader, now_ms: int, coordinator_epoch: int = _NO_EPOCH) -> None:
        """Take note of a batch that is in the log now."""
        producer = self._by_id.pop(header.producer_id, None)
        if producer is None or header.producer_epoch > producer.epoch:
            start = producer.transaction_start if producer is not None else _NO_OFFSET
            producer = Producer(header.producer_epoch, now_ms, transaction_start=start)
        self._by_id[header.producer_id] = producer
        producer.seen_ms = now_ms
        if header.is_control:
            producer.transaction_start = _NO_OFFSET
            producer.coordinator_epoch = coordinator_epoch
            self._open.pop(header.producer_id, None)
        else:
            if header.is_transactional and producer.transaction_start == _NO_OFFSET:
                producer.transaction_start = self._open[header.producer_id] = header.base_offset
            producer.written.append(
                Written(header.base_sequence, header.last_sequence, header.base_offset, header.last_offset)
            )
        if len(self._by_id) > self._count_max:
            self._evict_one()

    def _evict_one(self) -> None:
        for producer_id, producer in self._by_id.items():
            if producer.transaction_start == _NO_OFFSET:
                del self._by_id[producer_id]
                return

    def expire(self, now_ms: int) -> None:
        """Forget producers that have been silent for too long; an open transaction keeps its own."""
        limit = now_ms - self._expiration_ms
        for producer_id, producer in self.items():
            if producer.seen_ms >= limit:
                return  # the rest was seen later
            if producer.transaction_start == _NO_OFFSET:
                del self._by_id[producer_id]

    def snapshot(self) -> bytes:
        """All of it as bytes, in Kafka's format."""
        entries = [
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                written.last_sequence,
                written.last_offset,
                written.last_offset - written.base_offset,
                producer.seen_ms,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            for producer_id, producer in self._by_id.items()
            for written in producer.written or [_NOTHING_WRITTEN]
        ]
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _PREFIX.pack(_VERSION, crc32c(body)) + body

    def restore(self, data: bytes) -> bool:
        """Take a snapshot's state; False if the bytes are not a whole snapshot."""
        if len(data) < _PREFIX.size + _COUNT.size:
            return False
        version, crc = _PREFIX.unpack_from(data)
        body = data[_PREFIX.size :]
        (count,) = _COUNT.unpack_from(body)
        if version != _VERSION or crc != crc32c(body) or len(body) != _COUNT.size + count * _ENTRY.size:
            return False
        self.clear()
        for producer_id, epoch, sequence, last, delta, seen, coordinator, start in _ENTRY.iter_unpack(
            body[_COUNT.size :]
        ):
            producer = self._by_id.setdefault(producer_id, Producer(epoch, seen, coordinator, start))
            if sequence != _NO_SEQUENCE:
                producer.written.append(Written((sequence - delta) % _SEQUENCES, sequence, last - delta, last))
            if producer.transaction_start != _NO_OFFSET:
                self._open[producer_id] = producer.transaction_start
        return True


_NOTHING_WRITTEN = Written(_NO_SEQUENCE, _NO_SEQUENCE, _NO_OFFSET, _NO_OFFSET)
