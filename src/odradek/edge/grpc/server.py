"""The gRPC server: one address, many services, in the broker's own loop, with a bound on everything a client can do.

It knows no service but health and reflection. What a service does not catch ends here: the client hears INTERNAL, the
log gets one line. A message that cannot be read is INVALID_ARGUMENT, a call whose deadline has passed is not begun.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Mapping
from typing import Any, Protocol

import grpc
from grpc import aio

from odradek.edge.config import GrpcDoorConfig
from odradek.edge.grpc.guarding import guarded
from odradek.edge.grpc.standard import HEALTH, REFLECTION, REFLECTION_V1, HealthService, ReflectionService
from odradek.edge.grpc.stats import CallStats

_CONNECTIONS_MAX = 1_024
_GRACE_SECONDS = 5.0  # for calls under way when the door closes
# Calls that wait to be taken up. Beyond gRPC's own 1,000 it drops some at random, and tells the client CANCELLED.
_PENDING_CALLS_MAX = 100_000
_METADATA_BYTES_MAX = 16 * 1024
_IDLE_MS_MAX = 600_000  # a connection without a call is closed after this
_KEEPALIVE_MS = 60_000  # a client that is gone without a word is found by then
_KEEPALIVE_TIMEOUT_MS = 20_000
_PING_MS_MIN = 10_000  # a client that pings more often is sent away
_PING_STRIKES_MAX = 3

logger = logging.getLogger(__name__)


class Service(Protocol):
    """What the server needs of a service."""

    name: str  # in full, as in the .proto: `eeylops.EeylopsService`

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler[Any, Any]]:
        """The methods by name. Streamed requests come by their iterator only, not by `context.read`."""

    async def close(self) -> None:
        """End all streams; calls under way may go on for a moment. No new ones come."""


class GrpcServer:
    """Listens at one address."""

    def __init__(self, config: GrpcDoorConfig, connections_max: int = _CONNECTIONS_MAX) -> None:
        self.stats = CallStats()
        self._services: list[Service] = []
        self._health: HealthService | None = None
        self._config = config
        self._options = (
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", config.max_grpc_message_bytes),
            ("grpc.max_send_message_length", config.max_grpc_message_bytes),
            ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
            ("grpc.max_allowed_incoming_connections", connections_max),
            ("grpc.server.max_pending_requests", _PENDING_CALLS_MAX),
            ("grpc.server.max_pending_requests_hard_limit", _PENDING_CALLS_MAX),
            ("grpc.max_connection_idle_ms", _IDLE_MS_MAX),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _PING_MS_MIN),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_MS_MIN),
            ("grpc.http2.max_ping_strikes", _PING_STRIKES_MAX),
        )
        self._server: aio.Server | None = None

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Take an address; clients wait until `open`. OSError if it cannot be had."""
        found = _probe(host, port)
        shown = f"[{found}]" if ":" in found else found
        server = aio.server(options=self._options, maximum_concurrent_rpcs=self._config.max_grpc_calls)
        try:
            taken = server.add_insecure_port(f"{shown}:{port}")
        except RuntimeError as error:  # somebody was quicker; gRPC does not say more
            raise OSError(errno.EADDRINUSE, str(error)) from error
        self._server = server
        return found, taken

    async def open(self, *services: Service) -> None:
        """Serve these, and tell everybody who asks for health or reflection of them."""
        assert self._server is not None
        names = [service.name for service in services]
        told = [*names, HEALTH, REFLECTION]
        self._health = HealthService(names)
        await self._health.begin()
        self._services = [
            *services,
            self._health,
            *(ReflectionService(own, told) for own in (REFLECTION, REFLECTION_V1)),
        ]
        for service in self._services:
            handlers = {
                method: guarded(f"{service.name}/{method}", handler, self.stats)
                for method, handler in service.handlers().items()
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.name, handlers),))
        await self._server.start()

    async def close(self) -> None:
        """Take no more calls, let those under way end, then cancel what is left."""
        server, self._server = self._server, None
        if server is None:
            return
        if self._health is None:
            await server.start()  # gRPC lets go of an address only then
            await server.stop(None)
            return
        await self._health.leave()
        stopping = asyncio.create_task(server.stop(_GRACE_SECONDS))
        for service in self._services:
            try:
                await service.close()
            except Exception:
                logger.exception("%s did not close in good order", service.name)
        await stopping


def _probe(host: str, port: int) -> str:
    """The host as a number; OSError says what is wrong with an address, of which gRPC says only that something is."""
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = places[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)  # only this tells apart a port that is listened on from one that was
    return str(address[0])
