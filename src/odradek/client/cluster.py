"""What a client knows of the cluster: its nodes, its topics, who leads which partition; and how to ask them.

Keeps the answers of Metadata until somebody finds that they are out of date and calls `refresh`. It retries where the
answer does not matter to the caller (any broker will do); all else is retried by those who know what they asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from odradek.client.address import Address
from odradek.client.connection import Connection
from odradek.client.errors import BrokerUnavailableError, RequestError, UnknownTopicError, check
from odradek.client.partitioner import shown_partitions
from odradek.client.pool import Channel, Pool
from odradek.client.retry import retry
from odradek.clock import Clock
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import metadata
from odradek.wire.schema import Message

NO_TOPIC_ID = bytes(16)
UNKNOWN_TOPIC_GRACE_MS = 1_000  # brokers learn of a new topic one after the other

Answer = TypeVar("Answer", bound=Message)


class Node(NamedTuple):
    """A broker of the cluster."""

    node_id: int
    address: Address
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """Who holds a partition."""

    partition: int
    leader: int  # -1: nobody at the moment
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the last Metadata answer showed it."""

    name: str
    topic_id: bytes  # zeros where the broker gives none (before Kafka 2.8)
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)
    is_internal: bool = False
    error: int = 0

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a client waits."""

    total_ms: int  # for an operation, with all its retries
    request_ms: int  # for the answer to one request
    connect_ms: int
    metadata_age_ms: int  # until it looks whether topics have changed


class Cluster:
    """Nodes, topics and requests to them. Used on one event loop."""

    def __init__(self, bootstrap: list[Address], client_id: str, timeouts: Timeouts, clock: Clock) -> None:
        self.timeouts = timeouts
        self.clock = clock
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.pool = Pool(client_id, connect_timeout_ms=timeouts.connect_ms)
        self._bootstrap = bootstrap
        self._names: dict[bytes, str] = {}  # of topics, by their ids
        self._refreshed: dict[str | None, float] = {}  # when a topic's metadata was asked for; None for all topics
        self._refreshing = asyncio.Lock()
        self._channels = 0

    def new_channel(self, purpose: str) -> Channel:
        """A name for connections that nobody else uses."""
        self._channels += 1
        return f"{purpose}-{self._channels}"

    # Asking.

    async def ask(
        self,
        node_id: int,
        message: Message,
        answer: type[Answer],
        *,
        channel: Channel = "",
        timeout_ms: int | None = None,
        version_max: int | None = None,
    ) -> Answer:
        """Send one request to one node, once."""
        connection = await self.connection(node_id, channel)
        wait_ms = self.timeouts.request_ms if timeout_ms is None else timeout_ms
        return await connection.request(message, answer, timeout_ms=wait_ms, version_max=version_max)

    async def connection(self, node_id: int, channel: Channel = "") -> Connection:
        """The connection to a node."""
        node = self.nodes.get(node_id)
        if node is None:
            raise RequestError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"asking node {node_id}", "it is not known at the moment"
            )
        return await self.pool.get(node.address, channel)

    async def ask_any(self, message: Message, answer: type[Answer]) -> Answer:
        """Send one request to whichever broker can be reached."""
        connection = await self._any_connection()
        return await connection.request(message, answer, timeout_ms=self.timeouts.request_ms)

    async def ask_controller(self, message: Message, answer: type[Answer]) -> Answer:
        """Send one request to the controller, or where there is none to any broker, which passes it on."""
        if self.controller_id in self.nodes:
            return await self.ask(self.controller_id, message, answer)
        return await self.ask_any(message, answer)

    async def _any_connection(self) -> Connection:
        known = [node.address for node in self.nodes.values()]
        candidates = list(dict.fromkeys([*random.sample(known, len(known)), *self._bootstrap]))
        failures: list[BrokerUnavailableError] = []
        for address in candidates:
            try:
                return await self.pool.get(address)
            except BrokerUnavailableError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(f"{failure.address}: {failure.reason}" for failure in failures)
        raise BrokerUnavailableError(
            ", ".join(str(address) for address in candidates), f"all of them failed ({reasons})"
        )

    # Metadata.

    async def refresh(self, topics: Collection[str] | None = (), *, create: bool = False) -> None:
        """Ask for the metadata of some topics (None: all), once; callers that come at the same time share an answer."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        wanted: Collection[str | None] = [None] if topics is None else list(topics) or [""]
        async with self._refreshing:
            if all(self._refreshed.get(topic, -1.0) >= asked_at for topic in wanted):
                return
            started_at = loop.time()
            await self._fetch_metadata(topics, create)
            self._refreshed.update((topic, started_at) for topic in wanted)

    async def _fetch_metadata(self, topics: Collection[str] | None, create: bool) -> None:
        request = metadata.Request(
            topics=None if topics is None else [metadata.RequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        )
        response = await self.ask_any(request, metadata.Response)
        check(response.error_code, "asking for metadata")
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self.nodes = {
                broker.node_id: Node(broker.node_id, Address(broker.host, broker.port), broker.rack)
                for broker in response.brokers
            }
        if topics is None:
            self.topics.clear()
            self._names.clear()
        for topic in response.topics:
            if topic.name is not None:
                self._learn(topic.name, topic)

    def _learn(self, name: str, topic: metadata.ResponseTopic) -> None:
        known = self.topics.get(name)
        if known is not None and known.topic_id != topic.topic_id:
            self._names.pop(known.topic_id, None)
        partitions = {
            partition.partition_index: PartitionInfo(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
            if partition.replica_nodes or partition.leader_id >= 0  # else it is but a gap in the numbers
        }
        self.topics[name] = TopicInfo(name, topic.topic_id, partitions, topic.is_internal, topic.error_code)
        if topic.topic_id != NO_TOPIC_ID:
            self._names[topic.topic_id] = name

    async def topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> TopicInfo:
        """A topic's partitions, from the cache if it is there; `create` lets the broker make the topic."""
        info = self.topics.get(name)
        if info is not None and info.error == 0:
            return info
        grace_ends = asyncio.get_running_loop().time() + UNKNOWN_TOPIC_GRACE_MS / 1000

        async def attempt() -> TopicInfo:
            await self.refresh([name], create=create)
            found = self.topics.get(name)
            if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                patient = create or asyncio.get_running_loop().time() < grace_ends
                raise UnknownTopicError(name, retriable=patient)
            check(found.error, f"topic {name}")
            return found

        wait_ms = self.timeouts.total_ms if timeout_ms is None else timeout_ms
        return await retry(attempt, what=f"topic {name}", timeout_ms=wait_ms)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic whose id an answer has."""
        return self._names.get(bytes(topic_id))

    def topic_id(self, name: str) -> bytes:
        """The id of a topic, zeros if it is not known."""
        info = self.topics.get(name)
        return NO_TOPIC_ID if info is None else info.topic_id

    def leader(self, partition: TopicPartition) -> int:
        """The node that leads a partition by what is known; a RequestError that says what is not."""
        topic = self.topics.get(partition.topic)
        if topic is None or topic.error:
            raise RequestError(
                topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {partition.topic}"
            )
        info = topic.partitions.get(partition.partition)
        if info is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {partition.partition} of topic {partition.topic}",
                f"the topic has {shown_partitions(topic.partitions)}",
            )
        if info.leader not in self.nodes:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        return info.leader

    async def by_leader(
        self, partitions: Collection[TopicPartition], *, refresh: bool = False
    ) -> dict[int, list[TopicPartition]]:
        """Sort partitions by the node that leads them, asking for metadata first where it is missing."""
        topics = {partition.topic for partition in partitions}
        missing = {name for name in topics if refresh or name not in self.topics or self.topics[name].error}
        if missing:
            await self.refresh(missing)
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self.leader(partition), []).append(partition)
        return grouped

    async def close(self) -> None:
        """Close all connections."""
        await self.pool.close()
