"""Writing plain values: batches are made of them, appended, and waited for as acks=all promises.

For doors whose clients send values and no batches: Katar's (seed 000) and Eeylops' (seed 004). Partitions are those
that this broker leads; what is refused is refused by PeerError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition
from odradek.model import TopicPartition
from odradek.records.build import build_values
from odradek.records.header import HEADER_BYTES, NO_TIMESTAMP
from odradek.wire.errors import ErrorCode, PeerError

_RECORD_BYTES_MORE = 32  # what a record takes at most beside its key and value
_REPLICAS_SECONDS_MAX = 30.0  # for all replicas in sync to have what was written


class Prepared(NamedTuple):
    """Batches that can be appended."""

    partition: Partition
    data: bytearray
    timestamp: int


class Written(NamedTuple):
    """Where values have gone, one behind the other."""

    place: TopicPartition
    first_offset: int
    value_count: int
    timestamp: int


class ValueWriter:
    """Writes values into the partitions that a broker leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def prepare(self, place: TopicPartition, values: Sequence[bytes], key: bytes | None) -> Prepared:
        """Make batches of values, if the partition would take them now; nothing is written yet."""
        partition = self._broker.partition(*place)
        if partition.topic.is_internal:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{place.topic} is written by the broker only")
        config = partition.log.config
        if config.compacts and key is None:
            raise PeerError(ErrorCode.INVALID_RECORD, f"topic {place.topic!r} is compacted: its records need a key")
        partition.check_in_sync()
        now_ms = self._broker.clock.now_ms()
        size_max = config.max_message_bytes
        each = _RECORD_BYTES_MORE + (0 if key is None else len(key))
        if HEADER_BYTES + sum(map(len, values)) + each * len(values) <= size_max:
            return Prepared(partition, build_values(values, key, now_ms), now_ms)
        data = bytearray()
        for group in _grouped(values, each, size_max - HEADER_BYTES):
            batch = build_values(group, key, now_ms)
            if len(batch) > size_max:
                raise PeerError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a payload of {len(group[0])} bytes is too large for topic {place.topic!r}: a batch may have "
                    f"max.message.bytes = {size_max}",
                )
            data += batch
        return Prepared(partition, data, now_ms)

    def append(self, prepared: Prepared) -> tuple[Written, asyncio.Future[None]]:
        """Write what was prepared; the future is done when it is as safe as acks=all promises."""
        broker, partition = self._broker, prepared.partition
        try:
            base, last, append_time, _ = partition.append(prepared.data)
        except CLIENT_FAULTS as error:
            broker.heed(error)
            raise peer_error(error) from error
        broker.written.add(partition.log)
        timestamp = prepared.timestamp if append_time == NO_TIMESTAMP else append_time
        written = Written(partition.tp, base, last - base + 1, timestamp)
        return written, broker.committed(partition, last + 1)

    async def safe(self, place: TopicPartition, future: asyncio.Future[None]) -> None:
        """Wait for what `append` promised."""
        waits_for_others = len(self._broker.metadata.image.brokers) > 1
        try:
            async with asyncio.timeout(_REPLICAS_SECONDS_MAX) if waits_for_others else nullcontext():
                await future
        except TimeoutError:
            raise PeerError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{place} has the records, but too few replicas do: whether they stay is not known",
            ) from None
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error


def _grouped(values: Sequence[bytes], each_more: int, size_max: int) -> list[list[bytes]]:
    """Values in groups that a batch can hold; one that is too large for any stands alone."""
    groups: list[list[bytes]] = []
    size_bytes = size_max + 1
    for value in values:
        value_bytes = len(value) + each_more
        if size_bytes + value_bytes > size_max:
            groups.append([])
            size_bytes = 0
        groups[-1].append(value)
        size_bytes += value_bytes
    return groups
