"""A whole broker behind a door, without a socket: requests go through the wire's formats in both directions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

from odradek.apis.context import AnswerRoom, Context, Door
from odradek.apis.registry import Api
from odradek.apis.table import SERVED
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.offsets_topic import KnownTopics, OffsetsTopic
from odradek.clock import ManualClock
from odradek.groups.coordinator import Coordinator
from odradek.wire.schema import Message
from tests.broker.houses import House, SlowDisk, at_home, settings_of

M = TypeVar("M", bound=Message)

HOST, PORT = "broker.example", 9092


class Visitor:
    """Speaks any version of any API to a broker."""

    def __init__(self, house: House, door: Door) -> None:
        self.house = house
        self.broker = house.broker
        self.disk = house.disk
        self.clock = house.clock
        self.door = door

    def begin(self, api: Api, version: int, request: Message) -> Any:
        """Send a request; what comes back is the handler's: a response, or something to wait for."""
        assert api.versions.low <= version <= api.versions.high
        buffer = bytearray(request.encode(version))
        received = api.request.decode(memoryview(buffer), version)
        response = api.handle(Context(self.door, version, "client", "10.0.0.1"), received)
        if not inspect.iscoroutine(response):
            buffer[:] = bytes(len(buffer))  # the connection's buffer is used again while the request waits
        return response

    async def ask(self, api: Api, version: int, request: Message, answer: type[M]) -> M:
        """Send a request and read the answer, both in the formats of a version."""
        response = self.begin(api, version, request)
        if inspect.isawaitable(response):
            response = await response
        return answer.decode(response.encode(version), version)

    def ask_later(self, api: Api, version: int, request: Message, answer: type[M]) -> asyncio.Task[M]:
        """Send a request whose answer is awaited later; it is under way when this returns."""
        response = self.begin(api, version, request)

        async def read() -> M:
            done = await response if inspect.isawaitable(response) else response
            return answer.decode(done.encode(version), version)

        return asyncio.create_task(read())


def set_epoch(visitor: Visitor, topic: str, epoch: int) -> None:
    """Let the leader of a topic's first partition be in another term."""
    partition = visitor.broker.partition(topic, 0)
    partition.role = partition.role._replace(leader_epoch=epoch)


def versions(api: Api) -> list[int]:
    """Every version that is served."""
    return list(range(api.versions.low, api.versions.high + 1))


@asynccontextmanager
async def visiting(
    disk: SlowDisk | None = None, clock: ManualClock | None = None, settings: Mapping[str, object] | None = None
) -> AsyncIterator[Visitor]:
    """A broker with groups and a door."""
    named = {name.replace(".", "_"): value for name, value in (settings or {}).items()}
    async with at_home(disk, clock, **named) as house:
        broker, numbers = house.broker, count(1)
        offsets = OffsetsTopic(broker)
        config = settings_of(named).group_config()
        groups = Coordinator(config, house.clock, offsets, KnownTopics(broker), lambda: f"{next(numbers)}")
        groups.load()
        broker.on_topic_deleted = groups.offsets.forget_topic
        groups.start()
        sessions = FetchSessions(broker.config.max_incremental_fetch_session_cache_slots)
        room = AnswerRoom(house.settings.kafka_door_config().queued_answers_max_bytes)
        try:
            yield Visitor(house, Door(broker, groups, sessions, room, SERVED, HOST, PORT))
        finally:
            house.disk.may_flush.set()
            await groups.close()
            await offsets.close()
