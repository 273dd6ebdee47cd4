"""A topic for registered clients is guarded at SSKafka's door too, also when another broker has passed a request on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from odradek.broker.clients import TooManyFailuresError, UnknownClientError
from odradek.edge.rest.guard import Guard
from odradek.edge.rest.sskafka import SSKafkaDoor
from odradek.edge.routing import Router
from odradek.model import TopicPartition
from tests.edge.doors import on_uvloop
from tests.edge.web import Visit, open_door
from tests.sskafka.fakes import Brokers, FakeCluster, FakePort

RECORD = {"topic_partition": "guarded-1", "payload": "p", "acks": "1"}
WANTED = {"topic_partition": "guarded-1"}


class OneKey:
    """One topic is guarded, by one key; a client who keeps guessing has to wait."""

    def is_required(self, topic: str) -> bool:
        return topic == "guarded"

    async def check(self, topic: str, key: str | None, peer: str) -> None:
        assert peer.startswith("127.0.0.1:")
        if key == "guess":
            raise TooManyFailuresError("too many wrong keys", 9)
        if key != "key":
            raise UnknownClientError("not registered")


@asynccontextmanager
async def two_brokers() -> AsyncIterator[Brokers]:
    """Two brokers: 1 is the controller, 2 leads the guarded topic."""
    cluster = FakeCluster(2)
    cluster.topics = {"guarded": 1, "open": 1}
    cluster.leaders[TopicPartition("guarded", 0)] = 2
    visits: dict[int, Visit] = {}
    async with AsyncExitStack() as parts:
        for node_id in cluster.brokers:
            port = FakePort(cluster, node_id)
            door = SSKafkaDoor(port, Guard(port), clients=OneKey())
            parts.push_async_callback(door.close)
            visits[node_id] = await parts.enter_async_context(open_door(Router(*door.routes())))
            cluster.doors[node_id] = ("127.0.0.1", visits[node_id].port)
        yield Brokers(cluster, visits)


@on_uvloop
async def test_a_guarded_topic_needs_a_key_that_goes_along_to_its_leader() -> None:
    async with two_brokers() as brokers:
        for path, body, done in (("/data/v1/produce", RECORD, 204), ("/data/v1/consume", WANTED, 200)):
            assert (await brokers.ask(1, "POST", path, body))[0] == 401
            assert (await brokers.ask(1, "POST", path, body, {"client_key": "guess"}))[0] == 429
            assert (await brokers.ask(1, "POST", path, body, {"client_key": "key"}))[0] == done
            open_body = {**body, "topic_partition": "open-1"}
            assert (await brokers.ask(1, "POST", path, open_body))[0] == done
        assert brokers.cluster.served_by == [2, 1, 2, 1]


@on_uvloop
async def test_whoever_says_that_he_passes_on_needs_the_key_too() -> None:
    async with two_brokers() as brokers:
        forwarded = {"x-odradek-forwarded": "1"}
        assert (await brokers.ask(2, "POST", "/data/v1/produce", RECORD, forwarded))[0] == 401
        assert (await brokers.ask(2, "POST", "/data/v1/produce", RECORD, {**forwarded, "client_key": "key"}))[0] == 204
