"""Server-side assignors of the consumer protocol (KIP-848): who should read which partition.

`uniform` spreads partitions evenly and moves as few as it can; `range` gives each member one contiguous range a topic,
the same range in topics of one size, so that keys meet. Both are functions of their arguments alone. When and how a
partition changes hands is no business of theirs: `reconcile.py` sees to that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from odradek.groups.balance import balance


class TopicIdPartition(NamedTuple):
    """One partition of a topic, which is known by its id: a topic made anew under an old name is another topic."""

    topic_id: bytes
    partition: int


Partitions: TypeAlias = frozenset[TopicIdPartition]


class Subscriber(NamedTuple):
    """A member, as an assignor sees it."""

    member_id: str
    instance_id: str | None  # set for a static member (KIP-345)
    topics: frozenset[bytes]  # ids of topics, each a key of the partition counts
    held: Partitions  # its target until now; it may contain partitions that are gone


Assignor: TypeAlias = Callable[[Sequence[Subscriber], Mapping[bytes, int]], dict[str, Partitions]]


def uniform(subscribers: Sequence[Subscriber], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Give everyone as many partitions as everyone else, to within one where all subscribe to the same topics."""
    members = sorted(subscribers, key=lambda member: member.member_id)
    kept = _kept(members, counts)
    free = _free(members, counts, kept)
    if all(member.topics == members[0].topics for member in members):
        _deal(members, kept, free)
    else:
        _place(members, kept, free)
        balance({member.member_id: member.topics for member in members}, kept)
    return {member_id: frozenset(partitions) for member_id, partitions in kept.items()}


def range_(subscribers: Sequence[Subscriber], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Cut each topic into contiguous ranges, one a subscriber; static members first, by their instance ids."""
    members = sorted(subscribers, key=_range_order)
    given: dict[str, set[TopicIdPartition]] = {member.member_id: set() for member in members}
    for topic_id, count in counts.items():
        readers = [member for member in members if topic_id in member.topics]
        if not readers:
            continue
        quota, extra = divmod(count, len(readers))
        start = 0
        for place, reader in enumerate(readers):
            end = start + quota + (place < extra)
            given[reader.member_id].update(TopicIdPartition(topic_id, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": uniform, "range": range_})


def _range_order(member: Subscriber) -> tuple[bool, str]:
    return (member.instance_id is None, member.instance_id or member.member_id)


def _kept(members: Iterable[Subscriber], counts: Mapping[bytes, int]) -> dict[str, list[TopicIdPartition]]:
    """What each member has and may keep, in order; nothing is kept by two."""
    taken: set[TopicIdPartition] = set()
    kept: dict[str, list[TopicIdPartition]] = {}
    for member in members:
        mine = {at for at in member.held if at.topic_id in member.topics and at.partition < counts[at.topic_id]}
        kept[member.member_id] = sorted(mine - taken)
        taken |= mine
    return kept


def _free(
    members: Iterable[Subscriber], counts: Mapping[bytes, int], kept: Mapping[str, Iterable[TopicIdPartition]]
) -> list[TopicIdPartition]:
    """What somebody subscribes to and nobody has, in order."""
    topics: set[bytes] = set()
    topics.update(*(member.topics for member in members))
    wanted = {TopicIdPartition(topic_id, partition) for topic_id in topics for partition in range(counts[topic_id])}
    return sorted(wanted.difference(*kept.values()))


def _deal(members: Sequence[Subscriber], kept: dict[str, list[TopicIdPartition]], free: list[TopicIdPartition]) -> None:
    """Bring all to their even share: those with too much lose the excess, which the others get one by one."""
    if not members:
        return
    quota, extra = divmod(len(free) + sum(map(len, kept.values())), len(members))
    shares: dict[str, int] = {}
    for member_id in sorted(kept, key=lambda member_id: -len(kept[member_id])):
        # Those who have most already get the one more that not all can have: it costs no move.
        shares[member_id] = quota + (len(shares) < extra)
        free.extend(kept[member_id][shares[member_id] :])
        del kept[member_id][shares[member_id] :]
    hungry = deque(member_id for member_id in kept if len(kept[member_id]) < shares[member_id])
    for partition in sorted(free):
        member_id = hungry.popleft()
        kept[member_id].append(partition)
        if len(kept[member_id]) < shares[member_id]:
            hungry.append(member_id)


def _place(
    members: Sequence[Subscriber], kept: dict[str, list[TopicIdPartition]], free: list[TopicIdPartition]
) -> None:
    """Give each free partition to the subscriber with the least, those first that few can take."""
    readers: dict[bytes, list[str]] = {}
    for member in members:
        for topic_id in member.topics:
            readers.setdefault(topic_id, []).append(member.member_id)
    for partition in sorted(free, key=lambda at: (len(readers[at.topic_id]), at)):
        kept[min(readers[partition.topic_id], key=lambda member_id: len(kept[member_id]))].append(partition)
