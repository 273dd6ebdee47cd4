"""Calls that another broker must answer: passed on to the partition's leader, over channels that are kept.

What was certainly not carried out is tried again until the call's deadline, wherever the leader is by then; what may
have been is tried again only if it does no harm twice. A call is passed on once: whoever gets it answers it or refuses.

A leader that is silent is waited for as long as it leads: once the metadata name another one, or the partition is gone,
the call is given up. It may have been carried out: nobody can tell what a broker has taken that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from odradek.broker.mykafka_sending import UnsureError
from odradek.edge.config import GrpcDoorConfig
from odradek.edge.grpc.guarding import Context
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError

FORWARDED = "odradek-forwarded"
RETRY_SECONDS_MAX = 10.0  # for a partition to get a leader that answers, where the caller sets no deadline
_RETRY_SECONDS = 0.05
_CONNECT_SECONDS = 0.5  # before it is looked again who leads
_MARGIN_SECONDS = 0.25  # kept of a caller's deadline, so that he hears what is wrong
_MARGIN_SHARE = 0.1
_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 0.1  # between looks whether those who are asked still lead
_GRACE_SECONDS = 0.5  # for the answer of one that leads no longer: one that lives has said by then what it knows

_NOT_THERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS,
              ErrorCode.OFFSET_NOT_AVAILABLE)  # fmt: skip
_IN_DOUBT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED,
             grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)  # fmt: skip

_NOBODY = -1

_Answer = TypeVar("_Answer", bound=Message)


class Port(Protocol):
    """What a broker knows of leaders; `broker.mykafka.MyKafkaBroker` is what there is."""

    async def find(self, place: TopicPartition, timeout_s: float) -> int:
        """Who leads a partition; UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""

    def leads(self, place: TopicPartition) -> bool:
        """Say whether this broker leads a partition."""

    def address(self, node_id: int) -> tuple[str, int] | None:
        """Where another broker's gRPC door is."""


class RefusedError(Exception):
    """Another broker has ended the call with a status, and so must we."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class _UndoneError(Exception):
    """Nobody has carried the call out; it may be tried again."""


class _UnderWay:
    """A call that another broker has been asked to answer."""

    __slots__ = ("call", "give_up_at", "is_given_up", "leader", "place")

    def __init__(self, call: aio.UnaryUnaryCall[Any, Any], place: TopicPartition, leader: int) -> None:
        self.call = call
        self.place = place
        self.leader = leader
        self.give_up_at = float("inf")
        self.is_given_up = False

    def look(self, leader: int | None, now: float) -> None:
        """Give the call up some time after another one leads, None: the partition is gone."""
        if leader in (self.leader, _NOBODY):  # one without a leader may get the same again
            self.give_up_at = float("inf")
            return
        self.give_up_at = min(self.give_up_at, now + _GRACE_SECONDS)
        if now >= self.give_up_at:
            self.is_given_up = True
            self.call.cancel()


def is_forwarded(context: Context) -> bool:
    """Whether another broker has passed a call on."""
    return any(pair[0] == FORWARDED for pair in context.invocation_metadata() or ())


def time_left_s(context: Context) -> float | None:
    """How long there is to answer, less what it takes to say that there was not enough; None without a deadline."""
    left_s: float | None = context.time_remaining()
    return None if left_s is None else left_s - min(_MARGIN_SECONDS, left_s * _MARGIN_SHARE)


class Forwarding:
    """Finds who answers."""

    def __init__(self, port: Port, config: GrpcDoorConfig) -> None:
        self._port = port
        self._channels: dict[tuple[str, int], aio.Channel] = {}
        self._under_way: set[_UnderWay] = set()
        self._watch: asyncio.Task[None] | None = None  # over those; it ends with the last of them
        self._options = (
            ("grpc.max_receive_message_length", config.max_grpc_message_bytes),
            ("grpc.max_send_message_length", config.max_grpc_message_bytes),
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1_000),
            ("grpc.max_reconnect_backoff_ms", 1_000),
        )

    async def answer(
        self,
        place: TopicPartition,
        context: Context,
        here: Callable[[], Awaitable[_Answer]],
        there: tuple[str, Message, Callable[[bytes], _Answer]],
        *,
        may_repeat: bool,
    ) -> _Answer:
        """Have the partition's leader answer: by `here`, or by the method, request and answer of `there`."""
        loop = asyncio.get_running_loop()
        left_s = time_left_s(context)
        deadline = loop.time() + (RETRY_SECONDS_MAX if left_s is None else left_s)
        passes_on = not is_forwarded(context)
        while True:
            try:
                leader = await self._port.find(place, deadline - loop.time())
                if self._port.leads(place):
                    return await here()
                if not passes_on:
                    raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, f"this broker does not lead {place}")
                return await self._pass_on(place, leader, there, deadline, may_repeat=may_repeat)
            except PeerError as error:
                if error.code not in _NOT_THERE or isinstance(error, UnsureError):
                    raise
                why = error.message
            except _UndoneError as error:
                why = str(error)
            if loop.time() + _RETRY_SECONDS >= deadline:
                raise PeerError(ErrorCode.LEADER_NOT_AVAILABLE, why)
            await asyncio.sleep(_RETRY_SECONDS)

    async def ask(
        self,
        address: tuple[str, int],
        method: str,
        request: Message,
        decode: Callable[[bytes], _Answer],
        timeout_s: float,
    ) -> _Answer | None:
        """Ask one broker, once; None if it does not answer."""
        channel = self._channel(address)
        try:
            call = channel.unary_unary(method, type(request).SerializeToString, decode)
            return await call(request, timeout=timeout_s, metadata=((FORWARDED, "1"),), wait_for_ready=True)
        except aio.AioRpcError:
            return None

    async def close(self) -> None:
        """Hang up on other brokers, when calls under way have ended."""
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close(_CLOSE_SECONDS) for channel in channels))
        if self._watch is not None:
            self._watch.cancel()

    async def _pass_on(
        self,
        place: TopicPartition,
        leader: int,
        there: tuple[str, Message, Callable[[bytes], _Answer]],
        deadline: float,
        *,
        may_repeat: bool,
    ) -> _Answer:
        method, request, decode = there
        address = self._port.address(leader)
        if address is None:
            raise _UndoneError(f"nobody leads {place} at the moment whose gRPC door is open")
        channel = self._channel(address)
        await _connect(channel, deadline, f"the leader of {place}, broker {leader}, cannot be reached")
        left_s = deadline - asyncio.get_running_loop().time()
        method_there = channel.unary_unary(method, type(request).SerializeToString, decode)
        call = method_there(request, timeout=max(left_s, 0.0), metadata=((FORWARDED, "1"),))
        try:
            answer: _Answer = await self._watched(_UnderWay(call, place, leader))
            return answer
        except aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise _UndoneError(f"{place} has just changed its leader") from None
            if code not in _IN_DOUBT:
                raise RefusedError(code, details) from None
            if may_repeat:
                raise _UndoneError(f"the leader of {place}, broker {leader}: {details}") from None
            raise UnsureError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader}, which leads {place}: {details}") from None

    async def _watched(self, asked: _UnderWay) -> Any:
        """Wait for an answer; a status of our own if the one who is asked leads no longer."""
        self._under_way.add(asked)
        if self._watch is None:
            self._watch = asyncio.create_task(self._look_at_leaders())
        try:
            return await asked.call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not asked.is_given_up or (task is not None and task.cancelling()):
                raise
            nothing = aio.Metadata()
            text = "it did not answer, and leads no longer"
            raise aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing, details=text) from None
        finally:
            self._under_way.discard(asked)

    async def _look_at_leaders(self) -> None:
        """Give up calls whose partition has another leader by now."""
        loop = asyncio.get_running_loop()
        try:
            while self._under_way:
                await asyncio.sleep(_LOOK_SECONDS)
                for place in {asked.place for asked in self._under_way}:
                    leader = await self._leader(place)
                    for asked in [asked for asked in self._under_way if asked.place == place]:
                        asked.look(leader, loop.time())
        finally:
            self._watch = None

    async def _leader(self, place: TopicPartition) -> int | None:
        """Who leads a partition, as far as can be told now; None if it is gone."""
        try:
            return await self._port.find(place, _LOOK_SECONDS)
        except PeerError as error:
            return None if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else _NOBODY

    def _channel(self, address: tuple[str, int]) -> aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            host, port = address
            shown = f"[{host}]" if ":" in host else host
            channel = self._channels[address] = aio.insecure_channel(f"{shown}:{port}", options=self._options)
        return channel


async def _connect(channel: aio.Channel, deadline: float, problem: str) -> None:
    """Wait for a connection: a call that is sent over one that is there, and fails, may have been carried out."""
    loop = asyncio.get_running_loop()
    end = min(deadline, loop.time() + _CONNECT_SECONDS)
    while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
        try:
            async with asyncio.timeout_at(end):
                await channel.wait_for_state_change(state)
        except TimeoutError:
            raise _UndoneError(problem) from None


async def refuse(context: Context, error: RefusedError) -> NoReturn:
    """End a call as another broker has ended it."""
    await context.abort(error.code, error.details)
