"""Retention at the roll of a segment, for partitions with limits of their own (MyKafka); for all others, by the timer.

Kafka's topics keep what is older than `retention.ms` until the timer looks: whoever brings in old records can read them
until then. An append that rolls its log only leaves a note here; one that does not costs nothing. A closed segment can
go when it is flushed and below the high watermark: until then its partition is watched. Many rolls share a look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from odradek.broker.broker import Broker
from odradek.broker.topics import Partition
from odradek.log.log import PartitionLog
from odradek.model import Offset

_PAUSE_SECONDS = 0.05  # between looks, so that a log that rolls all the time does not keep the loop busy


class RollExpiry:
    """The partitions of one broker whose logs have rolled."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._watched: dict[Partition, Callable[[], None]] = {}  # not safe yet: what wakes us when it may be
        self._starts: dict[Partition, Offset] = {}  # what they must be safe up to, where a segment began
        self._later: dict[Partition, Offset] = {}  # where the last one has begun since
        self._due: set[Partition] = set()
        self._news = asyncio.Event()
        broker.hosting.on_roll = self._rolled

    def close(self) -> None:
        """Look no more."""
        self._broker.hosting.on_roll = None
        for partition in list(self._watched):
            self._forget(partition)

    async def due(self) -> list[Partition]:
        """Wait for partitions that retention should be applied to now."""
        await self._news.wait()
        await asyncio.sleep(_PAUSE_SECONDS)
        self._news.clear()
        due, self._due = list(self._due), set()
        return due

    def _rolled(self, log: PartitionLog) -> None:
        """A log has begun a segment; called from within an append."""
        partition = self._broker.hosting.partition_of(log)
        if partition is None or partition.role.limits is None:
            return
        if max(log.config.retention_bytes, log.config.retention_ms) < 0:
            return
        if partition in self._watched:
            self._later[partition] = log.next_offset
        else:
            self._starts[partition] = log.next_offset
            waker = self._watched[partition] = partial(self._look, partition)
            partition.wake_on_advance(waker)
            asyncio.get_running_loop().call_soon(self._flush, partition)  # when the append is done

    def _flush(self, partition: Partition) -> None:
        if partition in self._watched and partition.log.stopped is None:
            self._broker.flusher.request(partition.log)  # readers are woken when it has gone well
        self._look(partition)

    def _look(self, partition: Partition) -> None:
        start, log = self._starts.get(partition), partition.log
        if start is None:
            return
        if log.stopped is not None or self._broker.hosting.partition_of(log) is not partition:
            self._forget(partition)
        elif log.flushed_segment < start:
            if log.flushed_offset >= log.next_offset:
                self._broker.flusher.request(log)  # an earlier flush came before the roll
        elif partition.droppable_end >= start:
            self._due.add(partition)
            self._news.set()
            if partition in self._later:
                self._starts[partition] = self._later.pop(partition)  # it rolls all the time
            else:
                self._forget(partition)
        elif partition.topic.is_archived or partition.topic.is_channel:
            self._forget(partition)  # the store comes first, and the timer after it

    def _forget(self, partition: Partition) -> None:
        partition.forget(self._watched.pop(partition))
        self._starts.pop(partition)
        self._later.pop(partition, None)
