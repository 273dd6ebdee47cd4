"""A cluster that is not there: its brokers share their memory, but each has a real HTTP door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from odradek.edge.rest import openapi
from odradek.edge.rest.guard import Guard
from odradek.edge.rest.sskafka import SSKafkaDoor
from odradek.edge.routing import Router
from odradek.model import TopicPartition, topic_name_problem
from odradek.wire.errors import ErrorCode, PeerError
from tests.edge.web import Visit, open_door

Record = tuple[int, bytes | None, bytes | None]


class FakeCluster:
    """What all brokers know."""

    def __init__(self, brokers: int) -> None:
        self.brokers = list(range(1, brokers + 1))
        self.leader_id = 1
        self.secret: str | None = None
        self.cluster_id = "cluster"
        self.topics: dict[str, int] = {}
        self.records: dict[TopicPartition, list[Record]] = {}
        self.leaders: dict[TopicPartition, int] = {}  # where it is not the cluster's leader; -1: none
        self.doors: dict[int, tuple[str, int]] = {}
        self.acks: list[str] = []
        self.acknowledged: list[tuple[TopicPartition, int, int]] = []
        self.served_by: list[int] = []
        self.fails: PeerError | None = None  # what every call meets
        self.everywhere = asyncio.Event()  # all replicas have all records
        self.everywhere.set()
        self.waiting = 0

    def replicas(self) -> list[int]:
        """The leader's replica comes first, as in the real one."""
        return sorted(self.brokers, key=lambda broker: broker != self.leader_id)

    def partitions(self, name: str) -> list[tuple[int, list[int]]]:
        return [(partition, self.replicas()) for partition in range(self.topics[name])]

    def leader_of(self, place: TopicPartition) -> int:
        exists = place.partition in range(self.topics.get(place.topic, 0))
        return self.leaders.get(place, self.leader_id) if exists else -1


class FakePort:
    """One broker."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id

    @property
    def leader_id(self) -> int:
        return self.cluster.leader_id

    @property
    def secret(self) -> str | None:
        return self.cluster.secret

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    def _fail(self) -> None:
        if self.cluster.fails is not None:
            raise self.cluster.fails

    async def create_topic(self, name: str, partitions: int) -> list[tuple[int, list[int]]]:
        self._fail()
        if name in self.cluster.topics:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        problem = topic_name_problem(name)
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if partitions > 1000:
            raise PeerError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions are too many")
        self.cluster.topics[name] = partitions
        return self.cluster.partitions(name)

    def topics(self) -> list[tuple[str, list[tuple[int, list[int]]]]]:
        return [(name, self.cluster.partitions(name)) for name in self.cluster.topics]

    async def delete_topic(self, name: str) -> None:
        self._fail()
        if self.cluster.topics.pop(name, None) is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def leads(self, topic: str, partition: int) -> bool:
        return self.cluster.leader_of(TopicPartition(topic, partition)) == self.node_id

    def leader_url(self, topic: str, partition: int) -> tuple[str, int] | None:
        return self.cluster.doors.get(self.cluster.leader_of(TopicPartition(topic, partition)))

    async def produce(self, topic: str, partition: int, key: bytes | None, payload: bytes, acks: str) -> None:
        self._fail()
        log = self.cluster.records.setdefault(TopicPartition(topic, partition), [])
        log.append((len(log), key, payload))
        self.cluster.acks.append(acks)
        self.cluster.served_by.append(self.node_id)
        if acks == "all":
            self.cluster.waiting += 1
            try:
                await self.cluster.everywhere.wait()
            finally:
                self.cluster.waiting -= 1

    async def consume(
        self, topic: str, partition: int, after_offset: int, max_records: int
    ) -> tuple[int, Sequence[Record]]:
        self._fail()
        log = self.cluster.records.get(TopicPartition(topic, partition), [])
        found = [record for record in log if record[0] > after_offset][:max_records]
        self.cluster.served_by.append(self.node_id)
        return (found[-1][0] if found else after_offset), found

    def acknowledge(self, topic: str, partition: int, broker_id: int, last_offset: int) -> None:
        self.cluster.acknowledged.append((TopicPartition(topic, partition), broker_id, last_offset))


class Brokers:
    """The doors of a cluster that is not there."""

    def __init__(self, cluster: FakeCluster, visits: Mapping[int, Visit]) -> None:
        self.cluster = cluster
        self.visits = visits

    def listed(self, *broker_ids: int) -> str:
        """The brokers as `-b` takes them; all without any."""
        return ",".join(f"{broker}@127.0.0.1:{self.visits[broker].port}" for broker in broker_ids or self.visits)

    async def ask(
        self, broker: int, method: str, path: str, content: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        return await self.visits[broker].ask(method, path, content, headers)


@asynccontextmanager
async def open_brokers(count: int = 3) -> AsyncIterator[Brokers]:
    """So many brokers, of which 1 is the leader."""
    cluster = FakeCluster(count)
    visits: dict[int, Visit] = {}
    async with AsyncExitStack() as parts:
        for node_id in cluster.brokers:
            port = FakePort(cluster, node_id)
            door = SSKafkaDoor(port, Guard(port))
            parts.push_async_callback(door.close)
            router = Router(*door.routes())
            router.add(*openapi.routes(router))
            visits[node_id] = await parts.enter_async_context(open_door(router))
            cluster.doors[node_id] = ("127.0.0.1", visits[node_id].port)
        yield Brokers(cluster, visits)
