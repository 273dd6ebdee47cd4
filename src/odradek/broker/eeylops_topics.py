"""Topics, partitions and brokers by Eeylops' numbers (seed 004): ids count from 1, and an id is never used again.

Any broker answers, from the metadata that it has; with `sync` it first hears all that was decided before. What is
refused is refused by PeerError; nothing is kept here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

from odradek.broker.broker import Broker
from odradek.controller.image import NO_LEADER, TopicImage
from odradek.model import INTERNAL_TOPICS, TopicPartition, topic_name_problem
from odradek.wire.errors import ErrorCode, PeerError

TTL_DEFAULT, TTL_NEVER = 0, -1  # of `ttl_seconds`
_NAME = re.compile(r"[A-Za-z0-9_]{1,249}", re.ASCII)
_RETENTION = "retention.ms"
_TTL_SECONDS_MAX = (1 << 31) - 1  # what a field can tell
_SHOWN_MAX = 80  # characters of a name that may be anything
_AGAIN_MS = 20  # before the controller is asked once more


class PartitionNotFound(PeerError):  # noqa: N818 - named as the document's code
    """The topic is there, and has no partition with this id."""

    def __init__(self, topic: TopicImage, partition_id: int) -> None:
        shown = ", ".join(str(index + 1) for index in sorted(topic.partitions)[:10])
        more = ", ..." if len(topic.partitions) > 10 else ""
        text = f"topic {topic.name!r} has no partition {partition_id}: it has {shown}{more}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


class TopicView(NamedTuple):
    """A topic as Eeylops tells it."""

    id: int
    name: str
    partition_ids: list[int]
    ttl_seconds: int  # after so long values may go; -1: never, 0: as the broker's default has it


class NodeView(NamedTuple):
    """A broker and where its gRPC door is; port 0: it has none."""

    id: int
    host: str
    port: int


class EeylopsTopics:
    """The topics of a cluster, asked at one of its brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # Finding.

    def place(self, topic_id: int, partition_id: int) -> TopicPartition:
        """The partition with these ids, never one of another topic that has got the same name since."""
        topic = self._with_partition(topic_id, partition_id)
        hosted = self._broker.topics.get(topic.name)
        if hosted is None or hosted.id != topic.id:  # the metadata is ahead of what is on this broker
            raise PeerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name!r} is being made here: ask again")
        return TopicPartition(topic.name, partition_id - 1)

    async def find(self, topic_id: int, timeout_ms: int) -> None:
        """Hear what was decided before, if a topic with this id may have been made elsewhere a moment ago."""
        if topic_id >= self._broker.metadata.image.next_topic_number:
            await self._catch_up(timeout_ms)

    async def find_place(self, topic_id: int, partition_id: int, timeout_ms: int) -> tuple[TopicPartition, bytes]:
        """The partition with these ids, wherever it is, and by which id the cluster knows its topic."""
        await self.find(topic_id, timeout_ms)
        topic = self._with_partition(topic_id, partition_id)
        return TopicPartition(topic.name, partition_id - 1), topic.id

    def leader_of(self, place: TopicPartition) -> int:
        """Which other broker leads a partition; -1: nobody, as far as is known here, or this one and not yet."""
        role = self._broker.metadata.image.partition(*place)
        return NO_LEADER if role is None or role.leader == self._broker.node_id else role.leader

    def _numbered(self, topic_id: int) -> TopicImage:
        topic = self._broker.metadata.image.topic_by_number(topic_id) if topic_id > 0 else None
        if topic is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic with id {topic_id}")
        return topic

    def _with_partition(self, topic_id: int, partition_id: int) -> TopicImage:
        topic = self._numbered(topic_id)
        if partition_id - 1 not in topic.partitions:
            raise PartitionNotFound(topic, partition_id)
        return topic

    # Topics.

    async def topic(self, name: str, *, sync: bool, timeout_ms: int) -> TopicView:
        """The topic of this name; also one that another door has made."""
        may_be = name not in INTERNAL_TOPICS and topic_name_problem(name) is None
        if sync and may_be:
            await self._broker.change("find-topic", {"name": name}, timeout_ms)
        topic = self._broker.metadata.image.topics.get(name) if may_be else None
        if topic is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {_shown(name)}")
        return self._view(topic)

    async def topics(self, *, sync: bool, timeout_ms: int) -> list[TopicView]:
        """All topics but the brokers' own, by id."""
        if sync:
            await self._catch_up(timeout_ms)
        found = [topic for name, topic in self._broker.metadata.image.topics.items() if name not in INTERNAL_TOPICS]
        return [self._view(topic) for topic in sorted(found, key=lambda topic: topic.number)]

    async def create(self, name: str, partition_ids: Sequence[int], ttl_seconds: int, timeout_ms: int) -> None:
        """Make a topic; without partition ids it gets one partition."""
        if not _NAME.fullmatch(name):
            raise _invalid(f"a topic cannot be called {_shown(name)}: a name is 1 to 249 letters, digits and '_'")
        count = len(partition_ids) or 1
        if count > self._broker.config.partitions_max:  # before they are looked at: a message has room for millions
            raise _invalid(f"{count} partitions are more than partitions.max = {self._broker.config.partitions_max}")
        if partition_ids and set(partition_ids) != set(range(1, count + 1)):
            raise _invalid(
                f"the ids of {count} partitions are 1 to {count}, each once; leave them out for one partition"
            )
        overrides = {}
        if ttl_seconds < TTL_NEVER:
            raise _invalid(f"ttl_seconds cannot be {ttl_seconds}: -1 is for ever, 0 the broker's default")
        if ttl_seconds != TTL_DEFAULT:
            overrides[_RETENTION] = str(ttl_seconds if ttl_seconds == TTL_NEVER else ttl_seconds * 1000)
        await self._broker.create_topic(name, count, overrides, timeout_ms=timeout_ms)

    async def remove(self, topic_id: int, timeout_ms: int) -> None:
        """Take the topic with this id away, and no other."""
        await self.find(topic_id, timeout_ms)
        topic = self._numbered(topic_id)
        await self._broker.delete_topic(topic.name, topic.id, timeout_ms=timeout_ms)

    def _view(self, topic: TopicImage) -> TopicView:
        ttl_seconds = TTL_DEFAULT
        if _RETENTION in topic.configs:
            retention_ms = self._broker.settings.log_config(topic.configs).retention_ms
            ttl_seconds = TTL_NEVER if retention_ms < 0 else min(max(1, -(-retention_ms // 1000)), _TTL_SECONDS_MAX)
        return TopicView(topic.number, topic.name, [index + 1 for index in sorted(topic.partitions)], ttl_seconds)

    async def _catch_up(self, timeout_ms: int) -> None:
        """Have the active controller say that it would change nothing: who has its answer has heard all before it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            configs = dict(self._broker.broker_overrides)
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            try:
                await self._broker.change("set-broker-configs", {"configs": configs, "was": configs}, left_ms)
            except PeerError as error:
                # Somebody has changed them, and that is not known here yet.
                if error.code is not ErrorCode.INVALID_UPDATE_VERSION or loop.time() >= deadline:
                    raise
                await self._broker.metadata.leader_turn(_AGAIN_MS)
            else:
                return

    # Brokers.

    def controller(self) -> NodeView:
        """The active controller; LEADER_NOT_AVAILABLE if none is known."""
        return self._node(self._broker.metadata.leader_id, "no majority of the brokers has agreed on a controller")

    async def leader(self, topic_id: int, partition_id: int, timeout_ms: int) -> NodeView:
        """Who leads a partition; LEADER_NOT_AVAILABLE if nobody does."""
        await self.find(topic_id, timeout_ms)
        topic = self._with_partition(topic_id, partition_id)
        leader = topic.partitions[partition_id - 1].leader
        return self._node(leader, f"nobody leads partition {partition_id} of topic {topic.name!r}")

    def nodes(self) -> tuple[list[NodeView], int]:
        """All brokers that are registered, by id, and the active controller's id; -1: none."""
        brokers = self._broker.metadata.image.brokers
        return [self._node(node_id, "") for node_id in sorted(brokers)], self._broker.metadata.leader_id

    def _node(self, node_id: int, problem: str) -> NodeView:
        broker = self._broker.metadata.image.brokers.get(node_id)
        if broker is None:
            raise PeerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{problem}: ask again")
        return NodeView(node_id, *(broker.grpc or ("", 0)))


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_MAX else name[:_SHOWN_MAX] + "...")


def _invalid(text: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_REQUEST, text)
