"""Channels that are not there: their messages are in the memory that all brokers share, but each has a real door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from odradek.broker.clients import TooManyFailuresError, UnknownClientError
from odradek.edge.rest import openapi
from odradek.edge.rest.guard import Guard
from odradek.edge.rest.rama import RamaDoor
from odradek.edge.routing import Request, Route, Router, json_page
from odradek.model import topic_name_problem
from odradek.objects.spec import ChannelSpec
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.edge.web import Visit, open_door

NOW = 1_700_000_000_000
SKEW_MS = 10_000
WINDOW_MS = 60_000
GRACE_MS = 30_000


class Message(NamedTuple):
    """A message as a channel gives it."""

    offset: int
    timestamp: int
    value: bytes | None


class FakeCluster:
    """What all brokers know. It is also the `Member` that guards ask."""

    def __init__(self) -> None:
        self.now = NOW
        self.secret: str | None = None
        self.cluster_id = "cluster"
        self.channels: dict[str, list[Message]] = {}
        self.created: dict[str, dict[str, Any]] = {}
        self.plain: set[str] = set()  # topics that are no channels
        self.keys: dict[str, dict[str, str]] = {}  # by topic: key -> client id
        self.leader = 1  # of all channels; -1: none
        self.doors: dict[int, tuple[str, int]] = {}
        self.served_by: list[int] = []
        self.fails: PeerError | None = None
        self.waits: list[int] = []
        self.is_throttling = False


class FakePort:
    """One broker: its channels and its clients."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id

    def leads(self, topic: str, partition: int) -> bool:
        return topic in self.cluster.channels and self.cluster.leader == self.node_id

    def leader_url(self, topic: str, partition: int) -> tuple[str, int] | None:
        return self.cluster.doors.get(self.cluster.leader)

    def is_channel(self, topic: str) -> bool:
        return topic in self.cluster.channels

    def now_ms(self) -> int:
        return self.cluster.now

    def times(self, topic: str) -> ChannelSpec:
        return ChannelSpec(topic, "0" * 32, WINDOW_MS, grace_ms=GRACE_MS, fifo=self.cluster.created[topic]["fifo"])

    def _serve(self) -> None:
        if self.cluster.fails is not None:
            raise self.cluster.fails
        self.cluster.served_by.append(self.node_id)

    async def create(self, name: str, *, store: str | None, fifo: bool, overrides: Mapping[str, str]) -> None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in self.cluster.channels:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS)
        self._serve()
        self.cluster.channels[name] = []
        self.cluster.created[name] = {"store": store, "fifo": fifo, "overrides": dict(overrides)}

    async def publish(self, name: str, records: Sequence[NewRecord]) -> tuple[int, int]:
        self._serve()
        log = self.cluster.channels[name]
        first = len(log)
        log += [Message(first + index, record.timestamp, record.value) for index, record in enumerate(records)]
        return first, len(log) - 1

    async def read(self, name: str, start_ms: int, skip: int, count: int, wait_ms: int) -> Sequence[Message]:
        self._serve()
        self.cluster.waits.append(wait_ms)
        log = sorted(self.cluster.channels[name], key=lambda each: (each.timestamp // WINDOW_MS, each.offset))
        return [message for message in log if message.timestamp >= start_ms][skip : skip + count]

    # Clients.

    async def find(self, name: str) -> object:
        if name not in self.cluster.channels and name not in self.cluster.plain:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return name

    async def register(self, topic: str, key: str | None) -> tuple[str, str, bool]:
        await self.find(topic)
        if key == "":
            raise PeerError(ErrorCode.INVALID_REQUEST, "a client_key is something")
        keys = self.cluster.keys.setdefault(topic, {})
        key = key or f"made-{len(keys)}"
        is_new = key not in keys
        return keys.setdefault(key, f"id{len(keys)}"), key, is_new

    async def revoke(self, topic: str, client_id: str) -> None:
        await self.find(topic)
        keys = self.cluster.keys.get(topic, {})
        if client_id not in keys.values():
            raise PeerError(ErrorCode.RESOURCE_NOT_FOUND, "there is no such client")
        self.cluster.keys[topic] = {key: each for key, each in keys.items() if each != client_id}

    async def check(self, topic: str, key: str | None, peer: str) -> None:
        assert peer.startswith("127.0.0.1:")
        await self.find(topic)
        if self.cluster.is_throttling:
            raise TooManyFailuresError("too many", 7)
        if key not in self.cluster.keys.get(topic, {}):
            raise UnknownClientError("register first")


class Brokers:
    """The doors of a cluster that is not there, and a client with a key."""

    def __init__(self, cluster: FakeCluster, visits: Mapping[int, Visit]) -> None:
        self.cluster = cluster
        self.visits = visits

    async def ask(
        self, method: str, path: str, content: object = None, *, key: str | None = "k", broker: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:  # fmt: skip
        shown = {**(headers or {}), **({} if key is None else {"client_key": key})}
        return await self.visits[broker].ask(method, path, content, shown)

    async def channel(self, name: str = "orders") -> None:
        assert (await self.ask("PUT", "/create_topic", {"topic": name}))[0] == 201
        assert (await self.ask("POST", f"/register/{name}", {"client_key": "k"}))[0] == 201


@asynccontextmanager
async def open_brokers(count: int = 1) -> AsyncIterator[Brokers]:
    """So many brokers, of which 1 leads all channels."""
    cluster = FakeCluster()
    visits: dict[int, Visit] = {}
    async with AsyncExitStack() as parts:
        for node_id in range(1, count + 1):
            port = FakePort(cluster, node_id)
            router = Router(Route("GET", "/metrics", _metrics), Route("GET", "/topic/{name}", _metrics))
            door = RamaDoor(port, port, Guard(cluster), router, SKEW_MS)
            parts.push_async_callback(door.close)
            router.add(*openapi.routes(router), *door.routes())
            visits[node_id] = await parts.enter_async_context(open_door(router, 8 << 20))
            cluster.doors[node_id] = ("127.0.0.1", visits[node_id].port)
        yield Brokers(cluster, visits)


def _metrics(_request: Request) -> Any:
    return json_page("something of another door")
