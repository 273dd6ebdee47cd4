"""Partitions as MyKafka's door (seed 001) needs them of a broker: made one by one, read message by message, described.

Reading and offsets are for partitions that this broker leads, making and deleting for any broker. What is refused is
refused by PeerError. How messages are stored stands in `broker.mykafka_sending`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import NamedTuple

from odradek.broker.archive_reading import read_chunk
from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition
from odradek.controller.image import NO_LEADER, PartitionLimits, TopicImage
from odradek.log.segment import Chunk
from odradek.model import INTERNAL_TOPICS, Offset, TopicPartition, topic_name_problem
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import Record
from odradek.settings_rows import SETTINGS
from odradek.wire.errors import ErrorCode, PeerError

SEGMENT_BYTES_DEFAULT = 4096  # of this door, where the caller says nothing
_SEGMENT_BYTES_MAX = SETTINGS["segment.bytes"].high or 0
_TTL_SECONDS_MAX = (2**63 - 1) // 1000
_BATCHES_KEPT = 8  # with many messages, lately read: whoever reads them one by one comes back
_BATCH_BYTES_MAX = 8 << 20  # of one that is kept, in memory
_RECORD_BYTES = 100  # what a message takes in memory beside its bytes, about
_PARTITIONS_AT_ONCE = 200  # described without a pause


class NoMessageError(PeerError):
    """There is no message at this offset: not yet, or it is no message."""


class Offsets(NamedTuple):
    """How far a partition reaches."""

    first: Offset
    commit: Offset  # of the last message that can be read; one below `first` if there is none
    last: Offset


class Description(NamedTuple):
    """A partition, what it was told, and how far it reaches, if this broker leads it."""

    place: TopicPartition
    limits: PartitionLimits
    leader: int
    offsets: Offsets | None


class MyKafkaBroker:
    """A broker for MyKafka's door."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lately: OrderedDict[tuple[object, ...], list[Record]] = OrderedDict()

    # Finding.

    async def find(self, place: TopicPartition, timeout_s: float) -> int:
        """Who leads a partition, -1: nobody. One that is not known here may have been made elsewhere a moment ago."""
        role = self._broker.metadata.image.partition(*place)
        if role is None and place.topic not in INTERNAL_TOPICS:
            self._check_place(place)
            if not self._broker.stands_alone:
                await self._broker.change("find-topic", {"name": place.topic}, max(1, int(timeout_s * 1000)))
            role = self._broker.metadata.image.partition(*place)
        if role is None or place.topic in INTERNAL_TOPICS:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place}")
        return role.leader

    def leads(self, place: TopicPartition) -> bool:
        """Say whether this broker leads a partition, or would if its files could be used."""
        found = self._broker.topics.get(place.topic)
        replica = None if found is None else found.partitions.get(place.partition)
        if replica is None:
            role = self._broker.metadata.image.partition(*place)
            return place in self._broker.store.offline and role is not None and role.leader == self._broker.node_id
        return replica.is_leader and not self._broker.is_fenced

    def address(self, node_id: int) -> tuple[str, int] | None:
        """Where another broker's gRPC door is; None if it has none, or there is no such broker."""
        broker = self._broker.metadata.image.brokers.get(node_id)
        return None if broker is None or node_id == self._broker.node_id else broker.grpc

    def offline_reason(self, place: TopicPartition) -> Exception | None:
        """Why a partition's files cannot be used; None if they can."""
        return self._broker.store.offline.get(place)

    def _check_place(self, place: TopicPartition) -> None:
        """Refuse what can be no partition, whatever is asked of it."""
        problem = topic_name_problem(place.topic)
        if problem is None and not 0 <= place.partition < self._broker.config.partitions_max:
            problem = f"a partition's number is from 0 to {self._broker.config.partitions_max - 1} (partitions.max)"
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)

    # Making and deleting.

    async def create(self, place: TopicPartition, limits: PartitionLimits, timeout_s: float) -> None:
        """Make a partition, and its topic if it is the first; a segment size of 0 is the door's default."""
        self._check_place(place)
        segment_bytes = limits.segment_bytes or SEGMENT_BYTES_DEFAULT
        if not 0 < segment_bytes <= _SEGMENT_BYTES_MAX:
            raise _invalid(f"max_segment_size must be from 1 to {_SEGMENT_BYTES_MAX}; 0 is {SEGMENT_BYTES_DEFAULT}")
        if limits.partition_bytes < 0 or not 0 <= limits.ttl_seconds <= _TTL_SECONDS_MAX:
            raise _invalid("max_partition_size and segment_ttl cannot be negative; 0 is without limit")
        limits = limits._replace(segment_bytes=segment_bytes)
        await self._broker.create_partition(*place, limits, timeout_ms=max(1, int(timeout_s * 1000)))

    async def delete(self, place: TopicPartition, timeout_s: float) -> None:
        """Take a partition away, and its topic if it was the last."""
        self._check_place(place)
        await self._broker.delete_partition(*place, timeout_ms=max(1, int(timeout_s * 1000)))

    async def delete_topic(self, name: str, timeout_s: float) -> None:
        """Take all partitions of a topic away; one that does not exist is as it should be."""
        self._check_place(TopicPartition(name, 0))
        try:
            await self._broker.delete_topic(name, timeout_ms=max(1, int(timeout_s * 1000)))
        except PeerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    # Reading.

    def offsets(self, place: TopicPartition) -> Offsets:
        """How far a partition reaches that this broker leads."""
        partition = self._broker.partition(*place)
        if not partition.is_settled:
            raise PeerError(ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader does not know yet what all replicas have")
        return _offsets(partition)

    async def read(self, place: TopicPartition, offset: Offset) -> bytes:
        """The message at an offset; NoMessageError if there is none, OFFSET_OUT_OF_RANGE below the first."""
        partition = self._broker.partition(*place)
        if offset < partition.log_start:
            raise PeerError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{place} begins at offset {partition.log_start}; {offset} is below it"
            )
        if offset >= partition.high_watermark:
            if not partition.is_settled:
                raise PeerError(ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader does not know yet what all replicas have")
            raise NoMessageError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{place} has no message at offset {offset} yet")
        try:
            record = self._record(partition, await self._chunk(partition, offset), offset)
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error
        if record is None:
            raise NoMessageError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{place} has no message at offset {offset}: it was compacted away, or is a transaction's mark",
            )
        return record.value or b""

    async def _chunk(self, partition: Partition, offset: Offset) -> Chunk:
        """The batch with an offset: from memory here, from the disk or the archive in a thread."""
        end = partition.high_watermark
        if not partition.is_in_archive_only(offset):
            chunk = partition.log.read(offset, 1, upto=end, nowait=True)
            if chunk is not None:
                return chunk
        return await read_chunk(self._broker, partition, offset, 1, end)

    def _record(self, partition: Partition, chunk: Chunk, offset: Offset) -> Record | None:
        for at, header in iter_headers(chunk.data):
            if header.base_offset > offset or header.is_control:
                return None
            if header.last_offset < offset:
                continue
            key = (partition.topic_id, partition.index, header)  # its CRC is part of the header
            records = self._lately.get(key)
            if records is None:
                records = parse_batch(chunk.data, at)
                if header.record_count > 1 and _size_bytes(records) <= _BATCH_BYTES_MAX:
                    self._lately[key] = records
                    if len(self._lately) > _BATCHES_KEPT:
                        self._lately.popitem(last=False)
            index = offset - header.base_offset
            if header.record_count == header.last_offset - header.base_offset + 1:
                return records[index]
            return next((record for record in records if record.offset == offset), None)
        return None

    # Describing.

    async def describe(self) -> AsyncIterator[Description]:
        """All partitions of all topics but the brokers' own, with offsets of those that this broker leads."""
        count = 0
        for name, topic in sorted(self._broker.metadata.image.topics.items()):
            if name in INTERNAL_TOPICS:
                continue
            common = self._topic_limits(topic)
            for index, role in sorted(topic.partitions.items()):
                count += 1
                if count % _PARTITIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                place = TopicPartition(name, index)
                leads = self.leads(place) and self.offline_reason(place) is None
                offsets = _offsets(self._broker.partition(*place)) if leads else None
                yield Description(place, role.limits or common, self._broker.node_id if leads else role.leader, offsets)

    def _topic_limits(self, topic: TopicImage) -> PartitionLimits:
        """The settings of a topic in MyKafka's words: 0 is without limit."""
        config = self._broker.settings.log_config(topic.configs)
        return PartitionLimits(
            config.segment_bytes,
            max(config.retention_bytes, 0),
            0 if config.retention_ms < 0 else -(-config.retention_ms // 1000),
        )

    def peers(self) -> list[int]:
        """The other brokers that lead something."""
        image = self._broker.metadata.image
        leaders = {role.leader for topic in image.topics.values() for role in topic.partitions.values()}
        return sorted(leaders - {NO_LEADER, self._broker.node_id})


def _offsets(partition: Partition) -> Offsets:
    return Offsets(partition.log_start, partition.high_watermark - 1, partition.log_end - 1)


def _size_bytes(records: list[Record]) -> int:
    """What messages take in memory, about."""
    return sum(_RECORD_BYTES + len(each.value or b"") + len(each.key or b"") for each in records)


def _invalid(text: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_CONFIG, text)
