"""One record at a time, without Kafka's protocol: what the doors for people with curl need of a broker.

Implements `edge.rest.sskafka.SSKafkaPort`. Partitions count from 0 here; what is refused is refused by PeerError.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.archive_reading import read_chunk
from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition
from odradek.model import INTERNAL_TOPICS
from odradek.records.build import build_batch
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError

_READ_BYTES = 1 << 20  # at once
_ANSWER_BYTES = 8 << 20  # beyond this no more records are read; one that is larger is given alone

Found = tuple[int, "bytes | None", "bytes | None"]  # offset, key, payload


class PlainBroker:
    """A broker for single records."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def node_id(self) -> int:
        """Its number."""
        return self._broker.node_id

    @property
    def leader_id(self) -> int:
        """The active controller, -1 if none is known."""
        return self._broker.metadata.quorum.leader_id

    # Topics.

    async def create_topic(self, name: str, partitions: int) -> Sequence[tuple[int, Sequence[int]]]:
        """Make a topic with a replica on every broker; returns when a majority has it."""
        await self._broker.create_topic(name, partitions, {}, replication_factor="all")
        return self._partitions(name)

    def topics(self) -> Sequence[tuple[str, Sequence[tuple[int, Sequence[int]]]]]:
        """All topics but the brokers' own."""
        return [
            (name, self._partitions(name)) for name in self._broker.metadata.image.topics if name not in INTERNAL_TOPICS
        ]

    def _partitions(self, name: str) -> list[tuple[int, Sequence[int]]]:
        topic = self._broker.metadata.image.topics.get(name)
        return [] if topic is None else [(index, role.replicas) for index, role in sorted(topic.partitions.items())]

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when a majority has it."""
        await self._broker.delete_topic(name)

    def leads(self, topic: str, partition: int) -> bool:
        """Say whether this broker leads a partition; False for one that does not exist."""
        found = self._broker.topics.get(topic)
        replica = None if found is None else found.partitions.get(partition)
        return replica is not None and replica.is_leader and not self._broker.is_fenced

    def leader_url(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Where the HTTP door of a partition's leader is; None without a leader or a partition."""
        image = self._broker.metadata.image
        role = image.partition(topic, partition)
        leader = None if role is None else image.brokers.get(role.leader)
        return None if leader is None else leader.http

    # Records.

    async def produce(self, topic: str, partition: int, key: bytes | None, payload: bytes, acks: str) -> None:
        """Store a record: '0' returns at once, '1' when it is safe here, 'all' when every replica has it."""
        broker = self._broker
        found = broker.partition(topic, partition)
        if found.topic.is_internal:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the broker only")
        record = NewRecord(payload, key=key, timestamp=broker.clock.now_ms())
        try:
            end = found.append(build_batch([record])).last_offset + 1
            broker.written.add(found.log)
            if found.log.safe_offset >= end:
                found.advanced()
            else:
                broker.flusher.request(found.log)
            if acks == "1":
                await broker.flushed(found, end) if found.log.safe_offset < end else None
            elif acks != "0":
                await found.everywhere(end)
        except CLIENT_FAULTS as error:
            broker.heed(error)
            raise peer_error(error) from error

    async def consume(
        self, topic: str, partition: int, after_offset: int, max_records: int
    ) -> tuple[int, Sequence[Found]]:
        """Read records behind an offset, and the last offset read, or the given one if there are none."""
        found = self._broker.partition(topic, partition)
        try:
            records = await self._read(found, max(after_offset + 1, found.log_start), max_records)
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error
        return (records[-1][0] if records else after_offset), records

    async def _read(self, partition: Partition, offset: int, max_records: int) -> list[Found]:
        records: list[Found] = []
        size_bytes = 0
        while len(records) < max_records and offset < partition.high_watermark and size_bytes < _ANSWER_BYTES:
            chunk = await read_chunk(self._broker, partition, offset, _READ_BYTES, partition.high_watermark)
            if not chunk.data:
                break
            for at, header in iter_headers(chunk.data):
                if not header.is_control:
                    records += [
                        (each.offset, each.key, each.value)
                        for each in parse_batch(chunk.data, at)
                        if each.offset >= offset
                    ]
            offset = chunk.next_offset
            size_bytes += len(chunk.data)
        return records[:max_records]

    def acknowledge(self, topic: str, partition: int, broker_id: int, last_offset: int) -> None:
        """A replica has stored all up to an offset."""
        self._broker.partition(topic, partition).hear(broker_id, last_offset + 1)
