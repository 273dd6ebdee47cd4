"""Single messages for MyKafka's door (seed 001): what arrives while the last write is made safe goes into one batch.

A caller gets his message's offset when it is as safe as acks=all promises. Partitions are those that this broker leads;
what is refused is refused by PeerError, and UnsureError says that nobody knows whether the message stays.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeAlias

from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition
from odradek.broker.value_writing import ValueWriter
from odradek.log.config import LogConfig
from odradek.records.header import HEADER_BYTES
from odradek.wire.errors import ErrorCode, PeerError

_SAFE_SECONDS_MAX = 30.0  # for all replicas in sync to have a message, where the caller sets no deadline
_MESSAGE_BYTES_MORE = 32  # what a message takes at most in its batch beside its own bytes

_Sends: TypeAlias = "list[tuple[bytes, asyncio.Future[int]]]"


class UnsureError(PeerError):
    """Whether the message is stored, and stays so, is not known."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(code, f"whether the message is stored is not known: {why}")


class _Outbox:
    """The messages of a partition that are on their way."""

    __slots__ = ("unsafe", "waiting")

    def __init__(self) -> None:
        self.waiting: _Sends = []  # not written yet
        self.unsafe = 0  # batches that are written, and not safe yet


class MyKafkaSending:
    """Writes messages, one by one for those who send them, batch by batch for the log."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._writer = ValueWriter(broker)
        self._loop = asyncio.get_running_loop()
        self._outboxes: dict[Partition, _Outbox] = {}  # only of partitions that have something to do

    async def send(self, topic: str, index: int, payload: bytes, timeout_s: float | None) -> int:
        """Store a message and give its offset; without a timeout it is waited for as long as the broker does."""
        partition = self._broker.partition(topic, index)
        if partition.topic.is_internal:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{topic} is written by the broker only")
        outbox = self._outboxes.get(partition)
        if outbox is None:
            outbox = self._outboxes[partition] = _Outbox()
            # At the end of this turn of the loop, so that all that arrived in it shares the batch.
            self._loop.call_soon(self._write, partition, outbox)
        future: asyncio.Future[int] = self._loop.create_future()
        outbox.waiting.append((payload, future))
        if partition.progress is None:  # nobody else is waited for
            return await future
        try:
            async with asyncio.timeout(_SAFE_SECONDS_MAX if timeout_s is None else timeout_s):
                return await future
        except TimeoutError:
            raise UnsureError(ErrorCode.REQUEST_TIMED_OUT, f"too few replicas of {partition.tp} have it") from None

    def _write(self, partition: Partition, outbox: _Outbox) -> None:
        waiting, outbox.waiting = outbox.waiting, []
        sends = [each for each in waiting if not each[1].done()]  # the others have hung up
        for group in _grouped(sends, partition.log.config):
            try:
                prepared = self._writer.prepare(partition.tp, [payload for payload, _ in group], None)
                written, safe = self._writer.append(prepared)
            except Exception as error:  # whatever it was, those who wait must hear of it
                for _, future in group:
                    future.set_exception(_copy(error))
                continue
            outbox.unsafe += 1
            safe.add_done_callback(partial(self._settle, partition, outbox, group, written.first_offset))
        self._rest(partition, outbox)

    def _settle(
        self, partition: Partition, outbox: _Outbox, group: _Sends, first_offset: int, safe: asyncio.Future[None]
    ) -> None:
        """A batch is safe, or never will be."""
        outbox.unsafe -= 1
        error = safe.exception()
        if isinstance(error, CLIENT_FAULTS):
            self._broker.heed(error)
            error = peer_error(error)
        for at, (_, future) in enumerate(group, first_offset):
            if future.done():
                continue
            if error is None:
                future.set_result(at)
            else:
                future.set_exception(UnsureError(error.code, error.message) if isinstance(error, PeerError) else error)
        self._rest(partition, outbox)

    def _rest(self, partition: Partition, outbox: _Outbox) -> None:
        """Write what has come meanwhile, when all before it is safe."""
        if outbox.unsafe:
            return
        if outbox.waiting:
            self._loop.call_soon(self._write, partition, outbox)
        elif self._outboxes.get(partition) is outbox:
            del self._outboxes[partition]


def _grouped(sends: _Sends, config: LogConfig) -> list[_Sends]:
    """Messages by batches that are no larger than a segment; one that is too large for any stands alone."""
    size_max = min(config.max_message_bytes, config.segment_bytes) - HEADER_BYTES
    groups: list[_Sends] = []
    size_bytes = size_max + 1
    for send in sends:
        send_bytes = len(send[0]) + _MESSAGE_BYTES_MORE
        if size_bytes + send_bytes > size_max:
            groups.append([])
            size_bytes = 0
        groups[-1].append(send)
        size_bytes += send_bytes
    return groups


def _copy(error: Exception) -> Exception:
    """An error for each who waits: one raised in many places would collect the tracebacks of all."""
    return PeerError(error.code, error.message) if isinstance(error, PeerError) else error
