"""Eeylops' client on asyncio: topics, batches and streams of values, consumers that commit where they are.

    async with AsyncEeylops("127.0.0.1:50051") as eeylops:
        topic = await eeylops.create_topic("orders", partitions=4)
        await eeylops.produce(topic, 1, [b"three spools"])

It follows leaders and outlives brokers, up to the deadline of a call. Values are stored at least once: what was sent
to a broker that then could not be reached is sent again, and may be there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakSet

from odradek.client.errors import BrokerUnavailableError, TimedOutError
from odradek.client.grpc.channels import Channel, Opened, parse_targets
from odradek.client.grpc.eeylops_links import NOT_LEADER, PASSING, Links, check
from odradek.client.grpc.eeylops_publisher import AsyncPublisher
from odradek.client.grpc.eeylops_subscription import AsyncSubscription, as_request, as_values, metadata_of
from odradek.client.grpc.eeylops_types import (
    Batch,
    ClusterConfig,
    Node,
    Place,
    Topic,
    TopicLike,
    reading_of,
    topic_id,
)
from odradek.client.grpc.errors import EeylopsError, ErrorCodes
from odradek.proto import eeylops_pb2 as pb

TIMEOUT_SECONDS = 30.0
SUBSCRIBE_BATCH_SIZE = 1_000


class AsyncEeylops(Opened):
    """All that Eeylops' door can be asked. An answer that is an error is an EeylopsError, its `code` an ErrorCodes."""

    def __init__(
        self, addresses: str | Sequence[str] = "127.0.0.1:50051", *, timeout_s: float = TIMEOUT_SECONDS
    ) -> None:
        """`addresses` are one or some brokers of the cluster; `timeout_s` is how long a call goes on trying."""
        self._links = Links(parse_targets(addresses), timeout_s)
        self._subscriptions: WeakSet[AsyncSubscription] = WeakSet()

    async def start(self) -> None:
        """Learn which brokers there are; a BrokerUnavailableError if none of the given ones can be reached."""
        await self._links.refresh()

    async def close(self) -> None:
        """Hang up; subscriptions that are still open end, and what they have handled is committed."""
        try:
            for subscription in list(self._subscriptions):
                await subscription.close()
        finally:
            await self._links.close()

    # Topics.

    async def create_topic(self, name: str, *, partitions: int = 1, ttl_seconds: int = 0) -> Topic:
        """Make a topic with partitions 1 to n; a ttl of 0 is the broker's default, of -1: values stay."""
        if partitions < 1:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        wanted = pb.Topic(topic_name=name, partition_ids=range(1, partitions + 1), ttl_seconds=ttl_seconds)
        was_broken = False

        async def ask(channel: Channel, left_s: float) -> None:
            nonlocal was_broken
            try:
                answer = await channel.ask(
                    channel.stub.CreateTopic(pb.CreateTopicRequest(topic=wanted), timeout=left_s)
                )
            except (BrokerUnavailableError, TimedOutError):
                was_broken = True
                raise
            check(answer.error)

        try:
            await self._links.anywhere(ask)
        except EeylopsError as error:
            if error.code != ErrorCodes.TOPIC_EXISTS or not was_broken:
                raise
            made = await self.get_topic(name)  # by an attempt of ours whose answer was lost, if it is like that
            if len(made.partitions) != partitions:
                raise
            return made
        return await self.get_topic(name)

    async def remove_topic(self, topic: TopicLike) -> None:
        """Remove a topic with its values."""
        request = pb.RemoveTopicRequest(topic_id=topic_id(topic))
        was_broken = False

        async def ask(channel: Channel, left_s: float) -> None:
            nonlocal was_broken
            try:
                answer = await channel.ask(channel.stub.RemoveTopic(request, timeout=left_s))
            except (BrokerUnavailableError, TimedOutError):
                was_broken = True
                raise
            check(answer.error)

        try:
            await self._links.anywhere(ask)
        except EeylopsError as error:  # ids are never used again: an attempt whose answer was lost has removed it
            if error.code != ErrorCodes.TOPIC_NOT_FOUND or not was_broken:
                raise

    async def get_topic(self, name: str, *, sync: bool = True) -> Topic:
        """Look up a topic; with `sync` as the active controller knows it, else as the broker at hand does."""
        answer = await self._any("GetTopic", pb.GetTopicRequest(topic_name=name, sync=sync))
        return _topic(answer.topic)

    async def get_all_topics(self, *, sync: bool = True) -> list[Topic]:
        """All topics, by id."""
        answer = await self._any("GetAllTopics", pb.GetAllTopicsRequest(sync=sync))
        return [_topic(topic) for topic in answer.topics]

    # Writing.

    async def produce(self, topic: TopicLike, partition: int, values: Iterable[bytes]) -> None:
        """Store values; it returns when they are as safe as acks=all promises."""
        place = Place(topic_id(topic), partition)
        request = pb.ProduceRequest(topic_id=place.topic_id, partition_id=partition, values=values)

        async def ask(channel: Channel, left_s: float) -> None:
            check((await channel.ask(channel.stub.Produce(request, timeout=left_s))).error)

        await self._links.at_leader(place, ask, passing=NOT_LEADER)

    def publisher(
        self, topic: TopicLike, partition: int, *, on_stored: Callable[[int], None] | None = None
    ) -> AsyncPublisher:
        """Sends many values by streams; `on_stored` hears how many values were stored, each time some were."""
        return AsyncPublisher(self._links, Place(topic_id(topic), partition), on_stored)

    # Reading.

    async def consume(
        self,
        topic: TopicLike,
        partition: int,
        *,
        offset: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        consumer: str = "",
        auto_commit: bool = False,
        batch_size: int = 0,
        follower: bool = False,
    ) -> Batch:
        """Read values from an offset, from a time, or (with a consumer) from its last commit on, up to `until_ms`.

        With `auto_commit` the broker commits before it answers: who fails behind that does not see these values again.
        With `follower` the broker at hand may answer, if it has a replica.
        """
        reading = reading_of(
            topic, partition, offset=offset, since_ms=since_ms, until_ms=until_ms, consumer=consumer,
            batch_size=batch_size, follower=follower,
        )  # fmt: skip
        request = as_request(reading, auto_commit=auto_commit)

        async def ask(channel: Channel, left_s: float) -> Batch:
            call = channel.stub.Consume(request, timeout=left_s, metadata=metadata_of(reading))
            answer = await channel.ask(call)
            check(answer.error)
            return Batch(as_values(answer), answer.next_offset)

        return await self._links.at_leader(reading.place, ask, passing=PASSING, at_home=follower)

    def subscribe(
        self,
        topic: TopicLike,
        partition: int,
        *,
        offset: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        consumer: str = "",
        auto_commit: bool = False,
        batch_size: int = SUBSCRIBE_BATCH_SIZE,
        follower: bool = False,
    ) -> AsyncSubscription:
        """Read values and those to come: `async for value in subscription`. It begins as `consume` does.

        A consumer is registered. With `auto_commit` a value is committed when the next one is asked for: at least once.
        """
        reading = reading_of(
            topic, partition, offset=offset, since_ms=since_ms, until_ms=until_ms, consumer=consumer,
            batch_size=batch_size, follower=follower,
        )  # fmt: skip
        if auto_commit and not consumer:
            raise ValueError("auto_commit needs a consumer to commit for")
        commit = self.commit if auto_commit else None
        subscription = AsyncSubscription(self._links, reading, commit=commit, register=self.register)
        self._subscriptions.add(subscription)
        return subscription

    # Consumers.

    async def register(self, consumer: str, topic: TopicLike, partition: int) -> None:
        """Register a consumer for a partition; again is no error and changes nothing."""
        request = pb.RegisterConsumerRequest(consumer_id=consumer, topic_id=topic_id(topic), partition_id=partition)
        await self._any("RegisterConsumer", request)

    async def commit(self, consumer: str, topic: TopicLike, partition: int, offset: int) -> None:
        """Store the next offset that a consumer will read; it may go backwards."""
        request = pb.CommitRequest(
            topic_id=topic_id(topic), partition_id=partition, consumer_id=consumer, offset=offset
        )
        await self._any("Commit", request)

    async def last_committed(self, consumer: str, topic: TopicLike, partition: int, *, sync: bool = True) -> int:
        """The next offset that a consumer will read; -1 if it has committed nothing."""
        request = pb.LastCommittedRequest(
            topic_id=topic_id(topic), partition_id=partition, consumer_id=consumer, sync=sync
        )
        return int((await self._any("GetLastCommitted", request)).offset)

    # The cluster.

    async def broker_of(self, topic: TopicLike, partition: int) -> Node:
        """The broker that leads a partition."""
        answer = await self._any("GetBroker", pb.GetBrokerRequest(topic_id=topic_id(topic), partition_id=partition))
        return _node(answer.leader_config)

    async def leader(self) -> Node:
        """The broker that is the active controller."""
        return _node((await self._any("GetLeader", pb.GetLeaderRequest())).leader_config)

    async def cluster_config(self) -> ClusterConfig:
        """All brokers, and which is the active controller."""
        return await self._links.refresh()

    async def _any(self, method: str, request: Any) -> Any:
        """Ask what any broker can answer, and what does no harm if it is done twice."""

        async def ask(channel: Channel, left_s: float) -> Any:
            answer = await channel.ask(getattr(channel.stub, method)(request, timeout=left_s))
            check(answer.error)
            return answer

        return await self._links.anywhere(ask)


def _topic(topic: pb.Topic) -> Topic:
    return Topic(topic.topic_id, topic.topic_name, tuple(topic.partition_ids), topic.ttl_seconds)


def _node(node: pb.NodeConfig) -> Node:
    return Node(node.id, node.host, node.port)
