"""Values for Eeylops' door (seed 004): one request, or a stream of them, stored as acks=all promises.

Requests of a stream that wait are joined into one append a partition; the next are appended while those before them are
not safe yet. A stream holds no more bytes than its bound, and stores in the order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from odradek.broker.broker import Broker
from odradek.broker.eeylops_topics import EeylopsTopics
from odradek.broker.value_writing import Prepared, ValueWriter
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError

_JOIN_BYTES = 256 << 10  # so much is appended at once, though what was appended before it is not safe yet
_VALUE_BYTES_MORE = 16  # what a value that waits takes in memory beside its own bytes
VALUES_MAX = 65_536  # of one request: more would keep everybody else waiting
_FIND_TIMEOUT_MS = 5_000


class Request(NamedTuple):
    """Values for a partition, as they came."""

    topic_id: int
    partition_id: int
    values: Sequence[bytes]
    size_bytes: int  # of the message

    @property
    def held_bytes(self) -> int:
        """What it takes in memory, about."""
        return self.size_bytes + _VALUE_BYTES_MORE * len(self.values)


class PublishError(Exception):
    """A stream ended at a request that failed."""

    def __init__(self, error: PeerError, request: Request, stored: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.request = request
        self.stored = stored  # requests before it, all safe


class EeylopsWriting:
    """Stores values in the partitions that this broker leads."""

    def __init__(self, broker: Broker, topics: EeylopsTopics) -> None:
        self._topics = topics
        self._writer = ValueWriter(broker)

    async def produce(self, request: Request, timeout_ms: int) -> None:
        """Store one request's values; it returns when they are safe."""
        await self.find(request, timeout_ms)
        place = self.place(request)
        await self.safe(place, self.append(self.prepare(place, list(request.values))))

    async def find(self, request: Request, timeout_ms: int = _FIND_TIMEOUT_MS) -> None:
        """Give a topic that was made at another broker a moment ago the time to be known here."""
        await self._topics.find(request.topic_id, timeout_ms)

    def place(self, request: Request) -> TopicPartition:
        """Where a request's values go; PeerError if it cannot be stored at all, or there is no such place."""
        count = len(request.values)
        if not 1 <= count <= VALUES_MAX:
            raise PeerError(
                ErrorCode.INVALID_REQUEST, f"a request has 1 to {VALUES_MAX} values; this one has {count}: send others"
            )
        return self._topics.place(request.topic_id, request.partition_id)

    def prepare(self, place: TopicPartition, values: Sequence[bytes]) -> Prepared:
        """Make batches of values."""
        return self._writer.prepare(place, values, None)

    def append(self, prepared: Prepared) -> asyncio.Future[None]:
        """Write batches; the future is done when they are safe."""
        future = self._writer.append(prepared)[1]
        future.add_done_callback(_look_at)
        return future

    async def safe(self, place: TopicPartition, future: asyncio.Future[None]) -> None:
        """Wait for that."""
        await self._writer.safe(place, future)


class _Round(NamedTuple):
    """Requests that were appended together, and what is waited for."""

    requests: list[tuple[Request, TopicPartition]]
    futures: dict[TopicPartition, asyncio.Future[None]]


class PublishStream:
    """One client's stream of requests."""

    def __init__(self, writing: EeylopsWriting, bytes_max: int) -> None:
        self.stored = 0  # requests that are safe, with all before them
        self._writing = writing
        self._bytes_max = bytes_max
        self._queue: list[Request] = []  # taken, not appended
        self._queue_bytes = 0
        self._held_bytes = 0  # taken, not safe
        self._rounds: deque[_Round] = deque()  # appended, not safe
        self._refused: tuple[PeerError, Request] | None = None  # not appended; those before it are waited for first
        self._has_ended = False  # nothing more comes
        self._moved = asyncio.Event()  # set when something was appended, became safe, was refused, or has ended

    async def run(self, requests: AsyncIterator[Request]) -> int:
        """Store all that comes; how many requests it was. PublishError at the first that fails."""
        reading = asyncio.create_task(self._read(requests))
        try:
            await self._confirm()
        finally:
            reading.cancel()  # where it has not ended: the client need not send what is not stored
            with suppress(asyncio.CancelledError):
                await reading
        return self.stored

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        """Take requests as long as there is room."""
        try:
            async for request in requests:
                try:
                    await self._writing.find(request)
                except PeerError as error:
                    self._append()
                    self._refused = self._refused or (error, request)
                    return
                self._queue.append(request)
                self._queue_bytes += request.held_bytes
                self._held_bytes += request.held_bytes
                if not self._rounds or self._queue_bytes >= _JOIN_BYTES:
                    self._append()
                while self._held_bytes >= self._bytes_max and self._refused is None:
                    self._moved.clear()
                    await self._moved.wait()
                if self._refused is not None:
                    return
        finally:
            self._has_ended = True
            self._moved.set()

    def _append(self) -> None:
        """Append all that waits, up to the first request that is refused."""
        requests, self._queue, self._queue_bytes = self._queue, [], 0
        if not requests or self._refused is not None:
            return
        try:
            self._append_joined(requests)
        except PeerError:  # one of them, perhaps the last
            self._append_each(requests)
        self._moved.set()

    def _append_joined(self, requests: Sequence[Request]) -> None:
        placed = [(request, self._writing.place(request)) for request in requests]
        values: dict[TopicPartition, list[bytes]] = {}
        for request, place in placed:
            values.setdefault(place, []).extend(request.values)
        prepared = {place: self._writing.prepare(place, each) for place, each in values.items()}
        self._rounds.append(_Round(placed, {place: self._appended(each) for place, each in prepared.items()}))

    def _append_each(self, requests: Sequence[Request]) -> None:
        for request in requests:
            try:
                place = self._writing.place(request)
                prepared = self._writing.prepare(place, list(request.values))
            except PeerError as error:
                self._refused = (error, request)
                return
            self._rounds.append(_Round([(request, place)], {place: self._appended(prepared)}))

    def _appended(self, prepared: Prepared) -> asyncio.Future[None]:
        """Append; what goes wrong now is heard when it is waited for, in its turn."""
        try:
            return self._writing.append(prepared)
        except PeerError as error:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.add_done_callback(_look_at)
            future.set_exception(error)
            return future

    async def _confirm(self) -> None:
        """Wait for one round after the other."""
        while True:
            while self._rounds:
                await self._confirm_round(self._rounds[0])
                self._rounds.popleft()
                self._moved.set()
                if not self._rounds:
                    self._append()
            if self._refused is not None:
                raise PublishError(*self._refused, self.stored)
            if self._has_ended and not self._queue:
                return
            self._moved.clear()
            await self._moved.wait()

    async def _confirm_round(self, appended: _Round) -> None:
        for request, place in appended.requests:
            future = appended.futures[place]
            try:
                if not future.done() or future.cancelled() or future.exception() is not None:
                    await self._writing.safe(place, future)
            except PeerError as error:
                raise PublishError(error, request, self.stored) from None
            self.stored += 1
            self._held_bytes -= request.held_bytes


def _look_at(future: asyncio.Future[None]) -> None:
    """Nobody may be left who waits for it: the stream has ended before."""
    if not future.cancelled():
        future.exception()
