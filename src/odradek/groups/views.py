"""All groups and offsets that are loaded, whichever partition of `__consumer_offsets` keeps them.

What the APIs see of the shards. Groups of partitions that are loading or led elsewhere are not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from odradek.groups.group import Group
from odradek.groups.offsets import CommittedOffset, GroupOffsets
from odradek.groups.shard import Shard
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode


class LoadedGroups(Mapping[str, Group]):
    """Every loaded group by its id."""

    def __init__(self, find: Callable[[str], Shard | None], shards: Callable[[], Iterable[Shard]]) -> None:
        self._find = find  # the shard of a group, if it is at work
        self._shards = shards  # those at work

    def __getitem__(self, group_id: str) -> Group:
        shard = self._find(group_id)
        if shard is None:
            raise KeyError(group_id)
        return shard.groups[group_id]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(shard.groups for shard in self._shards())

    def __len__(self) -> int:
        return sum(len(shard.groups) for shard in self._shards())

    def each(self) -> Iterator[Group]:
        """All of them, without looking up where each is kept."""
        return chain.from_iterable(shard.groups.values() for shard in self._shards())


class LoadedOffsets:
    """The offsets of all loaded groups."""

    def __init__(
        self,
        find: Callable[[str], Shard | None],
        serving: Callable[[str], Shard],
        shards: Callable[[], Iterable[Shard]],
    ) -> None:
        self._find = find  # the shard of a group, if it is at work
        self._serving = serving  # the same, or PeerError
        self._shards = shards  # all, those that are loading too

    def __contains__(self, group_id: str) -> bool:
        shard = self._find(group_id)
        return shard is not None and group_id in shard.offsets

    def of(self, group_id: str) -> GroupOffsets | None:
        """A group's offsets."""
        shard = self._find(group_id)
        return None if shard is None else shard.offsets.of(group_id)

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        commits: Mapping[TopicPartition, CommittedOffset],
    ) -> asyncio.Future[ErrorCode]:
        """Store offsets; PeerError if the one who asks may not, else the future tells when it is done."""
        return self._serving(group_id).offsets.commit(group_id, member_id, instance_id, generation, commits)

    def settling(self, group_id: str) -> asyncio.Future[ErrorCode] | None:
        """What to wait for to see every commit that was begun so far; None if all are done."""
        shard = self._find(group_id)
        return None if shard is None else shard.offsets.settling(group_id)

    def delete(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, ErrorCode], asyncio.Future[ErrorCode] | None]:
        """Forget offsets, but of topics that members read; the future is of what had to be written."""
        return self._serving(group_id).offsets.delete(group_id, partitions)

    def forget_topic(self, topic: str) -> None:
        """Forget all offsets of a topic that was deleted, so that one of the same name begins anew."""
        for shard in self._shards():
            shard.forget_topic(topic)

    def forget_partition(self, topic: str, index: int) -> None:
        """Forget all offsets of a partition that was deleted, though there may be a new one of its number already."""
        for shard in self._shards():
            shard.forget_partition(TopicPartition(topic, index))
