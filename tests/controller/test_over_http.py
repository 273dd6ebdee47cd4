"""The controllers of three brokers over real sockets and the real HTTP door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from odradek.client.http import HttpLink
from odradek.clock import SystemClock
from odradek.controller.controller import Controller
from odradek.controller.registration import Identity, Registration
from odradek.disk.memory import MemoryDisk
from odradek.edge.http import HttpServer
from odradek.edge.rest.kraft import routes
from odradek.edge.routing import Router
from tests.client.support import asynchronous, until
from tests.controller.brokers import controller_config
from tests.controller.support import quorum_config
from tests.controller.test_controller import topic

VOTERS = (1, 2, 3)


class Port:
    """What the door needs of a controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.receive = controller.quorum.receive
        self.command = controller.serve
        self.status = controller.quorum.describe
        self.secret = controller.quorum.config.secret

    @property
    def cluster_id(self) -> str:
        return self._controller.cluster_id


class Broker:
    """A controller behind its own door."""

    def __init__(self, node_id: int, secret: str | None) -> None:
        self.node_id = node_id
        self.secret = secret
        self.router = Router()
        self.server = HttpServer(self.router)
        self.disk = MemoryDisk()
        self.disk.make_directory("d")

    async def start(self, voters: dict[int, tuple[str, int]]) -> None:
        config = replace(quorum_config(self.node_id, VOTERS), voters=voters, secret=self.secret)
        self.controller = Controller(
            config=controller_config(session_timeout_ms=60_000),
            quorum=config,
            disk=self.disk,
            directory="d",
            clock=SystemClock(),
            chance=Random(self.node_id),
            failed=print,
        )
        self.router.add(*routes(Port(self.controller)))
        await self.server.open()
        await self.controller.start()
        self.registration = Registration(
            self.controller, Identity(self.node_id, f"process {self.node_id}", None, voters[self.node_id])
        )
        self.registration.start()

    async def stop(self) -> None:
        """End as a process would: without a word, all sockets at once."""
        await self.registration.close()
        await self.controller.close(resign=False)
        await self.server.close()


@asynccontextmanager
async def cluster(secrets: tuple[str | None, ...] = (None, None, None)) -> AsyncIterator[list[Broker]]:
    brokers = [Broker(node_id, secret) for node_id, secret in zip(VOTERS, secrets, strict=True)]
    voters = {broker.node_id: await broker.server.listen("127.0.0.1", 0) for broker in brokers}
    for broker in brokers:
        await broker.start(voters)
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


def unfenced(broker: Broker) -> set[int]:
    return {each.id for each in broker.controller.image.brokers.values() if not each.fenced}


@asynchronous
async def test_three_brokers_agree_lose_their_leader_and_go_on() -> None:
    async with cluster() as brokers:
        await until(lambda: all(unfenced(broker) == set(VOTERS) for broker in brokers))
        for broker in brokers:
            await broker.controller.call("create-topic", topic(f"t{broker.node_id}", factor=3))
            assert f"t{broker.node_id}" in broker.controller.image.topics
        leader = next(broker for broker in brokers if broker.controller.is_active)
        rest = [broker for broker in brokers if broker is not leader]
        began = asyncio.get_running_loop().time()
        await leader.stop()
        await rest[0].controller.call("create-topic", topic("after", factor=2))
        await until(lambda: unfenced(rest[0]) == {broker.node_id for broker in rest})
        assert asyncio.get_running_loop().time() - began < 10
        partitions = [each for _, _, each in rest[0].controller.image.all_partitions()]
        assert all(partition.leader in unfenced(rest[0]) for partition in partitions)


@asynchronous
async def test_curl_gets_what_the_document_says() -> None:
    async with cluster() as brokers:
        await until(lambda: all(broker.controller.leader_id > 0 for broker in brokers))
        await until(lambda: any(broker.controller.is_active for broker in brokers))
        for broker in brokers:
            link = HttpLink(broker.controller.quorum.voters[broker.node_id])
            fetch = {"last_offset": -1, "last_offset_epoch": -1, "max_batch_size": 1, "follower_broker_id": None}
            status, answer = await link.post("/kraft/v1/fetchMetadata", fetch, 5_000)
            if broker.controller.is_active:
                assert status == 200
                assert [each["action"] for each in answer["records"]] == ["leader-change"]
            else:
                leader_id = broker.controller.leader_id
                assert (status, answer) == (421, {"detail": f"leader is {leader_id}, can't accept"})
            status, answer = await link.get("/kraft/v1/status", 5_000)
            assert answer["leader_id"] == broker.controller.leader_id
            await link.close()


@asynchronous
async def test_a_broker_without_the_secret_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(("s", "s", "other")) as brokers:
        await until(lambda: unfenced(brokers[0]) == {1, 2})
        await until(lambda: "answered voteRequest with 401" in caplog.text)
        assert brokers[2].controller.leader_id == -1


@asynchronous
async def test_a_broker_of_another_cluster_is_refused_and_says_so() -> None:
    brokers = [Broker(node_id, None) for node_id in VOTERS]
    disk = brokers[2].disk
    disk.make_directory("d/metadata")
    state = {"leader_id": -1, "leader_epoch": 0, "voted_id": -1, "epoch": 0, "broker_id": 3, "cluster_id": "else"}
    disk.write_atomic("d/metadata/quorum-state", json.dumps({**state, "voters": []}).encode())
    voters = {broker.node_id: await broker.server.listen("127.0.0.1", 0) for broker in brokers}
    for broker in brokers[:2]:
        await broker.start(voters)
    await until(lambda: unfenced(brokers[0]) == {1, 2})
    await until(lambda: all(broker.controller.cluster_id for broker in brokers[:2]))
    await brokers[2].start(voters)
    assert "is for else" in await brokers[2].registration.refused
    for broker in brokers:
        await broker.stop()
