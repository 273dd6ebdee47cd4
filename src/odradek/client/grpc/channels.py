"""Channels to gRPC doors: addresses, opening, one call with a deadline, and gRPC's statuses as errors of this client.

Whether a call may be made twice is not decided here.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from odradek.client.address import Address, parse_addresses
from odradek.client.errors import BrokerUnavailableError, ClientError, TimedOutError
from odradek.client.grpc.errors import GrpcError

PORT_DEFAULT = 50051
CONNECT_SECONDS_MAX = 5.0
MESSAGE_BYTES_MAX = 2**30  # of an answer: what a broker may send is its own setting
RECONNECT_MS_MAX = 1_000
KEEPALIVE_MS = 30_000  # a stream to a machine that is gone without a word ends after this
KEEPALIVE_TIMEOUT_MS = 20_000

_READY = grpc.ChannelConnectivity.READY
_FAILED = grpc.ChannelConnectivity.TRANSIENT_FAILURE

Answer = TypeVar("Answer")

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", round(CONNECT_SECONDS_MAX * 1000)),  # in fact, how long an attempt may take
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.enable_retries", 0),  # who may try again is the clients' business
    ("grpc.use_local_subchannel_pool", 1),  # a client's connection is its own, and goes with it
    ("grpc.enable_http_proxy", 0),
)


def parse_targets(addresses: str | Sequence[str]) -> list[Address]:
    """Read `host:port,host:port`, or several; without a port it is 50051, and IPv6 hosts stand in brackets."""
    return parse_addresses(addresses if isinstance(addresses, str) else ",".join(addresses), PORT_DEFAULT)


class Channel:
    """A connection to one door; gRPC makes it anew when it breaks."""

    def __init__(self, address: Address, stub: Callable[[Any], Any]) -> None:
        """`stub` is the generated class of the service; the generator writes no types for it."""
        self.address = address
        self._inner = grpc.aio.insecure_channel(str(address), options=_OPTIONS)
        self.stub = stub(self._inner)

    async def connect(self, timeout_s: float) -> None:
        """Wait until the connection stands; a BrokerUnavailableError if it cannot be made."""
        state = self._inner.get_state(try_to_connect=True)
        if state == _READY:
            return
        try:
            async with asyncio.timeout(min(timeout_s, CONNECT_SECONDS_MAX)):
                is_old_news = state == _FAILED  # of an attempt before this one; the next is made in a moment
                while state != _READY:
                    if state == _FAILED and not is_old_news:
                        raise BrokerUnavailableError(str(self.address), "nobody takes the connection")
                    await self._inner.wait_for_state_change(state)
                    state, is_old_news = self._inner.get_state(try_to_connect=True), False
        except TimeoutError:
            raise BrokerUnavailableError(str(self.address), "the connection is not made in time") from None

    async def ask(self, call: Awaitable[Answer]) -> Answer:
        """Wait for a call's answer; errors are those of this client."""
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise as_client_error(error, str(self.address)) from None

    async def close(self) -> None:
        """Hang up; calls under way are cancelled."""
        await self._inner.close()


def as_client_error(error: grpc.aio.AioRpcError, address: str) -> ClientError:
    """What a status of gRPC means for the caller."""
    status, details = error.code(), error.details() or ""
    if status == grpc.StatusCode.UNAVAILABLE:
        return BrokerUnavailableError(address, details.rstrip(".") or "the connection broke")
    if status == grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOutError(f"{address} did not answer in time; whether it has done what was asked is not known")
    if status == grpc.StatusCode.CANCELLED:
        return BrokerUnavailableError(address, details.rstrip(".") or "the call was cancelled")
    if status == grpc.StatusCode.UNIMPLEMENTED:
        details = f"{details.rstrip('.')}; is this the gRPC door of an Odradek broker?"
    return GrpcError(status.name, details, address)


class Opened(ABC):
    """What both clients are: something that is started and closed, and an async context manager for that."""

    async def start(self) -> None:  # noqa: B027 - a subscription begins by itself
        """Begin; by default there is nothing to do."""

    @abstractmethod
    async def close(self) -> None:
        """End."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
