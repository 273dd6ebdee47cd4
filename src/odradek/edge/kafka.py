"""The Kafka door: sockets around `wire.connection`, answers in the order of requests, a bound on everything.

Bytes go from the socket into a connection's buffer by the kernel, and from there into the log: a Produce request is
handled while it lies in that buffer. A client that breaks the protocol loses its own connection, with one line in the
log; one that sends more than it may is not read from until there is room.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic, perf_counter
from typing import NamedTuple, cast

from odradek.apis.api_versions import unsupported_version_answer
from odradek.apis.context import AnswerRoom, Context, Door
from odradek.apis.registry import Answer, Api
from odradek.edge.config import KafkaDoorConfig
from odradek.metrics import ApiStats, DoorStats
from odradek.wire.api import ApiKey
from odradek.wire.connection import FrameBuffer, frame_head
from odradek.wire.errors import DecodeError
from odradek.wire.headers import decode_request_header
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message

_HEAD = struct.Struct(">hhi")  # API key, version, correlation id
_unpack_head = _HEAD.unpack_from
_PRODUCE = int(ApiKey.PRODUCE)
_FETCH = int(ApiKey.FETCH)
_SWEEP_SECONDS = 1.0
_RESTING_SECONDS = 3.0  # a connection that is silent for so long gives its buffer back
_LAST_TURNS = 10  # of the loop, in which what is done already becomes an answer before all connections are closed
_GOODBYE_SECONDS = 1.0  # for clients to take their last answers
_JOINED_BYTES_MAX = 8 * 1024  # copying so little costs less than sending its pieces

logger = logging.getLogger(__name__)


class _Service(NamedTuple):
    """One API as connections use it."""

    api: Api
    flexible_since: int  # the first version whose answers have tagged fields in their header
    stats: ApiStats


class _Services(dict[int, _Service]):
    """The APIs by key, each prepared when it is first asked for."""

    def __init__(self, apis: Mapping[int, Api], stats: DoorStats) -> None:
        super().__init__()
        self._apis = apis
        self._stats = stats

    def __missing__(self, key: int) -> _Service:
        api = self._apis.get(key)
        if api is None:
            raise DecodeError(f"API key {key}, which is not served")
        flexible_since = api.versions.high + 1 if api.key is ApiKey.API_VERSIONS else api.flexible_since  # KIP-511
        service = self[key] = _Service(api, flexible_since, self._stats.api(api.key.name))
        return service


class _Pending:
    """A request whose answer is not sent yet: it is not ready, or one before it is not."""

    __slots__ = ("begun", "correlation_id", "future", "parts", "service", "version")

    def __init__(self, service: _Service, version: int, correlation_id: int, begun: float) -> None:
        self.service = service
        self.version = version
        self.correlation_id = correlation_id
        self.begun = begun
        self.parts: list[ReadBuffer] | None = None
        self.future: asyncio.Future[Answer] | None = None  # given up with the connection; a task is not


class KafkaConnection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._config = server.config
        self._frames = FrameBuffer(server.config.socket_first_request_max_bytes)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._context: Context | None = None  # of the last request: the next one's is mostly the same
        self._is_reading = True  # we let the transport read
        self._is_writing = True  # the transport lets us write
        self._is_closing = False
        self._is_stopping = False  # no more requests are taken
        self._has_ended = False  # the client sends no more
        self._waits_for_fetch = False  # as with Kafka's own brokers, nothing is taken up behind a fetch that waits
        self._counted = False  # among the server's connections
        self.peer = "?"
        self.heard_at = monotonic()
        self.frame_begun_at: float | None = None  # a frame has begun and is not whole
        self.stalled_at: float | None = None  # the client does not read
        self._stalled_bytes = 0  # what it has not read, as it was then

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) and name else "local"
        if not self._server.admit(self):
            self._is_closing = True
            self._transport.abort()
            return
        self._counted = True
        self._transport.set_write_buffer_limits(high=self._config.connection_queued_max_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._is_closing = True
        if self._counted:
            self._server.forget(self)
        self._count_stalled(0)
        for pending in self._pending:
            if pending.future is not None:
                pending.future.cancel()
        self._pending.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport may write what it reads."""
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self.heard_at = monotonic()
        self._frames.received(nbytes)
        self._process()

    def eof_received(self) -> bool:
        """The client sends no more; answers that it waits for are still sent, but for a fetch, which may wait long."""
        if not self._frames.is_empty and self._has_room:
            self._drop("it closed the connection in the middle of a request")
        self._has_ended = True
        return bool(self._pending) and not self._waits_for_fetch

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks."""
        assert self._transport is not None
        self._is_writing = False
        self.stalled_at = monotonic()
        self._count_stalled(self._transport.get_write_buffer_size())
        self._balance()

    def resume_writing(self) -> None:
        """It has read."""
        self._is_writing = True
        self.stalled_at = None
        self._count_stalled(0)
        self._process()

    def _count_stalled(self, size_bytes: int) -> None:
        self._server.room.left_bytes += self._stalled_bytes - size_bytes
        self._stalled_bytes = size_bytes

    # Requests.

    def _process(self) -> None:
        """Handle the whole requests in the buffer, as long as there is room for their answers."""
        try:
            while self._has_room and (frame := self._frames.next_frame()) is not None:
                self.frame_begun_at = None
                self._handle(frame)
        except DecodeError as error:
            self._drop(str(error))
        if self._is_closing:
            return
        if self._frames.is_empty or not self._has_room:
            self.frame_begun_at = None
        elif self.frame_begun_at is None:
            self.frame_begun_at = monotonic()
        if self._is_reading != self._wants_bytes:
            self._balance()

    @property
    def _has_room(self) -> bool:
        is_open = self._is_writing and not (self._is_closing or self._is_stopping or self._waits_for_fetch)
        return is_open and len(self._pending) < self._config.connection_requests_max

    @property
    def _wants_bytes(self) -> bool:
        """Whether to read: there is room, or a fetch waits and only reading tells that its client is gone."""
        waits_only = self._waits_for_fetch and self._frames.is_empty
        return self._has_room or (waits_only and self._is_writing and not self._is_stopping)

    def _balance(self) -> None:
        """Read from the client if and only if its bytes are wanted."""
        assert self._transport is not None
        if self._is_reading != self._wants_bytes and not self._is_closing:
            self._is_reading = not self._is_reading
            if self._is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _handle(self, frame: memoryview) -> None:
        begun = perf_counter()
        try:
            key, version, correlation_id = _unpack_head(frame)
        except struct.error:
            raise DecodeError(f"a request of {len(frame)} bytes; its head alone takes {_HEAD.size}") from None
        service = self._server.services[key]
        api, _, stats = service
        if not api.versions[0] <= version <= api.versions[1]:
            self._refuse_version(service, version, correlation_id, begun)
            return
        if key != _PRODUCE:  # its handler is done with the buffer when it returns; others may wait
            frame = memoryview(bytes(frame))
        header, at = decode_request_header(frame)
        request = api.request.decode(frame, version, at)
        stats.request_bytes += len(frame)
        context, client_id = self._context, header.client_id or ""
        if context is None or context.version != version or context.client_id != client_id:
            self._frames.allow(self._config.socket_request_max_bytes)
            context = self._context = Context(self._server.door, version, client_id, self.peer)
        try:
            answer = api.handle(context, request)
        except Exception:
            self._fail(service)
            return
        if answer is None:  # the client wants none
            stats.latency.observe(perf_counter() - begun)
            return
        pending = _Pending(service, version, correlation_id, begun)
        self._pending.append(pending)
        if isinstance(answer, Message):
            self._finish(pending, answer)
            return
        if isinstance(answer, asyncio.Future):
            future = pending.future = answer
        else:
            future = self._server.run(cast("Coroutine[None, None, Answer]", answer))
        if key == _FETCH:
            self._waits_for_fetch = True
            pending.future = future
        future.add_done_callback(partial(self._answered, pending))

    def _refuse_version(self, service: _Service, version: int, correlation_id: int, begun: float) -> None:
        """ApiVersions of an unknown version gets version 0's answer (KIP-511); any other ends the connection."""
        api = service.api
        if api.key is not ApiKey.API_VERSIONS:
            raise DecodeError(f"{api.key.name} version {version}; {api.versions[0]} to {api.versions[1]} are served")
        pending = _Pending(service, 0, correlation_id, begun)
        self._pending.append(pending)
        self._finish(pending, unsupported_version_answer(self._server.door.served))

    # Answers.

    def _answered(self, pending: _Pending, done: asyncio.Future[Answer]) -> None:
        """A handler that waited is done; on the way back its answer waits for those before it."""
        if done.cancelled():
            return
        if pending.service.api.key == _FETCH:
            self._waits_for_fetch = False
        error = done.exception()
        if self._is_closing:
            return
        if error is not None:
            logger.error("a bug in %s: %r", pending.service.api.key.name, error, exc_info=error)
            self._fail(pending.service, logged=True)
            return
        answer = done.result()
        assert answer is not None
        self._finish(pending, answer)
        self._process()

    def _finish(self, pending: _Pending, answer: Message) -> None:
        try:
            self._encode(pending, answer)
        except ValueError:
            self._fail(pending.service)
        else:
            self._send_ready()

    def _encode(self, pending: _Pending, answer: Message) -> None:
        _, flexible_since, stats = pending.service
        parts = answer.encode_parts(pending.version)
        size = sum(map(len, parts))
        head = frame_head(pending.correlation_id, pending.version >= flexible_since, size)
        stats.response_bytes += len(head) + size
        parts.insert(0, head)
        pending.parts = parts if size > _JOINED_BYTES_MAX else [b"".join(parts)]

    def _send_ready(self) -> None:
        """Send the answers that are ready, in the order of their requests."""
        assert self._transport is not None
        pending = self._pending
        while pending and (parts := pending[0].parts) is not None:
            first = pending.popleft()
            first.service.stats.latency.observe(perf_counter() - first.begun)
            if not self._is_closing:
                self._transport.writelines(parts)
        if self._has_ended and not pending:
            self.close()

    # Ends.

    def _fail(self, service: _Service, logged: bool = False) -> None:
        """Our own bug: it is told in the log with all that is known, and costs this client its connection."""
        if not logged:
            logger.exception("a bug in %s", service.api.key.name)
        service.stats.errors += 1
        self._end()

    def _drop(self, reason: str) -> None:
        """Theirs: one line."""
        if self._is_closing:
            return
        logger.warning("connection from %s dropped: %s", self.peer, reason)
        self._server.stats.connections_dropped += 1
        self._end()

    def _end(self) -> None:
        self._is_closing = True
        self.abort()

    def check_deadlines(self, now: float) -> None:
        """Let go of a client that is too slow, or silent for too long; called every second."""
        config = self._config
        if self.stalled_at is not None:
            self._see_whether_it_reads(now)
        if self.frame_begun_at is not None and (now - self.frame_begun_at) * 1000 > config.socket_frame_timeout_ms:
            self._drop(f"a request did not arrive in full within {config.socket_frame_timeout_ms} ms")
        elif self.stalled_at is not None and (now - self.stalled_at) * 1000 > config.socket_stall_timeout_ms:
            self._drop(f"it has not read its answers for {config.socket_stall_timeout_ms} ms")
        elif not self._pending and (now - self.heard_at) * 1000 > config.connections_max_idle_ms:
            logger.info("connection from %s closed: it was idle", self.peer)
            self._server.stats.connections_dropped += 1
            self.close()
        elif now - self.heard_at > _RESTING_SECONDS:
            self._frames.rest()

    def _see_whether_it_reads(self, now: float) -> None:
        """A slow reader is none that stalls, as long as it gets on."""
        assert self._transport is not None
        size_bytes = self._transport.get_write_buffer_size()
        if size_bytes < self._stalled_bytes:
            self.stalled_at = now
            self._count_stalled(size_bytes)

    def stop_reading(self) -> None:
        """Take no more requests; answers under way are still sent."""
        self._is_stopping = True
        self._balance()

    def close(self) -> None:
        """Send what is written, then close."""
        if self._transport is not None and not self._is_closing:
            self._is_closing = True
            self._transport.close()

    def abort(self) -> None:
        """Close, whatever is not sent yet."""
        if self._transport is not None:
            self._transport.abort()


class KafkaServer:
    """The listener and its connections."""

    def __init__(self, config: KafkaDoorConfig, apis: Mapping[int, Api], stats: DoorStats) -> None:
        self.config = config
        self.services = _Services(apis, stats)
        self.stats = stats
        self.room = AnswerRoom(config.queued_answers_max_bytes)
        self.door: Door
        self.tasks: set[asyncio.Task[Answer]] = set()  # handlers that wait
        self._connections: set[KafkaConnection] = set()
        self._is_empty = asyncio.Event()  # there are no connections
        self._is_empty.set()
        self._by_address: dict[str, int] = {}
        self._refusals_told: set[str] = set()
        self._listener: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Take the address; OSError if somebody has it. Nobody is answered before `open`."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: KafkaConnection(self), host, port, backlog=1024, start_serving=False
        )
        address = self._listener.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def open(self, door: Door) -> None:
        """Begin to answer."""
        assert self._listener is not None
        self.door = door
        await self._listener.start_serving()
        self._sweep_later()

    def admit(self, connection: KafkaConnection) -> bool:
        """Count a connection, or refuse it: too many, in all or from its address."""
        address, config = connection.peer, self.config
        there = self._by_address.get(address, 0)
        if len(self._connections) >= config.max_connections_per_broker or there >= config.max_connections_per_ip:
            self.stats.connections_refused += 1
            if address not in self._refusals_told:  # once until it is better: a flood must not fill the log
                self._refusals_told.add(address)
                logger.warning(
                    "connections from %s refused: %d are open (max.connections.per.ip, max.connections.per.broker)",
                    address,
                    there,
                )
            return False
        self._by_address[address] = there + 1
        self._connections.add(connection)
        self._is_empty.clear()
        self.stats.connections += 1
        self.stats.connections_accepted += 1
        return True

    def forget(self, connection: KafkaConnection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()
        self.stats.connections -= 1
        left = self._by_address[connection.peer] - 1
        if left:
            self._by_address[connection.peer] = left
        else:
            del self._by_address[connection.peer]
            self._refusals_told.discard(connection.peer)

    def run(self, handler: Coroutine[None, None, Answer]) -> asyncio.Task[Answer]:
        """Let a handler wait for something."""
        task = asyncio.get_running_loop().create_task(handler)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._check_deadlines)

    def _check_deadlines(self) -> None:
        now = monotonic()
        for connection in tuple(self._connections):
            connection.check_deadlines(now)
        self._refusals_told.clear()
        self._sweep_later()

    def stop_reading(self) -> None:
        """Take no more connections and no more requests."""
        if self._listener is not None:
            self._listener.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self._connections:
            connection.stop_reading()

    async def close(self) -> None:
        """Send what is answered, close all connections; handlers that still wait are cancelled."""
        self.stop_reading()
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for connection in tuple(self._connections):
            connection.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), _GOODBYE_SECONDS)
        for connection in tuple(self._connections):
            connection.abort()
        if self._listener is not None:
            await self._listener.wait_closed()
