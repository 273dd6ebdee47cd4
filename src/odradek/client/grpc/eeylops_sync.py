"""Eeylops' client for programs without an event loop: the same calls, blocking.

with Eeylops("127.0.0.1:50051") as eeylops:
    topic = eeylops.create_topic("orders", partitions=4)
    with eeylops.publisher(topic, 1) as out:
        out.send(b"three spools")
    for value in eeylops.subscribe(topic, 1, consumer="billing", auto_commit=True): ...
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from odradek.client.grpc.blocking import BlockingClient
from odradek.client.grpc.eeylops import TIMEOUT_SECONDS, AsyncEeylops
from odradek.client.grpc.eeylops_publisher import AsyncPublisher
from odradek.client.grpc.eeylops_types import Batch, ClusterConfig, Node, Topic, TopicLike, Value
from odradek.client.grpc.loop_thread import LoopThread

HAND_OVER_BYTES = 256 * 1024  # values are handed to the loop at the latest when there are so many bytes of them
_VALUE_BYTES_MORE = 64


class Eeylops(BlockingClient):
    """All that Eeylops' door can be asked; many threads may share one client."""

    def __init__(
        self, addresses: str | Sequence[str] = "127.0.0.1:50051", *, timeout_s: float = TIMEOUT_SECONDS
    ) -> None:
        """`addresses` are one or some brokers of the cluster; `timeout_s` is how long a call goes on trying."""
        self._inner = AsyncEeylops(addresses, timeout_s=timeout_s)
        super().__init__(self._inner)

    # Topics.

    def create_topic(self, name: str, *, partitions: int = 1, ttl_seconds: int = 0) -> Topic:
        """Make a topic with partitions 1 to n; a ttl of 0 is the broker's default, of -1: values stay."""
        return self._thread.call(self._inner.create_topic(name, partitions=partitions, ttl_seconds=ttl_seconds))

    def remove_topic(self, topic: TopicLike) -> None:
        """Remove a topic with its values."""
        self._thread.call(self._inner.remove_topic(topic))

    def get_topic(self, name: str, *, sync: bool = True) -> Topic:
        """Look up a topic; with `sync` as the active controller knows it, else as the broker at hand does."""
        return self._thread.call(self._inner.get_topic(name, sync=sync))

    def get_all_topics(self, *, sync: bool = True) -> list[Topic]:
        """All topics, by id."""
        return self._thread.call(self._inner.get_all_topics(sync=sync))

    # Writing.

    def produce(self, topic: TopicLike, partition: int, values: Iterable[bytes]) -> None:
        """Store values; it returns when they are as safe as acks=all promises."""
        self._thread.call(self._inner.produce(topic, partition, list(values)))

    def publisher(self, topic: TopicLike, partition: int) -> Publisher:
        """Sends many values by streams."""

        async def make() -> AsyncPublisher:
            return self._inner.publisher(topic, partition)

        return Publisher(self._thread, self._thread.call(make()))

    # Reading.

    def consume(self, topic: TopicLike, partition: int, **options: Any) -> Batch:
        """Read values; options are those of AsyncEeylops.consume: `offset`, `since_ms`, `until_ms`, `consumer`, ..."""
        return self._thread.call(self._inner.consume(topic, partition, **options))

    def subscribe(self, topic: TopicLike, partition: int, **options: Any) -> Iterator[Value]:
        """Read values and those to come, until the loop is left; options are those of AsyncEeylops.subscribe."""
        subscription = self._inner.subscribe(topic, partition, **options)
        try:
            while (batch := self._thread.call(subscription.next_batch())) is not None:
                for value in batch.values:
                    subscription.handled_up_to(value.offset)
                    yield value
        finally:
            if self._thread.is_running:  # else it went with the client
                self._thread.call(subscription.close())

    # Consumers.

    def register(self, consumer: str, topic: TopicLike, partition: int) -> None:
        """Register a consumer for a partition; again is no error and changes nothing."""
        self._thread.call(self._inner.register(consumer, topic, partition))

    def commit(self, consumer: str, topic: TopicLike, partition: int, offset: int) -> None:
        """Store the next offset that a consumer will read; it may go backwards."""
        self._thread.call(self._inner.commit(consumer, topic, partition, offset))

    def last_committed(self, consumer: str, topic: TopicLike, partition: int, *, sync: bool = True) -> int:
        """The next offset that a consumer will read; -1 if it has committed nothing."""
        return self._thread.call(self._inner.last_committed(consumer, topic, partition, sync=sync))

    # The cluster.

    def broker_of(self, topic: TopicLike, partition: int) -> Node:
        """The broker that leads a partition."""
        return self._thread.call(self._inner.broker_of(topic, partition))

    def leader(self) -> Node:
        """The broker that is the active controller."""
        return self._thread.call(self._inner.leader())

    def cluster_config(self) -> ClusterConfig:
        """All brokers, and which is the active controller."""
        return self._thread.call(self._inner.cluster_config())


class Publisher:
    """Takes values one by one; a context manager, whose end waits until all are stored."""

    def __init__(self, thread: LoopThread, inner: AsyncPublisher) -> None:
        self._thread = thread
        self._inner = inner
        self._lock = threading.Lock()
        self._values: list[bytes] = []  # not handed to the loop yet
        self._values_bytes = 0

    @property
    def stored(self) -> int:
        """How many values are known to be stored."""
        return self._inner.stored

    def __enter__(self) -> Self:
        self._thread.call(self._inner.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was taken is handed over before this runs: the first value saw to that.
        self._thread.call(self._inner.__aexit__(kind, error, trace))

    def send(self, value: bytes) -> None:
        """Take a value; it waits only while there are too many bytes that are not stored."""
        if self._inner.error is not None:
            raise self._inner.error
        with self._lock:
            is_first = not self._values
            self._values.append(value)
            self._values_bytes += len(value) + _VALUE_BYTES_MORE
            is_much = self._values_bytes >= HAND_OVER_BYTES
        if is_much:
            self._thread.call(self._handed_over())
        elif is_first:  # the loop takes it with all that come until it gets there
            self._thread.call_soon(self._hand_over)

    def flush(self) -> None:
        """Wait until all that was taken is stored."""
        self._thread.call(self._flushed())

    async def _flushed(self) -> None:
        await self._handed_over()
        await self._inner.flush()

    async def _handed_over(self) -> None:
        self._hand_over()
        await self._inner.room()

    def _hand_over(self) -> None:
        with self._lock:
            values, self._values, self._values_bytes = self._values, [], 0
        if self._inner.error is None:  # which the next `send` or `flush` raises
            self._inner.take(values)
