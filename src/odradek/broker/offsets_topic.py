"""`__consumer_offsets`: where the group coordinator's records are kept, compacted. Implements `groups.journal.Journal`.

The topic is made when the first record is to be written: a broker without groups has no trace of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from odradek.broker.broker import Broker
from odradek.broker.errors import peer_error
from odradek.broker.topics import OFFSETS_TOPIC
from odradek.log.errors import LogError
from odradek.log.reader import LogReader
from odradek.records.build import build_batch
from odradek.records.errors import RecordError
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord, Record
from odradek.wire.errors import ErrorCode, PeerError


class OffsetsTopic:
    """The coordinator's journal on the broker's own log."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: deque[tuple[int, Sequence[NewRecord], asyncio.Future[None]]] = deque()  # for the topic
        self._making: asyncio.Task[None] | None = None

    @property
    def partition_count(self) -> int:
        """As many as there are; before the topic is made, as many as it will have."""
        topic = self._broker.topics.get(OFFSETS_TOPIC)
        return topic.partition_count if topic is not None else self._broker.config.offsets_topic_num_partitions

    def append(self, partition: int, records: Sequence[NewRecord]) -> asyncio.Future[None]:
        """Write records, in the order of calls; the future is done when they are safe."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if OFFSETS_TOPIC in self._broker.topics and not self._waiting:
            self._write(partition, records, future)
            return future
        self._waiting.append((partition, records, future))
        if self._making is None:
            self._making = asyncio.create_task(self._make())
        return future

    async def _make(self) -> None:
        config = self._broker.config
        overrides = {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)}
        try:
            if OFFSETS_TOPIC not in self._broker.topics:
                await self._broker.create_topic(
                    OFFSETS_TOPIC, config.offsets_topic_num_partitions, overrides, internal=True
                )
            while self._waiting:
                self._write(*self._waiting.popleft())
        except PeerError as error:
            for _, _, future in self._waiting:
                future.set_exception(error)
            self._waiting.clear()
        finally:
            self._making = None

    def _write(self, index: int, records: Sequence[NewRecord], future: asyncio.Future[None]) -> None:
        try:
            partition = self._broker.partition(OFFSETS_TOPIC, index)
            end = partition.append(build_batch(records)).last_offset + 1
        except (LogError, RecordError) as error:
            self._broker.heed(error)
            future.set_exception(peer_error(error))
            return
        except PeerError as error:
            future.set_exception(error)
            return
        self._broker.written.add(partition.log)
        if partition.high_watermark >= end:
            partition.advanced()
            future.set_result(None)
        else:
            self._broker.flushed(partition, end).add_done_callback(partial(_pass_on, future))

    def read(self, index: int) -> Iterator[Record]:
        """All records of one partition, from its start; PeerError where it is damaged."""
        if OFFSETS_TOPIC not in self._broker.topics:
            return
        partition = self._broker.partition(OFFSETS_TOPIC, index)
        try:
            with LogReader(partition.log, partition.log_start) as reader:
                for chunk in reader:
                    for at, header in iter_headers(chunk.data):
                        if not header.is_control:
                            yield from parse_batch(chunk.data, at)
        except (LogError, RecordError) as error:
            raise peer_error(error) from error

    async def close(self) -> None:
        """Let what is under way end."""
        if self._making is not None:
            await asyncio.gather(self._making, return_exceptions=True)


def _pass_on(future: asyncio.Future[None], flushed: asyncio.Future[None]) -> None:
    error = flushed.exception()
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))


class KnownTopics:
    """What group machines know of the broker's topics. Implements `groups.group.Topics`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def version(self) -> int:
        """A number that changes with any change of a topic."""
        return self._broker.metadata_version

    def partition_counts(self) -> Mapping[str, int]:
        """How many partitions each topic has."""
        return {name: topic.partition_count for name, topic in self._broker.topics.items()}

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic."""
        topic = self._broker.topics.get(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic with this id."""
        topic = self._broker.topic_by_id(topic_id)
        return None if topic is None else topic.name
