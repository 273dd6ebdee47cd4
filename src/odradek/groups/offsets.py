"""The offsets that one group has committed, and those on their way to stable storage.

A commit is staged when its records are handed to the journal and settled when they are durable; only then does anybody
see it. Which offsets expire follows KIP-211. A consumer of Eeylops' door (seed 004) may stand here without a commit: it
has registered. Pure; the coordinator writes and times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from odradek.groups.group import Group
from odradek.model import Offset, TopicPartition

NO_EXPIRY = -1
NO_OFFSET = -1
EEYLOPS = "odradek.eeylops"  # the metadata of what consumers of Eeylops' door commit: it never expires


class CommittedOffset(NamedTuple):
    """Where a group is in a partition: the offset that it will read next."""

    offset: Offset
    leader_epoch: int  # of the record before; -1 if the client did not say
    metadata: str  # a text of the client's own
    commit_ms: int
    expire_ms: int = NO_EXPIRY  # set by clients of old versions that asked for a retention of their own

    @property
    def is_registration(self) -> bool:
        """Whether it only says that a consumer will read the partition."""
        return self.offset == NO_OFFSET and self.metadata == EEYLOPS


def registration(now_ms: int) -> CommittedOffset:
    """What is stored of a consumer that has committed nothing yet."""
    return CommittedOffset(NO_OFFSET, leader_epoch=-1, metadata=EEYLOPS, commit_ms=now_ms)


class _Staged(NamedTuple):
    """What is under way for a partition."""

    under_way: int
    last: CommittedOffset | None  # None: its removal


class GroupOffsets:
    """One group's offsets by topic and partition."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}  # no topic without partitions
        self._registered: set[TopicPartition] = set()  # partitions without a commit; none is in `_by_topic`, too
        self._staged: dict[TopicPartition, _Staged] = {}  # partitions with records under way, no zero counts

    def __bool__(self) -> bool:
        return bool(self._by_topic) or bool(self._registered) or bool(self._staged)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """What is committed for a partition."""
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(partition)

    def is_registered(self, where: TopicPartition) -> bool:
        """Whether a consumer has registered for a partition, and committed nothing."""
        return where in self._registered

    def is_coming(self, where: TopicPartition) -> bool:
        """Whether there will be a commit or a registration when all that is under way is done."""
        staged = self._staged.get(where)
        if staged is not None:
            return staged.last is not None
        return where in self._registered or self.get(*where) is not None

    def by_topic(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """All that is committed."""
        return self._by_topic

    def topics(self) -> set[str]:
        """Every topic of which there is a commit or a registration."""
        return {*self._by_topic, *(where.topic for where in self._registered)}

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition with a commit."""
        for topic, partitions in self._by_topic.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def known_or_staged(self) -> set[TopicPartition]:
        """Every partition of which the log holds a commit or a registration now or will shortly."""
        return {*chain(self.partitions(), self._registered, self._staged)}

    def knows(self, where: TopicPartition) -> bool:
        """Whether the log holds a commit or a registration of one partition now or will shortly."""
        return where in self._registered or where in self._staged or self.get(*where) is not None

    def put(self, where: TopicPartition, committed: CommittedOffset) -> None:
        """Take in a commit or a registration that is durable."""
        if committed.is_registration:
            self.remove(where)
            self._registered.add(where)
        else:
            self._registered.discard(where)
            self._by_topic.setdefault(where.topic, {})[where.partition] = committed

    def remove(self, where: TopicPartition) -> None:
        """Forget what is known of a partition, if anything is."""
        self._registered.discard(where)
        partitions = self._by_topic.get(where.topic)
        if partitions is not None:
            partitions.pop(where.partition, None)
            if not partitions:
                del self._by_topic[where.topic]

    def stage(self, changes: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Take note that records for these are under way; None removes."""
        staged = self._staged
        for where, committed in changes.items():
            before = staged.get(where)
            staged[where] = _Staged(1 if before is None else before.under_way + 1, committed)

    def settle(self, changes: Mapping[TopicPartition, CommittedOffset | None], *, is_durable: bool) -> None:
        """End what `stage` began; None removes. Changes that were lost leave all as it was."""
        for where, committed in changes.items():
            under_way, last = self._staged[where]
            if under_way > 1:
                self._staged[where] = _Staged(under_way - 1, last)
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
    if committed.metadata == EEYLOPS:
        return False
    if committed.expire_ms != NO_EXPIRY:
        return now_ms >= committed.expire_ms
    return now_ms - since_ms >= retention_ms
