"""The client for programs without an event loop: the same calls, blocking, with a loop in a thread of its own.

    with Client("127.0.0.1:9092") as client, client.producer() as producer:
        producer.send("greetings", b"hello")

Thin on purpose: `client.call` runs any coroutine of the async client for what has no method here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from odradek.client import client as async_client
from odradek.client import consumer as async_consumer
from odradek.client import producer as async_producer
from odradek.client.accumulator import Delivery
from odradek.client.cluster import Cluster, TopicInfo
from odradek.client.commits import CommittedOffset
from odradek.client.fetched import ConsumerRecord
from odradek.client.offsets import OffsetInfo
from odradek.client.producer import Headers
from odradek.client.start import StartLike
from odradek.model import TopicPartition
from odradek.records.record import NewRecord

Result = TypeVar("Result")


class Client:
    """A client of one cluster, in a thread of its own."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        **options: Any,
    ) -> None:
        """Options are those of odradek.client.Client; `loop_factory` makes the event loop, for example uvloop's."""
        self._inner = async_client.Client(bootstrap_servers, **options)
        self._loop = loop_factory()
        self._thread = threading.Thread(target=self._loop.run_forever, name="odradek-client", daemon=True)

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the client's loop and wait for its result."""
        future: Future[Result] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller was interrupted: nobody waits for it any more
            raise

    def start(self) -> None:
        """Start the thread and find the cluster."""
        self._thread.start()
        try:
            self.call(self._inner.start())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Close the connections and end the thread."""
        if self._thread.is_alive():
            try:
                self.call(self._inner.close())
            finally:
                self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def cluster(self) -> Cluster:
        """Nodes, topics and requests, for coroutines that are run by `call`."""
        return self._inner.cluster

    @property
    def admin(self) -> Admin:
        """Topics and groups."""
        return Admin(self, self._inner)

    def producer(self, **options: Any) -> Producer:
        """A producer; options are those of odradek.client.Client.producer."""

        async def make() -> async_producer.Producer:
            return self._inner.producer(**options)

        return Producer(self, self.call(make()))

    def consumer(self, topics: Any, **options: Any) -> Consumer:
        """A consumer; topics and options are those of odradek.client.Client.consumer."""

        async def make() -> async_consumer.Consumer:
            return self._inner.consumer(topics, **options)

        return Consumer(self, self.call(make()))


class Producer:
    """Sends records, one at a time or many."""

    def __init__(self, client: Client, inner: async_producer.Producer) -> None:
        self._client = client
        self._inner = inner

    def __enter__(self) -> Self:
        self._client.call(self._inner.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.call(self._inner.close())

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Send a record and return where it landed."""
        return self._client.call(
            self._inner.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        )

    def send_many(self, topic: str, records: Iterable[NewRecord], *, partition: int | None = None) -> int:
        """Send records and return their number when all are acknowledged."""
        return self._client.call(self._inner.send_many(topic, list(records), partition=partition))


class Consumer:
    """Reads records, by `for record in consumer` or by poll."""

    def __init__(self, client: Client, inner: async_consumer.Consumer) -> None:
        self._client = client
        self._inner = inner

    def __enter__(self) -> Self:
        self._client.call(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.call(self._inner.close())

    def __iter__(self) -> Iterator[ConsumerRecord]:
        # One record a step: whoever stops in the middle has a position that says so.
        async def step() -> ConsumerRecord | None:
            return await anext(self._inner, None)

        while (record := self._client.call(step())) is not None:
            yield record

    def poll(self, max_records: int = 500, timeout_ms: float = 1_000) -> list[ConsumerRecord]:
        """Return what is there, up to `max_records`; wait up to `timeout_ms` for the first record."""
        return self._client.call(self._inner.poll(max_records, timeout_ms))

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Store how far the group has come: the positions, or what is given."""
        self._client.call(self._inner.commit(offsets))

    def seek(self, partition: TopicPartition, to: StartLike) -> None:
        """Go on elsewhere."""
        self._client.call(self._inner.seek(partition, to))

    def positions(self) -> dict[TopicPartition, int]:
        """The offsets of the next records, by partition."""

        async def ask() -> dict[TopicPartition, int]:
            return self._inner.positions()

        return self._client.call(ask())


class Admin:
    """The calls of the administration that scripts need most; `inner` has all of them, for Client.call."""

    def __init__(self, client: Client, inner: async_client.Client) -> None:
        self.inner = inner.admin
        self._client = client

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until it can be used."""
        self._client.call(self.inner.create_topic(name, partitions, configs))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        self._client.call(self.inner.delete_topic(name))

    def list_topics(self) -> list[TopicInfo]:
        """All topics by name."""
        return self._client.call(self.inner.list_topics())

    def describe_topic(self, name: str) -> TopicInfo:
        """A topic as it is now."""
        return self._client.call(self.inner.describe_topic(name))

    def list_offsets(self, wanted: Mapping[TopicPartition, str | int]) -> dict[TopicPartition, OffsetInfo]:
        """Look up offsets: "start", "end", "max-timestamp", or the first at or after a time in milliseconds."""
        return self._client.call(self.inner.list_offsets(wanted))

    def group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets that a group has committed."""
        return self._client.call(self.inner.group_offsets(group))
