"""Katar's door on a broker whose disk is in memory: sockets are real, and time is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from odradek.broker.katar_port import KatarBroker
from odradek.broker.katar_reading import KatarReader
from odradek.edge.rest.guard import Guard
from odradek.edge.rest.katar import KatarDoor
from odradek.edge.routing import Router
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import House, at_home
from tests.edge.web import HttpClient, Visit, open_door

SECRET = "s3cret"


class Member:
    """A broker of a cluster with a secret."""

    secret: str | None = SECRET
    cluster_id = "c"


class OneKey:
    """Lets those pass who show the one key, where it is needed."""

    def __init__(self) -> None:
        self.required: set[str] = set()
        self.peers: list[str] = []

    def is_required(self, topic: str) -> bool:
        return topic in self.required

    async def check(self, topic: str, key: str | None, peer: str) -> None:
        self.peers.append(peer)
        if key != "good":
            raise PeerError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"no key for {topic}")


class Katar:
    """A door that is open, and the broker behind it."""

    def __init__(self, house: House, visit: Visit, clients: OneKey) -> None:
        self.house = house
        self.clients = clients
        self._visit = visit

    async def connect(self) -> HttpClient:
        return await self._visit.connect()

    async def ask(
        self, method: str, path: str, content: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        return await self._visit.ask(method, path, content, headers)

    async def refusal(self, method: str, path: str, content: object = None, **headers: str) -> tuple[int, str]:
        """The status and the text of a problem."""
        status, answer = await self.ask(method, path, content, headers)
        assert status >= 400, answer
        return status, answer["detail"]

    async def create(self, name: str, **fields: object) -> dict[str, Any]:
        status, answer = await self.ask("POST", "/topic", {"name": name, **fields})
        assert status == 201, answer
        assert isinstance(answer, dict)
        return answer

    async def publish(self, topic: str, *payloads: object, **fields: object) -> list[int]:
        """Publish, and tell the offsets."""
        status, answer = await self.ask("POST", "/publish", {"topic": topic, "payloads": payloads, **fields})
        assert status == 200, answer
        return [each["offset"] for each in answer["offsets"]]

    async def read(self, **fields: object) -> tuple[list[Any], dict[str, dict[str, int]]]:
        """The payloads, and the position."""
        status, answer = await self.ask("POST", "/subscribe", fields)
        assert status == 200, answer
        return [each["payload"] for each in answer["records"]], answer["position"]

    def read_later(self, **fields: object) -> asyncio.Task[tuple[list[Any], dict[str, dict[str, int]]]]:
        return asyncio.create_task(self.read(**fields))


@asynccontextmanager
async def open_katar(**settings: object) -> AsyncIterator[Katar]:
    """A broker with Katar's door."""
    async with at_home(None, None, **settings) as house:
        clients = OneKey()
        door = KatarDoor(KatarBroker(house.broker), KatarReader(house.broker), Guard(Member()), clients)
        async with open_door(Router(*door.routes()), body_bytes_max=8 << 20) as visit:
            yield Katar(house, visit, clients)
        await door.close()
