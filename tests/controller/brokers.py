"""Controllers and registrations of several brokers in one process, as their HTTP doors would connect them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from odradek.clock import SystemClock
from odradek.controller.changes import Changes
from odradek.controller.config import ControllerConfig
from odradek.controller.controller import Controller
from odradek.controller.image import ClusterImage
from odradek.controller.registration import Identity, Registration
from odradek.disk.memory import MemoryDisk
from odradek.wire.errors import PeerError
from tests.client.support import until
from tests.controller.support import Net, NetTransport, quorum_config

SESSION_MS = 2_000


def controller_config(**changes: Any) -> ControllerConfig:
    settings: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 50,
        "default_replication_factor": 0,
        "leader_rebalance_interval_ms": 0,
        "partitions_max": 1_000,
    }
    return ControllerConfig(**(settings | changes))


class LinkedNet(Net):
    """A net that knows the connections of registrations."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[BrokerLink] = []
        self.watchers: dict[int, Callable[[Callable[[], None]], None]] = {}


class BrokerLink:
    """A registration's connection; `drop` is what the end of a process does to it."""

    def __init__(self, net: LinkedNet, own: int, node: int, on_lost: Callable[[], None]) -> None:
        self._transport = NetTransport(net, own)
        self._net = net
        self._node = node
        self._on_lost = on_lost
        self._told: Callable[[], None] | None = None
        net.links.append(self)

    async def post(self, path: str, body: Mapping[str, Any], timeout_ms: int) -> tuple[int, Any]:
        sent = {**body, "on_close": id(self)}
        self._net.watchers[id(self)] = self._watch
        return 200, await self._transport.send(self._node, path.rpartition("/")[2], sent, timeout_ms)

    def _watch(self, told: Callable[[], None]) -> None:
        self._told = told

    async def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told()


class House:
    """One broker's controller."""

    def __init__(self, net: LinkedNet, node_id: int, voters: Sequence[int], **changes: Any) -> None:
        self.net = net
        self.node_id = node_id
        self.voters = voters
        self.disk = MemoryDisk()
        self.disk.make_directory("d")
        self.config = controller_config(**changes)
        self.failures: list[Exception] = []
        self.changes: list[Changes] = []
        self.life = 0
        self.registration: Registration | None = None

    async def start(self) -> Controller:
        self.life += 1
        self.controller = Controller(
            config=self.config,
            quorum=quorum_config(self.node_id, self.voters),
            disk=self.disk,
            directory="d",
            clock=SystemClock(),
            chance=Random(self.node_id * 1_000 + self.life),
            failed=self.failures.append,
            on_change=self._changed,
            transport=NetTransport(self.net, self.node_id),
        )
        self.net.nodes[self.node_id] = self._answer
        await self.controller.start()
        return self.controller

    def _changed(self, image: ClusterImage, changes: Changes) -> None:
        assert image is self.controller.image
        self.changes.append(changes)

    def register(self, *, incarnation: str | None = None) -> Registration:
        identity = Identity(self.node_id, incarnation or f"life {self.life}", None, None)
        self.registration = Registration(self.controller, identity, self._link)
        self.registration.start()
        return self.registration

    def _link(self, leader_id: int, on_lost: Callable[[], None]) -> BrokerLink:
        return BrokerLink(self.net, self.node_id, leader_id, on_lost)

    async def _answer(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if name != "command":
            return await self.controller.quorum.receive(name, body)
        try:
            on_close = self.net.watchers.get(body.get("on_close", 0))
            return await self.controller.serve(body["command"], body["args"], on_close)
        except PeerError as error:
            return {"error": int(error.code), "message": error.message}

    async def stop(self, *, resign: bool = False) -> None:
        self.net.nodes.pop(self.node_id, None)
        if self.registration is not None:
            await self.registration.close()
        await self.controller.close(resign=resign)


@asynccontextmanager
async def houses(voters: Sequence[int] = (1, 2, 3), **changes: Any) -> AsyncIterator[list[House]]:
    """Brokers that have agreed on a leader."""
    net = LinkedNet()
    members = [House(net, node_id, voters, **changes) for node_id in voters or (1,)]
    for house in members:
        await house.start()
    try:
        await active(members)
        yield members
    finally:
        for house in members:
            await house.stop()


async def active(members: Sequence[House]) -> House:
    """The one that is the active controller, once all follow it."""

    def found() -> list[House]:
        leaders = [house for house in members if house.controller.is_active]
        agreed = all(house.controller.leader_id == leader.node_id for leader in leaders for house in members)
        return leaders if agreed and len(leaders) == 1 else []

    await until(lambda: bool(found()))
    return found()[0]


async def registered(members: Sequence[House]) -> None:
    """Have all of them registered and unfenced."""
    for house in members:
        house.register()
    await until(lambda: all(unfenced(house) == {each.node_id for each in members} for house in members))


def unfenced(house: House) -> set[int]:
    return {broker.id for broker in house.controller.image.brokers.values() if not broker.fenced}
