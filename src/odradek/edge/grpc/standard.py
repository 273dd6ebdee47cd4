"""The services that every gRPC server should have: health (grpc.health.v1) and reflection (grpc.reflection).

With these, `grpcurl`, load balancers and Kubernetes need no .proto of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from odradek.edge.grpc.guarding import Context

HEALTH = "grpc.health.v1.Health"
# The two speak the same bytes. Tools ask for the newer one first, and find the older one described.
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


class _Streams:
    """Streams without an end of their own; they end when the broker stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closing = False

    @contextmanager
    def tracked(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
            task.uncancel()
        finally:
            self._tasks.discard(task)

    def end(self) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()


class HealthService:
    """Says whether a service is there."""

    name = HEALTH

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._servicer = HealthServicer()
        self._streams = _Streams()

    async def begin(self) -> None:
        """Say of all services that they serve; the empty name stands for the whole broker."""
        for name in self._names:
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler[Any, Any]]:
        """Check and Watch."""
        decode = health_pb2.HealthCheckRequest.FromString
        encode = health_pb2.HealthCheckResponse.SerializeToString
        return {
            "Check": grpc.unary_unary_rpc_method_handler(self._servicer.Check, decode, encode),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, decode, encode),
        }

    async def _watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        with self._streams.tracked():
            await self._servicer.Watch(request, context)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the broker stops")

    async def leave(self) -> None:
        """Tell those who watch that nothing is served any more."""
        await self._servicer.enter_graceful_shutdown()

    async def close(self) -> None:
        """Nobody watches any longer."""
        self._streams.end()


class _Symbols:
    """All that is described in this process, methods of services included: protobuf's own pool does not find these."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - as protobuf calls it
        """The file that describes a symbol, by its full name; KeyError if none does."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service)
            if method not in found.methods_by_name:
                raise
            return found.file


class ReflectionService:
    """Describes the services to those who have no .proto."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        self.name = name
        self._servicer = ReflectionServicer(names, _Symbols())
        self._streams = _Streams()

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler[Any, Any]]:
        """The one method that there is."""
        return {
            "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                self._info,
                reflection_pb2.ServerReflectionRequest.FromString,
                reflection_pb2.ServerReflectionResponse.SerializeToString,
            )
        }

    async def _info(self, requests: AsyncIterator[reflection_pb2.ServerReflectionRequest], context: Context) -> None:
        with self._streams.tracked():
            answers = cast("AsyncIterator[Any]", self._servicer.ServerReflectionInfo(requests, context))
            async for answer in answers:
                await context.write(answer)
            return
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the broker stops")

    async def close(self) -> None:
        """Answer nobody any longer."""
        self._streams.end()
