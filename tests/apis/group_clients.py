"""Group APIs under test: requests go through the wire's formats in both directions, as over a connection."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from odradek.apis.context import Context
from odradek.apis.registry import Api
from odradek.wire.schema import Message
from tests.groups.brokers import House

M = TypeVar("M", bound=Message)

TOPICS = {"orders": range(4), "other": range(1)}  # name -> partitions


class Client:
    """Speaks one version of one API at a time to a coordinator."""

    def __init__(self, house: House) -> None:
        topics = {name: SimpleNamespace(partitions=dict.fromkeys(indexes)) for name, indexes in TOPICS.items()}
        self.house = house
        image = SimpleNamespace(topics=topics, brokers={})
        metadata = SimpleNamespace(image=image)
        self.broker = SimpleNamespace(node_id=7, topics=topics, metadata=metadata, stands_alone=True)

    def context(self, version: int) -> Context:
        """What a handler is given beside its request."""
        made = SimpleNamespace(
            broker=self.broker,
            groups=self.house.groups,
            version=version,
            client_id="client",
            client_host="10.0.0.1",
            host="broker.example",
            port=9092,
        )
        return cast(Context, made)

    async def ask(self, api: Api, version: int, request: Message, answer: type[M]) -> M:
        """Send a request and read the answer, both in the formats of a version."""
        assert api.versions.low <= version <= api.versions.high
        buffer = bytearray(request.encode(version))
        received = api.request.decode(memoryview(buffer), version)
        response: Any = api.handle(self.context(version), received)
        buffer[:] = bytes(len(buffer))  # the connection's buffer is used again while the request waits
        if inspect.isawaitable(response):
            response = await response
        return answer.decode(response.encode(version), version)


def versions(api: Api) -> list[int]:
    """Every version that is served."""
    return list(range(api.versions.low, api.versions.high + 1))
