"""Several quorums in one process, over a network in memory that can be cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from odradek.client.http import HttpError
from odradek.clock import SystemClock
from odradek.controller.config import QuorumConfig
from odradek.controller.image import MetadataRecord
from odradek.controller.quorum import Quorum
from odradek.disk.memory import MemoryDisk
from odradek.wire.errors import PeerError

Answer = Callable[[str, Mapping[str, Any]], Any]  # (name, body) -> awaitable of the answer

ELECTION_MS = 100
FETCH_MS = 400


def record(number: int) -> MetadataRecord:
    return MetadataRecord("producer-ids", {"next": number})


def quorum_config(node_id: int, voters: Sequence[int], **changes: Any) -> QuorumConfig:
    settings: dict[str, Any] = {
        "node_id": node_id,
        "voters": {voter: ("127.0.0.1", 8000 + voter) for voter in voters},
        "election_timeout_ms": ELECTION_MS,
        "fetch_timeout_ms": FETCH_MS,
        "fetch_wait_ms": 50,
        "secret": None,
        "snapshot_interval_ms": 3_600_000,
        "snapshot_bytes": 1 << 20,
    }
    return QuorumConfig(**(settings | changes))


class Net:
    """Who can reach whom. A node that is down refuses; one that is cut off is silent."""

    def __init__(self) -> None:
        self.nodes: dict[int, Answer] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.sent: list[tuple[int, int, str]] = []
        self.changed = asyncio.Event()

    def isolate(self, node: int, others: Sequence[int]) -> None:
        self.cuts |= {pair for other in others for pair in ((node, other), (other, node))}

    def heal(self) -> None:
        self.cuts.clear()


class NetTransport:
    """One node's way into the net."""

    def __init__(self, net: Net, own: int) -> None:
        self._net = net
        self._own = own

    async def send(self, node: int, name: str, body: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
        net = self._net
        net.sent.append((self._own, node, name))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if (self._own, node) in net.cuts:
                    await asyncio.get_running_loop().create_future()
                answer = net.nodes.get(node)
                if answer is None:
                    raise HttpError("refused", f"node {node} is down")
                try:
                    content = await answer(name, json.loads(json.dumps(body)))
                except PeerError as error:
                    raise HttpError("refused", str(error)) from None
                if (node, self._own) in net.cuts:
                    await asyncio.get_running_loop().create_future()
                return dict(json.loads(json.dumps(content)))
        except TimeoutError:
            raise HttpError("timeout", f"node {node} did not answer") from None

    async def close(self) -> None:
        """Nothing to hang up."""


class Recorder:
    """An applier that writes down what it is told."""

    def __init__(self) -> None:
        self.records: list[MetadataRecord] = []
        self.next_offset = 0
        self.said: list[str] = []

    def applied(self, offset: int, records: Sequence[MetadataRecord]) -> None:
        assert offset == self.next_offset
        self.records += records
        self.next_offset = offset + len(records)

    def loaded(self, image: Mapping[str, Any], offset: int) -> None:
        self.records = [MetadataRecord(type_, body) for type_, body in image["records"]]
        self.next_offset = offset
        self.said.append("loaded")

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        self.said.append(f"leader {leader_id}")

    def elected(self, epoch: int) -> None:
        self.said.append("elected")

    def deposed(self) -> None:
        self.said.append("deposed")

    def snapshot(self) -> dict[str, Any]:
        return {"cluster_id": "", "records": [list(each) for each in self.records]}

    @property
    def numbers(self) -> list[int]:
        return [each.body["next"] for each in self.records if each.type == "producer-ids"]


class Member:
    """A quorum with its disk, started again as often as one likes."""

    def __init__(self, net: Net, node_id: int, voters: Sequence[int], **changes: Any) -> None:
        self.net = net
        self.node_id = node_id
        self.disk = MemoryDisk()
        self.disk.make_directory("d")
        self.config = quorum_config(node_id, voters, **changes)
        self.failures: list[Exception] = []

    async def start(self) -> Quorum:
        self.recorder = Recorder()
        self.quorum = Quorum(
            config=self.config,
            disk=self.disk,
            directory="d",
            clock=SystemClock(),
            chance=Random(self.node_id),
            apply=self.recorder,
            failed=self.failures.append,
            transport=NetTransport(self.net, self.node_id),
        )
        await self.quorum.start()
        self.net.nodes[self.node_id] = self.quorum.receive
        return self.quorum

    async def stop(self, *, resign: bool = True) -> None:
        await self.quorum.close(resign=resign)
        self.net.nodes.pop(self.node_id, None)

    async def crash(self) -> None:
        """Lose what was not synced, as a power cut would."""
        self.net.nodes.pop(self.node_id, None)
        await self.quorum.close(resign=False)
        self.disk.crash(Random(self.node_id))


def leader_of(members: Sequence[Member]) -> Member | None:
    """The member that leads and is ready, if all of them follow it."""
    leaders = [member for member in members if "elected" in member.recorder.said and member.quorum.role == "leader"]
    if len(leaders) == 1 and all(member.quorum.leader_id == leaders[0].node_id for member in members):
        return leaders[0]
    return None
