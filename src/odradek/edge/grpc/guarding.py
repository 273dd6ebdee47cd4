"""What stands between gRPC and every method of every service: reading of messages, deadlines, exceptions, counting.

A guarded method costs one coroutine more a call. It knows nothing of what the methods do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isasyncgenfunction
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from odradek.edge.grpc.stats import CallStats

HELD_BYTES_MAX = 256 << 20  # of all requests under way that are no streams; a larger one may be alone

logger = logging.getLogger(__name__)

Context: TypeAlias = "aio.ServicerContext[Any, Any]"


def guarded(method: str, handler: grpc.RpcMethodHandler[Any, Any], stats: CallStats) -> grpc.RpcMethodHandler[Any, Any]:
    """The same method, safe to be called by anybody."""
    guard = _Guard(method, handler.request_deserializer, stats)
    encode = handler.response_serializer
    if handler.unary_unary is not None:
        call = guard.unary_unary(handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(call, response_serializer=encode)
    if handler.stream_unary is not None:
        call = guard.stream_unary(handler.stream_unary)
        return grpc.stream_unary_rpc_method_handler(call, response_serializer=encode)
    if handler.unary_stream is not None:
        call = guard.unary_stream(handler.unary_stream)
        return grpc.unary_stream_rpc_method_handler(call, response_serializer=encode)
    assert handler.stream_stream is not None
    call = guard.stream_stream(handler.stream_stream)
    return grpc.stream_stream_rpc_method_handler(call, response_serializer=encode)


class _Guard:
    def __init__(self, method: str, decode: Callable[[bytes], Any] | None, stats: CallStats) -> None:
        self._method = method
        self._decode = decode or bytes
        self._stats = stats

    def unary_unary(self, behaviour: Callable[..., Awaitable[Any]]) -> Any:
        decode, stats, is_done = self._decode, self._stats, (self._method, "OK")

        async def call(raw: bytes, context: Context) -> Any:
            size_bytes = len(raw)
            stats.open += 1
            stats.request_bytes += size_bytes
            stats.held_bytes += size_bytes
            try:
                if stats.held_bytes > HELD_BYTES_MAX and size_bytes < stats.held_bytes:
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many bytes are under way: ask again")
                left_s = context.time_remaining()
                if left_s is not None and left_s <= 0:
                    raise asyncio.CancelledError  # gRPC has told the client already
                answer = await behaviour(decode(raw), context)
            except BaseException as error:
                await self._end(error, context)
            finally:
                stats.open -= 1
                stats.held_bytes -= size_bytes
            stats.calls[is_done] += 1
            return answer

        return call

    def stream_unary(self, behaviour: Callable[..., Awaitable[Any]]) -> Any:
        async def call(requests: AsyncIterator[bytes], context: Context) -> Any:
            self._stats.open += 1
            try:
                answer = await behaviour(self._read(requests), context)
            except BaseException as error:
                await self._end(error, context)
            finally:
                self._stats.open -= 1
            self._stats.calls[self._method, "OK"] += 1
            return answer

        return call

    def unary_stream(self, behaviour: Callable[..., Any]) -> Any:
        async def one(raw: bytes) -> Any:
            self._stats.request_bytes += len(raw)
            return self._decode(raw)

        return self._streaming(behaviour, one)

    def stream_stream(self, behaviour: Callable[..., Any]) -> Any:
        async def many(requests: AsyncIterator[bytes]) -> Any:
            return self._read(requests)

        return self._streaming(behaviour, many)

    def _streaming(self, behaviour: Callable[..., Any], taken: Callable[[Any], Awaitable[Any]]) -> Any:
        """A method that answers with a stream: a generator, or a coroutine that writes to its context."""
        is_generator = isasyncgenfunction(behaviour)

        async def call(given: Any, context: Context) -> None:
            self._stats.open += 1
            try:
                request = await taken(given)
                if is_generator:
                    async for answer in behaviour(request, context):
                        await context.write(answer)
                else:
                    await behaviour(request, context)
            except BaseException as error:
                await self._end(error, context)
            finally:
                self._stats.open -= 1
            self._stats.calls[self._method, "OK"] += 1

        return call

    async def _read(self, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        decode, stats = self._decode, self._stats
        async for raw in requests:
            stats.request_bytes += len(raw)
            yield decode(raw)

    async def _end(self, error: BaseException, context: Context) -> NoReturn:
        """Say how a call ended that did not end well."""
        counted = self._stats.calls
        if isinstance(error, aio.AbortError):
            counted[self._method, _name(context.code())] += 1
            raise error
        if isinstance(error, DecodeError):
            counted[self._method, "INVALID_ARGUMENT"] += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"this is not a message of {self._method}")
        if not isinstance(error, Exception):  # the client has gone, or its deadline has passed
            counted[self._method, "CANCELLED"] += 1
            raise error
        if context.done():  # it has gone while it was told something, which gRPC takes for a mistake
            counted[self._method, "CANCELLED"] += 1
            raise asyncio.CancelledError
        counted[self._method, "INTERNAL"] += 1
        logger.error("%s: this is a bug of Odradek", self._method, exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, "the broker met a bug of its own; its log says more")


def _name(code: Any) -> str:
    """A status as people know it; gRPC tells it as a number, too."""
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((status.name for status in grpc.StatusCode if status.value[0] == code), str(code))
