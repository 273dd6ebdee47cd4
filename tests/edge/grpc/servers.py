"""A gRPC door under test: the channel is real, the service behind it does as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2 as words

from odradek.edge.config import GrpcDoorConfig
from odradek.edge.grpc.guarding import Context
from odradek.edge.grpc.server import GrpcServer

NAME = "tests.Parrot"
MESSAGE_BYTES_MAX = 64 * 1024
CALLS_MAX = 8
Said = words.HealthCheckRequest  # any message with a text will do


class Parrot:
    """Says what it is told, as the text demands: at once, later, wrongly, or never."""

    name = NAME

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.bell = asyncio.Event()
        self.closing = asyncio.Event()

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler[Any, Any]]:
        decode, encode = Said.FromString, Said.SerializeToString
        return {
            "Say": grpc.unary_unary_rpc_method_handler(self._say, decode, encode),
            "Join": grpc.stream_unary_rpc_method_handler(self._join, decode, encode),
            "Repeat": grpc.unary_stream_rpc_method_handler(self._repeat, decode, encode),
            "Echo": grpc.stream_stream_rpc_method_handler(self._echo, decode, encode),
        }

    async def close(self) -> None:
        self.closing.set()

    async def _say(self, request: Said, context: Context) -> Said:
        text = request.service
        self.begun.append(text)
        try:
            if text.startswith("bug"):
                raise RuntimeError("for a test")
            if text.startswith("later"):
                await self.bell.wait()
            if text.startswith("no"):
                await context.abort(grpc.StatusCode.NOT_FOUND, "as you like")
            if text.startswith("large"):
                return Said(service="x" * 2 * MESSAGE_BYTES_MAX)
            return Said(service=text)
        finally:
            self.ended.append(text)

    async def _join(self, requests: AsyncIterator[Said], _context: Context) -> Said:
        texts = [request.service async for request in requests]
        if "bug" in texts:
            raise RuntimeError("for a test")
        return Said(service=" ".join(texts))

    async def _repeat(self, request: Said, _context: Context) -> AsyncIterator[Said]:
        self.begun.append(request.service)
        try:
            for number in range(3):
                yield Said(service=f"{request.service} {number}")
            if request.service == "bug":
                raise RuntimeError("for a test")
            if request.service == "for ever":
                await self.closing.wait()
        finally:
            self.ended.append(request.service)

    async def _echo(self, requests: AsyncIterator[Said], context: Context) -> None:
        async for request in requests:
            await context.write(request)


def config(calls_max: int = CALLS_MAX) -> GrpcDoorConfig:
    return GrpcDoorConfig(
        max_grpc_message_bytes=MESSAGE_BYTES_MAX, max_grpc_calls=calls_max, max_grpc_stream_bytes=MESSAGE_BYTES_MAX
    )


class Served(NamedTuple):
    """A server that is open, and a channel to it."""

    server: GrpcServer
    channel: aio.Channel
    port: int


@asynccontextmanager
async def served(parrot: Parrot, server: GrpcServer | None = None) -> AsyncIterator[Served]:
    """A server that is open, and a channel to it."""
    server = server or GrpcServer(config())
    host, port = server.listen("127.0.0.1", 0)
    await server.open(parrot)
    try:
        async with aio.insecure_channel(f"{host}:{port}") as channel:
            yield Served(server, channel, port)
    finally:
        parrot.bell.set()
        await server.close()


async def say(channel: aio.Channel, text: str, timeout: float = 30.0) -> str:
    """Ask the parrot once."""
    call = channel.unary_unary(f"/{NAME}/Say", Said.SerializeToString, Said.FromString)
    answer: Said = await call(Said(service=text), timeout=timeout)
    return answer.service


async def refusal(awaitable: Any) -> tuple[grpc.StatusCode, str]:
    """How a call ended that must not end well."""
    try:
        answer = await awaitable
    except aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError(f"it was answered: {answer}")
