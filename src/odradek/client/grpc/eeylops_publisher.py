"""Sends many values to one partition by Publish streams: requests of many values, streams of many requests.

One stream is under way at a time, so that order holds; it ends when there is nothing to send, or when it is so long
that its answer is wanted. What a stream did not confirm is sent again, at the leader that there is then: at least once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from types import TracebackType

from odradek.client.errors import BrokerUnavailableError, ClientError
from odradek.client.grpc.channels import Opened
from odradek.client.grpc.eeylops_links import NOT_LEADER, Deadline, Links, check
from odradek.client.grpc.eeylops_types import Place
from odradek.client.grpc.errors import EeylopsError
from odradek.proto import eeylops_pb2 as pb

REQUEST_VALUES_MAX = 1_000
REQUEST_BYTES_MAX = 256 * 1024  # a larger value is a request of its own
WINDOW_BYTES_MAX = 4 * 1024 * 1024  # taken and not stored; who sends more waits
STREAM_BYTES_MAX = 4 * 1024 * 1024  # then a stream ends, and its answer frees what it held
VALUE_BYTES_MORE = 64  # what a value costs beside its bytes

STORED = "odradek-stored"  # metadata behind the answer: so many requests of the stream, from the first on, are stored


class AsyncPublisher(Opened):
    """Takes values one by one; an async context manager, whose end waits until all are stored."""

    def __init__(self, links: Links, place: Place, on_stored: Callable[[int], None] | None = None) -> None:
        self.stored = 0  # values
        self.held_bytes = 0  # taken, not stored
        self.error: ClientError | None = None  # why it cannot go on; what is not stored then is given up
        self._links = links
        self._place = place
        self._on_stored = on_stored
        self._values: list[bytes] = []  # of the request that is being filled
        self._values_bytes = 0
        self._requests: deque[tuple[pb.ProduceRequest, int]] = deque()  # full ones, each with its cost in bytes
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Wait until all is stored; raises the error because of which some is not."""
        try:
            if self._task is not None:
                await self.flush()
        finally:
            await self._end()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        elif issubclass(kind, Exception):  # what was taken is stored all the same, if that is possible
            with suppress(ClientError):
                await self.close()
        else:  # somebody wants it to end now
            await self._end()

    async def send(self, value: bytes) -> None:
        """Take a value; it waits only while there are too many bytes that are not stored."""
        self.take((value,))
        if self.held_bytes >= WINDOW_BYTES_MAX:
            await self.room()

    async def send_many(self, values: Iterable[bytes]) -> None:
        """Take values one behind the other."""
        for value in values:
            await self.send(value)

    async def flush(self) -> None:
        """Wait until all that was taken is stored; raises the error because of which some is not."""
        while self.held_bytes:
            await self._wait()
        self._check()

    async def room(self) -> None:
        """Wait until more values can be taken."""
        while self.held_bytes >= WINDOW_BYTES_MAX:
            await self._wait()
        self._check()

    def take(self, values: Iterable[bytes]) -> None:
        """Take values without waiting; who does not wait for `room` now and then fills the memory."""
        self._check()
        for value in values:
            cost = len(value) + VALUE_BYTES_MORE
            if self._values and self._values_bytes + cost > REQUEST_BYTES_MAX:
                self._seal()
            self._values.append(value)
            self._values_bytes += cost
            self.held_bytes += cost
            if len(self._values) >= REQUEST_VALUES_MAX:
                self._seal()
        self._work.set()

    def _seal(self) -> None:
        """Make a request of the values that wait."""
        request = pb.ProduceRequest(
            topic_id=self._place.topic_id, partition_id=self._place.partition_id, values=self._values
        )
        self._requests.append((request, self._values_bytes))
        self._values, self._values_bytes = [], 0

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
        if self._task is None or self._task.done():
            if self._task is not None and not self._task.cancelled():
                self._task.result()
            raise RuntimeError("the publisher is not open: use it in an 'async with' block")

    async def _wait(self) -> None:
        self._check()
        self._progress.clear()
        await self._progress.wait()

    # What goes on behind it.

    async def _run(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while self._values or self._requests:
                    await self._store()
        except ClientError as error:
            self.error = error
        finally:
            self._progress.set()

    async def _store(self) -> None:
        """Store what waits, by as many streams as it takes until one ends well."""
        deadline = Deadline(self._links.timeout_s)
        while True:
            stream = _Stream()
            try:
                channel = await self._links.leader(self._place, deadline)
                await channel.connect(deadline.left_s())
                call = channel.stub.Publish(self._outgoing(stream), timeout=deadline.left_s())
                answer = await channel.ask(call)
                if answer.error.error_code == pb.KNoError:
                    self._confirm(stream.requests)
                    return
                done = _stored_requests(await call.trailing_metadata())
                self._confirm(stream.requests[:done])
                del stream.requests[:done]
                if done:
                    deadline = Deadline(self._links.timeout_s)
                check(answer.error)
            except EeylopsError as error:
                if error.code not in NOT_LEADER:
                    raise
                self._links.learn(self._place, error)
                problem: ClientError = error
            except BrokerUnavailableError as error:
                self._links.forget(self._place)
                problem = error
            finally:
                stream.is_open = False
            self._requests.extendleft(reversed(stream.requests))
            await deadline.pause(problem)

    async def _outgoing(self, stream: _Stream) -> AsyncIterator[pb.ProduceRequest]:
        """The requests of one stream: all that waits and comes meanwhile, up to a bound."""
        sent_bytes = 0
        while stream.is_open and sent_bytes < STREAM_BYTES_MAX:
            if not self._requests:
                if not self._values:
                    return
                self._seal()
            request, cost = self._requests.popleft()
            stream.requests.append((request, cost))
            sent_bytes += cost
            yield request

    def _confirm(self, done: list[tuple[pb.ProduceRequest, int]]) -> None:
        """These requests are stored."""
        if not done:
            return
        count = sum(len(request.values) for request, _ in done)
        self.held_bytes -= sum(cost for _, cost in done)
        self.stored += count
        self._progress.set()
        if self._on_stored is not None:
            self._on_stored(count)


class _Stream:
    """One Publish call: what it was given, which nobody else has then."""

    def __init__(self) -> None:
        self.requests: list[tuple[pb.ProduceRequest, int]] = []
        self.is_open = True  # gRPC may ask for one more request when the answer is there: it gets none


def _stored_requests(metadata: Iterable[tuple[str, str | bytes]] | None) -> int:
    """How many requests of a stream that failed are stored, as the broker says; none, if it does not say."""
    told = dict(metadata or ()).get(STORED, "0")
    return int(told) if told.isdigit() else 0
