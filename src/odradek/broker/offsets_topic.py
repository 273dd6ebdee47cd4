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
from odradek.groups.ledger import partition_of
from odradek.log.errors import LogError
from odradek.log.reader import LogReader
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.records.build import build_batch
from odradek.records.errors import RecordError
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord, Record
from odradek.wire.errors import ErrorCode, PeerError

_REPLICAS = 3  # where no number is set and there are as many voters
_REPLICAS_SECONDS_MAX = 5.0  # for the replicas in sync to have a record


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

    def leads(self, partition: int) -> bool:
        """Whether this broker looks after a partition's groups; before the topic is made, if it is the only one."""
        if OFFSETS_TOPIC not in self._broker.metadata.image.topics:
            return self._broker.stands_alone
        topic = self._broker.topics.get(OFFSETS_TOPIC)
        replica = None if topic is None else topic.partitions.get(partition)
        return replica is not None and replica.is_leader and not self._broker.is_fenced

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
        try:
            await make_offsets_topic(self._broker)
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
            partition.check_in_sync()
            end = partition.append(build_batch(records)).last_offset + 1
        except (LogError, RecordError) as error:
            self._broker.heed(error)
            future.set_exception(peer_error(error))
            return
        except PeerError as error:
            future.set_exception(error)
            return
        self._broker.written.add(partition.log)
        if partition.log.safe_offset >= end:
            partition.advanced()
        if partition.high_watermark >= end:
            future.set_result(None)
        else:
            self._broker.committed(partition, end).add_done_callback(partial(_pass_on, future))
            if partition.progress is not None:
                asyncio.get_running_loop().call_later(_REPLICAS_SECONDS_MAX, _give_up, future)

    def read(self, index: int) -> Iterator[Record]:
        """All records of one partition, from its start; PeerError where it is damaged."""
        if OFFSETS_TOPIC not in self._broker.topics:
            return
        partition = self._broker.replica(OFFSETS_TOPIC, index)
        if not partition.is_leader:
            raise partition.not_led()
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
    elif isinstance(error, PeerError):
        future.set_exception(error)
    else:
        future.set_exception(PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))


def _give_up(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(PeerError(ErrorCode.REQUEST_TIMED_OUT, "too few replicas have the group's records"))


async def make_offsets_topic(broker: Broker) -> None:
    """Make the topic if there is none; fine if somebody else is quicker."""
    config = broker.config
    overrides = {
        "cleanup.policy": "compact",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
        "remote.storage.enable": "false",  # also where it is the default: what is compacted is not archived
    }
    if OFFSETS_TOPIC in broker.topics:
        return
    try:
        await broker.create_topic(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            overrides,
            replication_factor=config.offsets_topic_replication_factor
            or min(_REPLICAS, len(broker.metadata.quorum.voters)),
            internal=True,
        )
    except PeerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def coordinator_of(broker: Broker, group_id: str) -> int:
    """Who looks after a group: the leader of its partition, -1 for nobody; the topic is made if there is none."""
    if OFFSETS_TOPIC not in broker.metadata.image.topics:
        if broker.stands_alone:
            return broker.node_id  # which makes the topic when there is something to write
        try:
            await make_offsets_topic(broker)
        except PeerError as error:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    topic = broker.metadata.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The topic of the groups is being made.")
    return topic.partitions[partition_of(group_id, topic.partition_count)].leader


class KnownTopics:
    """What group machines know of the broker's topics. Implements `groups.group.Topics`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def version(self) -> int:
        """A number that changes with any change of a topic."""
        return self._broker.metadata_version

    def partition_counts(self) -> Mapping[str, int]:
        """One more than the highest number of a partition of each topic."""
        return {name: topic.partition_count for name, topic in self._broker.metadata.image.topics.items()}

    def gaps(self, name: str) -> frozenset[int]:
        """The numbers below a topic's highest that have no partition."""
        topic = self._broker.metadata.image.topics.get(name)
        if topic is None or topic.partition_count == len(topic.partitions):
            return frozenset()
        return frozenset(range(topic.partition_count)) - topic.partitions.keys()

    def generation(self, where: TopicPartition) -> int | None:
        """How often a partition was deleted and made again; None if there is no such partition."""
        partition = self._broker.metadata.image.partition(*where)
        return None if partition is None else partition.generation

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic."""
        topic = self._broker.metadata.image.topics.get(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic with this id."""
        return self._broker.metadata.image.names.get(topic_id)
