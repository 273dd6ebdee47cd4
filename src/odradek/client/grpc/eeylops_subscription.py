"""Reads a partition by a Subscribe stream, which is opened anew at the right offset when it breaks or the leader moves.

What was handled is committed from here, not by the broker: only the reader knows that a value is done with. That is the
case when it asks for the next one, so that one which fails meanwhile comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self

import grpc

from odradek.client.errors import BrokerUnavailableError, ClientError
from odradek.client.grpc.channels import Channel, Opened, as_client_error
from odradek.client.grpc.eeylops_links import PASSING, Deadline, Links, check
from odradek.client.grpc.eeylops_types import Batch, Reading, Value
from odradek.client.grpc.errors import EeylopsError
from odradek.proto import eeylops_pb2 as pb

COMMIT_SECONDS = 1.0  # at most so much is read again after a crash
STABLE_SECONDS = 5.0  # a stream that lasted so long has a whole deadline to be opened anew
QUIET_SECONDS = 0.2  # without new values, what was handled is committed after this

Commit = Callable[[str, int, int, int], Awaitable[None]]
Register = Callable[[str, int, int], Awaitable[None]]


class AsyncSubscription(Opened):
    """The values of a partition as they come; an async iterator, and a context manager that leaves in good order."""

    def __init__(self, links: Links, reading: Reading, *, commit: Commit | None, register: Register) -> None:
        self._links = links
        self._reading = reading
        self._commit = commit
        self._register = register
        self._is_registered = not reading.consumer
        self._at_hand = reading.follower  # until the broker at hand says that it has no replica
        self._opened_at = 0.0
        self._stream: Any = None  # the call under way
        self._channel: Channel | None = None
        self._next_read: asyncio.Task[Any] | None = None
        self._values: deque[Value] = deque()  # of the last batch, not given yet
        self._batch_end = -1  # where the last batch ends
        self._position = -1  # the next offset that is not handled; -1: not known yet
        self._committed = -1
        self._committed_at = 0.0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Value:
        if not self._values:
            batch = await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._values.extend(batch.values)
        value = self._values.popleft()
        self._position = value.offset
        return value

    async def next_batch(self) -> Batch | None:
        """The next values; None at the end, if one was asked for. All that was given before counts as handled."""
        if self._batch_end >= 0:
            self._position = self._batch_end
        deadline = Deadline(self._links.timeout_s)
        while True:
            try:
                batch = await self._read(deadline)
            except EeylopsError as error:
                if error.code not in PASSING:
                    raise
                self._links.learn(self._reading.place, error)
                problem: ClientError = error
            except BrokerUnavailableError as error:
                self._links.forget(self._reading.place)
                problem = error
            else:
                if batch is None:
                    return None
                self._batch_end = batch.next_offset
                if batch.values:
                    return batch
                if self._position < 0:
                    self._position = batch.next_offset
                deadline = Deadline(self._links.timeout_s)
                continue
            self._hang_up()
            self._at_hand = False
            if asyncio.get_running_loop().time() - self._opened_at > STABLE_SECONDS:
                deadline = Deadline(self._links.timeout_s)  # it was well for a while: this is a new trouble
            await deadline.pause(problem)

    def handled_up_to(self, offset: int) -> None:
        """Say that the values before an offset are done with; for those who take whole batches."""
        self._position = offset

    async def close(self) -> None:
        """Commit what was handled, and leave."""
        self._hang_up()
        await self._commit_handled()

    async def _read(self, deadline: Deadline) -> Batch | None:
        """One answer of the stream, which is opened if there is none."""
        if self._stream is None:
            await self._open(deadline)
        assert self._channel is not None
        if self._next_read is None:
            self._next_read = asyncio.create_task(self._stream.read())
        if self._commit is not None:
            await asyncio.wait({self._next_read}, timeout=QUIET_SECONDS)
            is_time = asyncio.get_running_loop().time() - self._committed_at >= COMMIT_SECONDS
            if is_time or not self._next_read.done():
                await self._commit_handled()
        # Who gives up waiting does not end the read: the next call goes on with it.
        await asyncio.wait({self._next_read})
        done, self._next_read = self._next_read, None
        try:
            answer = done.result()
        except grpc.aio.AioRpcError as error:
            raise as_client_error(error, str(self._channel.address)) from None
        if answer is grpc.aio.EOF:
            self._check_end()
            return None
        check(answer.error)
        return Batch(as_values(answer), answer.next_offset)

    def _check_end(self) -> None:
        """The broker has nothing more; that is the end if one was asked for, else it stops."""
        assert self._channel is not None
        if not self._reading.until_ms:
            raise BrokerUnavailableError(str(self._channel.address), "it ended the stream")

    async def _open(self, deadline: Deadline) -> None:
        reading, place = self._reading, self._reading.place
        if not self._is_registered:
            await self._register(reading.consumer, *place)
            self._is_registered = True
        if self._batch_end >= 0:  # it was open before: go on behind what came
            reading = reading._replace(offset=self._batch_end, since_ms=0, resume=False)
        channel = self._links.at_hand() if self._at_hand else await self._links.leader(place, deadline)
        await channel.connect(deadline.left_s())
        self._channel, self._opened_at = channel, asyncio.get_running_loop().time()
        self._stream = channel.stub.Subscribe(as_request(reading, auto_commit=False), metadata=metadata_of(reading))

    def _hang_up(self) -> None:
        if self._next_read is not None:
            if not self._next_read.cancel() and not self._next_read.cancelled():
                self._next_read.exception()  # nobody wants to know it any more
            self._next_read = None
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _commit_handled(self) -> None:
        if self._commit is None or self._position < 0 or self._position == self._committed:
            return
        position = self._position
        await self._commit(self._reading.consumer, *self._reading.place, position)
        self._committed, self._committed_at = position, asyncio.get_running_loop().time()


def as_request(reading: Reading, *, auto_commit: bool) -> pb.ConsumeRequest:
    """The request for what a reader wants."""
    return pb.ConsumeRequest(
        consumer_id=reading.consumer,
        topic_id=reading.place.topic_id,
        partition_id=reading.place.partition_id,
        batch_size=reading.batch_size,
        start_offset=reading.offset,
        start_timestamp=reading.since_ms,
        end_timestamp=reading.until_ms,
        auto_commit=auto_commit,
        resume_from_last_committed_offset=reading.resume,
    )


def as_values(answer: pb.ConsumeResponse) -> list[Value]:
    """The values of an answer."""
    return [Value(value.offset, value.timestamp, value.value) for value in answer.values]


def metadata_of(reading: Reading) -> tuple[tuple[str, str], ...] | None:
    """What goes beside a request: whether a follower may answer."""
    return (("odradek-follower", "1"),) if reading.follower else None
