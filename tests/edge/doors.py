"""A Kafka door under test: sockets and frames are real, what is behind the door does as the test says."""

from __future__ import annotations

import asyncio
import functools
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

import uvloop

from odradek.apis.context import Context, Door
from odradek.apis.registry import Api, Versions
from odradek.config import load_settings
from odradek.edge.kafka import KafkaConnection, KafkaServer
from odradek.metrics import DoorStats
from odradek.wire.api import ApiKey, response_header_version
from odradek.wire.headers import RequestHeader, decode_response_header, encode_request_header
from odradek.wire.messages import api_versions, metadata
from odradek.wire.schema import Message
from tests.client.support import TEST_SECONDS

Parameters = ParamSpec("Parameters")
M = TypeVar("M", bound=Message)

VERSION = 9
LARGE_BYTES = 1 << 20  # of an answer to `large`


def on_uvloop(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run a coroutine as a test on the loop that the broker runs on, and fail it if it leaves tasks behind."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_SECONDS):
                await test(*args, **kwargs)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks are left: {left}"

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(bounded())

    return run


class Staff:
    """Answers Metadata requests by the name of their topic: at once, when told to, wrongly, or never."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.waiting: dict[str, asyncio.Future[metadata.Response]] = {}  # begin with `later`
        self.bells: dict[str, asyncio.Event] = {}  # begin with `task`
        self.ended: list[str] = []  # tasks that came to an end, whichever

    def handle(self, _context: Context, request: metadata.Request) -> Any:
        assert request.topics
        name = request.topics[0].name or ""
        self.handled.append(name)
        if name.startswith("later"):
            self.waiting[name] = asyncio.get_running_loop().create_future()
            return self.waiting[name]
        if name.startswith("task"):
            self.bells[name] = asyncio.Event()
            return self._when_rung(name)
        return self._at_once(name)

    def _at_once(self, name: str) -> metadata.Response | None:
        match name:
            case "bug":
                raise RuntimeError("for a test")
            case "wrong":
                return metadata.Response(cluster_id=name, controller_id=2**40)
            case "odd":
                return metadata.Response(cluster_id=name, topics=cast(Any, 7))
            case "silent":
                return None
            case "large":
                return answer(name, LARGE_BYTES)
        return answer(name)

    async def _when_rung(self, name: str) -> metadata.Response:
        try:
            await self.bells[name].wait()
        finally:
            self.ended.append(name)
        if "bug" in name:
            raise RuntimeError("for a test")
        return answer(name)


def answer(name: str, size_bytes: int = 0) -> metadata.Response:
    """What the staff says."""
    topics = [metadata.ResponseTopic(name="x" * 30_000) for _ in range(size_bytes // 30_000)]
    return metadata.Response(cluster_id=name, topics=topics)


class AsyncClient:
    """One connection, on the test's own loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    def frame(self, name: str) -> bytes:
        """A request that the staff understands."""
        return self.frame_of(metadata.Request(topics=[metadata.RequestTopic(name=name)]), VERSION)

    def frame_of(self, message: Message, version: int) -> bytes:
        """Any request."""
        self._correlation_id += 1
        header = encode_request_header(RequestHeader(message.api_key, version, self._correlation_id, "test"))
        body = header + message.encode(version)
        return struct.pack(">i", len(body)) + body

    async def read_answer(self, kind: type[M], version: int) -> M:
        """The next answer, of a kind."""
        frame = await self.read_frame()
        _, at = decode_response_header(frame, response_header_version(kind.api_key, version) == 1)
        return kind.decode(frame, version, at)

    async def ask_for(self, message: Message, kind: type[M], version: int) -> M:
        """Send any request and wait for its answer."""
        self.writer.write(self.frame_of(message, version))
        return await self.read_answer(kind, version)

    def send(self, *names: str) -> None:
        """Ask, all at once."""
        self.writer.write(b"".join(self.frame(name) for name in names))

    async def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def read(self) -> tuple[int, str]:
        """The next answer: its correlation id, and what it says."""
        frame = await self.read_frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        return correlation_id, metadata.Response.decode(frame, VERSION, 5).cluster_id or ""

    async def ask(self, name: str) -> str:
        """Ask and wait for the answer."""
        self.send(name)
        correlation_id, said = await self.read()
        assert correlation_id == self._correlation_id
        return said

    async def is_closed(self) -> bool:
        """Wait for the end; False if an answer comes instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class DoorHouse:
    """A door that is open."""

    def __init__(self, server: KafkaServer, staff: Staff, port: int) -> None:
        self.server = server
        self.staff = staff
        self.port = port
        self.stats = server.stats
        self._clients: list[AsyncClient] = []

    async def connect(self) -> AsyncClient:
        client = AsyncClient(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    def connection(self) -> KafkaConnection:
        """The door's side of the only connection."""
        (connection,) = self.server._connections
        return connection

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.server.close()


@asynccontextmanager
async def open_door(**settings: object) -> AsyncIterator[DoorHouse]:
    """A door with nothing but the staff behind it."""
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    staff = Staff()
    apis = {
        int(ApiKey.METADATA): Api(ApiKey.METADATA, Versions(VERSION, VERSION), metadata.Request, staff.handle),
        int(ApiKey.API_VERSIONS): Api(
            ApiKey.API_VERSIONS, Versions(0, 0), api_versions.Request, lambda *_: api_versions.Response()
        ),
    }
    server = KafkaServer(load_settings(None, {}, named).kafka_door_config(), apis, DoorStats())
    _, port = await server.listen("127.0.0.1", 0)
    served = {api.key: api.versions for api in apis.values()}
    await server.open(cast(Door, SimpleNamespace(broker=None, groups=None, host="", port=0, served=served)))
    house = DoorHouse(server, staff, port)
    try:
        yield house
    finally:
        await house.close()
