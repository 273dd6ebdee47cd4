"""The offsets that one group has committed, and those on their way to stable storage.

A commit is staged when its records are handed to the journal and settled when they are durable; only then does anybody
see it. Which offsets expire follows KIP-211. Pure; the coordinator writes and times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.groups.group import Group
from odradek.model import Offset, TopicPartition

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """Where a group is in a partition: the offset that it will read next."""

    offset: Offset
    leader_epoch: int  # of the record before; -1 if the client did not say
    metadata: str  # a text of the client's own
    commit_ms: int
    expire_ms: int = NO_EXPIRY  # set by clients of old versions that asked for a retention of their own


class GroupOffsets:
    """One group's offsets by topic and partition."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}  # no topic without partitions
        self._staged: dict[TopicPartition, int] = {}  # partitions with records under way, no zero counts

    def __bool__(self) -> bool:
        return bool(self._by_topic) or bool(self._staged)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """What is committed for a partition."""
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(partition)

    def by_topic(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """All that is committed."""
        return self._by_topic

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition with an offset."""
        for topic, partitions in self._by_topic.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def known_or_staged(self) -> set[TopicPartition]:
        """Every partition of which the log holds an offset now or will shortly."""
        return set(self.partitions()) | set(self._staged)

    def put(self, where: TopicPartition, committed: CommittedOffset) -> None:
        """Take in a commit that is durable."""
        self._by_topic.setdefault(where.topic, {})[where.partition] = committed

    def remove(self, where: TopicPartition) -> None:
        """Forget a partition's offset, if there is one."""
        partitions = self._by_topic.get(where.topic)
        if partitions is not None:
            partitions.pop(where.partition, None)
            if not partitions:
                del self._by_topic[where.topic]

    def stage(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that records for these are under way."""
        staged = self._staged
        for where in partitions:
            staged[where] = staged.get(where, 0) + 1

    def settle(self, changes: Mapping[TopicPartition, CommittedOffset | None], *, is_durable: bool) -> None:
        """End what `stage` began; None removes. Changes that were lost leave all as it was."""
        for where, committed in changes.items():
            left = self._staged[where] - 1
            if left:
                self._staged[where] = left
            else:
                del self._staged[where]
            if not is_durable:
                continue
            if committed is None:
                self.remove(where)
            else:
                self.put(where, committed)

    def is_staged(self, where: TopicPartition) -> bool:
        """Whether a commit or a removal of this partition's offset is under way."""
        return where in self._staged

    def expired(self, group: Group, retention_ms: int, now_ms: int) -> list[TopicPartition]:
        """The partitions whose offsets have outlived their retention; those being committed to are spared."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self._by_topic.items()
            if not group.is_subscribed(topic)
            for partition, committed in partitions.items()
            if not self.is_staged(TopicPartition(topic, partition))
            and _has_expired(group, committed, retention_ms, now_ms)
        ]


def _has_expired(group: Group, committed: CommittedOffset, retention_ms: int, now_ms: int) -> bool:
    since_ms = group.expires_from(committed.commit_ms)
    if since_ms is None:
        return False
    if committed.expire_ms != NO_EXPIRY:
        return now_ms >= committed.expire_ms
    return now_ms - since_ms >= retention_ms
