"""Producing: `send` waits for the broker's word, `send_soon` hands out a future, and batches form by themselves.

Idempotent unless told otherwise: retries neither duplicate nor reorder the records of a partition. Without idempotence
a retry may do both. Memory is bounded by `buffer_bytes`: `send` waits for room, `send_soon` refuses. No transactions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeAlias

from odradek.client.accumulator import Delivery, DeliveryFuture, PartitionQueue, Tally, fail_delivery
from odradek.client.cluster import Cluster, TopicInfo
from odradek.client.errors import BufferFullError, ClientError, RequestError, check
from odradek.client.partitioner import StickyChoice, partition_of_key, shown_partitions
from odradek.client.retry import retry
from odradek.client.sender import ProducerSettings, Sender
from odradek.model import TopicPartition, topic_name_problem
from odradek.records.header import NO_PRODUCER_ID, NO_TIMESTAMP
from odradek.records.record import Header, NewRecord
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import init_producer_id

Acks: TypeAlias = Literal["all", 0, 1, -1]
Headers: TypeAlias = Iterable[tuple[str, bytes | None]]

RECORD_OVERHEAD_BYTES = 24  # lengths, deltas and the like, at most
TIMESTAMP_MAX = 2**63 - 1
CLOCK_EVERY = 64  # records that send_many gives the same time


class _Item(NamedTuple):
    """A record, what it takes of the buffer, who waits for it, and the partition that was asked for."""

    record: NewRecord
    size_bytes: int
    partition: int | None
    future: DeliveryFuture | None
    tally: Tally | None


class _Route:
    """How records of one topic find their partition."""

    __slots__ = ("info", "led", "numbers", "queues", "sticky")

    def __init__(self, info: TopicInfo, batch_bytes: int) -> None:
        self.sticky = StickyChoice(batch_bytes)
        self.queues: dict[int, PartitionQueue] = {}
        self.update(info)

    def update(self, info: TopicInfo) -> None:
        """Take over what is known now."""
        self.info = info
        self.numbers = tuple(info.partitions)  # mostly in a row, from 0
        led = tuple(partition.partition for partition in info.partitions.values() if partition.leader >= 0)
        self.led: Sequence[int] = led or self.numbers


class Producer:
    """Made by Client.producer(); use it with `async with`, or call start() and close()."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._sender = Sender(cluster, settings, self._release)
        self._routes: dict[str, _Route] = {}
        self._unrouted: dict[str, list[_Item]] = {}
        self._routers: set[asyncio.Task[None]] = set()
        self._buffered_bytes = 0  # <= buffer_bytes
        self._room_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._producer_id = NO_PRODUCER_ID
        self._timeout_s = settings.delivery_timeout_ms / 1000
        self._open = False

    async def start(self) -> None:
        """Get a producer id, if the producer is idempotent."""
        if self._settings.idempotent:
            self._producer_id = await retry(
                self._init_producer_id, what="getting a producer id", timeout_ms=self._cluster.timeouts.total_ms
            )
        self._open = True

    async def _init_producer_id(self) -> int:
        request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await self._cluster.ask_any(request, init_producer_id.Response)
        check(response.error_code, "getting a producer id")
        return response.producer_id

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Sending.

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Send a record and return where it landed; waits while the buffer is full."""
        record, size_bytes = self._record(topic, value, key, headers, timestamp)
        if not self._reserve(size_bytes):
            await self._wait_for_room(size_bytes)
        future: DeliveryFuture = self._loop.create_future()
        self._enqueue(topic, record, size_bytes, partition, future, None)
        return await future

    def send_soon(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> DeliveryFuture:
        """Take a record and return the future of its delivery; BufferFullError if there is no room (see `room`)."""
        record, size_bytes = self._record(topic, value, key, headers, timestamp)
        if not self._reserve(size_bytes):
            raise BufferFullError(
                f"the producer holds {self._buffered_bytes} bytes that are not acknowledged yet:"
                " `await producer.room()` before the next send_soon(), or use send(), which waits"
            )
        future: DeliveryFuture = self._loop.create_future()
        self._enqueue(topic, record, size_bytes, partition, future, None)
        return future

    async def send_many(self, topic: str, records: Iterable[NewRecord], *, partition: int | None = None) -> int:
        """Send records as the buffer has room, wait until all are acknowledged and return their number.

        The cheapest way to send much: nothing is kept for each record, and the first error is raised at the end. A
        record without a timestamp gets the time.
        """
        tally = Tally()
        count = 0
        now_ms = 0
        for given in records:
            value, key, timestamp, headers = given
            if timestamp == NO_TIMESTAMP:
                if count % CLOCK_EVERY == 0:
                    now_ms = self._cluster.clock.now_ms()
                timestamp = now_ms
            record, size_bytes = self._record(topic, value, key, headers, timestamp)
            if not self._reserve(size_bytes):
                await self._wait_for_room(size_bytes)
                now_ms = self._cluster.clock.now_ms()
            self._enqueue(topic, record, size_bytes, partition, None, tally)
            count += 1
        await tally.wait()
        return count

    def _record(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Headers, timestamp: int | None
    ) -> tuple[NewRecord, int]:
        """Check what was given; return the record, and what it takes of the buffer."""
        if not self._open:
            raise ClientError("the producer is not open: use it within `async with client.producer() as producer:`")
        size_bytes = RECORD_OVERHEAD_BYTES
        if value is not None:
            if type(value) is not bytes:
                value = _as_bytes(value, "value")
            size_bytes += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = _as_bytes(key, "key")
            size_bytes += len(key)
        checked: tuple[Header, ...] = ()
        if headers:
            checked = tuple(_header(name, content) for name, content in headers)
            size_bytes += sum(12 + 4 * len(header.key) + len(header.value or b"") for header in checked)
        if timestamp is None:
            timestamp = self._cluster.clock.now_ms()
        elif not 0 <= timestamp <= TIMESTAMP_MAX:
            raise ValueError(f"the timestamp of a record is in milliseconds since 1970, not {timestamp}")
        return NewRecord(value, key, timestamp, checked), size_bytes

    # Routing.

    def _enqueue(
        self,
        topic: str,
        record: NewRecord,
        size_bytes: int,
        partition: int | None,
        future: DeliveryFuture | None,
        tally: Tally | None,
    ) -> None:
        """Put a record into its partition's queue, or aside until its topic's partitions are known."""
        route = self._routes.get(topic)
        if route is None or route.info is not self._cluster.topics.get(topic) or topic in self._unrouted:
            route = self._current_route(topic)
        if route is None or (partition is not None and partition not in route.info.partitions):
            self._put_aside(topic, _Item(record, size_bytes, partition, future, tally))
            return
        if partition is None:
            if record.key is not None:
                partition = route.numbers[partition_of_key(record.key, len(route.numbers))]
            else:
                partition = route.sticky.next(size_bytes, route.led)
        queue = route.queues.get(partition)
        if queue is None:
            queue = route.queues[partition] = self._new_queue(topic, partition)
        if queue.append(record, size_bytes, future, tally):
            self._sender.activate(queue)

    def _current_route(self, topic: str) -> _Route | None:
        """The route by what is known now; None if the partitions have to be asked for, or others wait for that."""
        info = self._cluster.topics.get(topic)
        if info is None or info.error or topic in self._unrouted:
            return None
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = _Route(info, self._settings.batch_bytes)
        elif route.info is not info:
            route.update(info)
        return route

    def _new_queue(self, topic: str, partition: int) -> PartitionQueue:
        return PartitionQueue(
            TopicPartition(topic, partition),
            batch_bytes=self._settings.batch_bytes,
            codec=self._settings.codec,
            producer_id=self._producer_id,
            timeout_s=self._timeout_s,
            now=self._loop.time,
        )

    def _put_aside(self, topic: str, item: _Item) -> None:
        if item.tally is not None:
            item.tally.add()  # until the record is in a batch, which the tally knows of itself
        aside = self._unrouted.get(topic)
        if aside is not None:
            aside.append(item)
            return
        if (problem := topic_name_problem(topic)) is not None:
            self._fail(item, ClientError(problem))
            return
        self._unrouted[topic] = [item]
        task = self._loop.create_task(self._find_partitions(topic))
        self._routers.add(task)
        task.add_done_callback(self._routers.discard)

    async def _find_partitions(self, topic: str) -> None:
        """Ask for a topic's partitions, then route all that came for it meanwhile, in order."""
        failure: ClientError | None = None
        try:
            if topic in self._cluster.topics:
                await self._cluster.refresh([topic], create=True)
            info = await self._cluster.topic(topic, create=True, timeout_ms=self._settings.delivery_timeout_ms)
        except ClientError as error:
            failure = error
        for item in self._unrouted.pop(topic):
            if failure is not None:
                self._fail(item, failure)
            elif item.partition is not None and item.partition not in info.partitions:
                self._fail(item, _no_partition(info, item.partition))
            else:
                self._enqueue(topic, *item)
                if item.tally is not None:
                    item.tally.add(-1)

    def _fail(self, item: _Item, error: ClientError) -> None:
        self._release(item.size_bytes)
        if item.future is not None:
            fail_delivery(item.future, error)
        if item.tally is not None:
            item.tally.failed(error)
            item.tally.add(-1)

    # Room in the buffer.

    async def room(self) -> None:
        """Wait until the buffer has room again."""
        if self._room_waiters or self._buffered_bytes >= self._settings.buffer_bytes // 2:
            await self._wait_for_room(self._settings.buffer_bytes // 2)
            self._release(self._settings.buffer_bytes // 2)

    def _reserve(self, size_bytes: int) -> bool:
        """Take room for a record, unless others wait for it already."""
        if self._room_waiters or self._buffered_bytes + size_bytes > self._settings.buffer_bytes:
            if size_bytes > self._settings.buffer_bytes:
                raise ValueError(f"a record of {size_bytes} bytes does not fit into the buffer: raise buffer_bytes")
            return False
        self._buffered_bytes += size_bytes
        return True

    async def _wait_for_room(self, size_bytes: int) -> None:
        waiter = self._loop.create_future()
        self._room_waiters.append((size_bytes, waiter))
        self._sender.hurry += 1  # what lingers takes the room of those who wait
        self._sender.wake()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release(size_bytes)
            raise
        finally:
            self._sender.hurry -= 1

    def _release(self, size_bytes: int) -> None:
        """Give room back, and to those who wait, in their order."""
        self._buffered_bytes -= size_bytes
        waiters = self._room_waiters
        while waiters:
            wanted, waiter = waiters[0]
            if not waiter.done():
                if self._buffered_bytes + wanted > self._settings.buffer_bytes:
                    return
                self._buffered_bytes += wanted
                waiter.set_result(None)
            waiters.popleft()

    # Ending.

    async def flush(self) -> None:
        """Wait until all that was sent so far is acknowledged or failed; the futures tell which."""
        self._sender.hurry += 1
        self._sender.wake()
        try:
            while self._routers:
                await asyncio.wait(list(self._routers))
            tally = Tally()
            for batch in self._sender.unsettled():
                batch.watch(tally)
            with suppress(ClientError):  # those who sent the records are told
                await tally.wait()
        finally:
            self._sender.hurry -= 1

    async def close(self) -> None:
        """Send what is left, for as long as a delivery may take, then end; what could not be sent fails."""
        if not self._open:
            return
        self._open = False
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            closing = ClientError("the producer was closed before the record was sent")
            for task in list(self._routers):
                task.cancel()
            await asyncio.gather(*self._routers, return_exceptions=True)
            for items in self._unrouted.values():
                for item in items:
                    self._fail(item, closing)
            await self._sender.close()
            for _, waiter in self._room_waiters:
                if not waiter.done():
                    waiter.set_exception(closing)


def _as_bytes(given: object, what: str) -> bytes:
    if type(given) is bytes:
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"the {what} of a record is bytes or None, not {type(given).__name__}: encode it first")


def _header(name: object, content: object) -> Header:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is a str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the header name {name!r} cannot be written as UTF-8") from None
    return Header(name, None if content is None else _as_bytes(content, "header"))


def _no_partition(info: TopicInfo, partition: int) -> RequestError:
    return RequestError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"producing to partition {partition} of topic {info.name}",
        f"it has {shown_partitions(info.partitions)}",
    )
