"""Batches of idempotent producers that were refused for the moment, so that those sent behind them can be, too.

A producer has up to five batches of a partition on their way. The first is refused (too few replicas are in sync, the
leadership has not come yet), and a moment later the second could be taken. It is not in order then, and whoever says
so makes librdkafka raise its epoch for all partitions at once and send again, under new numbers, what others may have
stored: records are there twice. Worse, of a producer that is not known here the second would be taken, and the first
never again. So the second gets the first one's answer: every client then sends both again, in their order.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.topics import Partition
from odradek.log.producers import BATCHES_REMEMBERED, follows
from odradek.records.buffers import ReadBuffer
from odradek.records.errors import RecordError
from odradek.records.header import NO_PRODUCER_ID, BatchHeader, read_header
from odradek.wire.errors import ErrorCode, PeerError

KEEP_MS = 30_000  # for as long as clients wait for an answer by default; then nothing is on its way any more
COUNT_MAX = 1_000  # producers in partitions; whoever sends more is no producer
_FOR_THE_MOMENT = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
_Key = tuple[str, int, int]  # topic, partition, producer id


class _Refused(NamedTuple):
    at_ms: int
    error: PeerError
    epoch: int
    sequences: tuple[int, ...]  # of the batches that were refused, the first of each


class Refusals:
    """What one broker has refused lately, the oldest first."""

    def __init__(self) -> None:
        self._by_producer: dict[_Key, _Refused] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def note(self, topic: str, index: int, data: ReadBuffer | None, error: PeerError, now_ms: int) -> None:
        """A batch was refused and not even looked at."""
        header = _sequenced(data)
        if header is None or error.code not in _FOR_THE_MOMENT:
            return
        key, sequence = (topic, index, header.producer_id), header.base_sequence
        before = self._by_producer.pop(key, None)
        sequences = [sequence]
        if before is not None and before.epoch == header.producer_epoch:
            sequences = [*(other for other in before.sequences if other != sequence), sequence][-BATCHES_REMEMBERED:]
        self._by_producer[key] = _Refused(now_ms, error, header.producer_epoch, tuple(sequences))
        if len(self._by_producer) > COUNT_MAX:
            del self._by_producer[next(iter(self._by_producer))]

    def check(self, partition: Partition, data: memoryview, now_ms: int) -> None:
        """Refuse a batch that leaves out one that was refused: what was said of that one holds for it."""
        self._forget(now_ms - KEEP_MS)
        header = _sequenced(data)
        if header is None:
            return
        refused = self._by_producer.get((*partition.tp, header.producer_id))
        if refused is None or refused.epoch != header.producer_epoch:
            return
        producers = partition.log.producers
        for sequence in refused.sequences:
            if follows(header.base_sequence, sequence) and producers.may_come(header, sequence):
                raise PeerError(refused.error.code, f"sequence {sequence} must come first: {refused.error.message}")

    def _forget(self, before_ms: int) -> None:
        noted = self._by_producer
        while noted and noted[oldest := next(iter(noted))].at_ms < before_ms:
            del noted[oldest]


def _sequenced(data: ReadBuffer | None) -> BatchHeader | None:
    """The head of an idempotent producer's batch."""
    try:
        header = read_header(data or b"")
    except RecordError:
        return None
    return None if header.producer_id == NO_PRODUCER_ID else header
