"""Evening out an assignment among members that subscribe to different topics, by the fewest moves that it finds.

Only members that subscribe to a topic can take its partitions, so a partition may have to go round: A gives to B, who
gives another to C. When no such chain leads from a member to one that has at least two fewer, no assignment is more
even. It knows members, topics and partitions, nothing of groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar


class _Placed(Protocol):
    @property
    def topic_id(self) -> bytes: ...


_P = TypeVar("_P", bound=_Placed)


class _Step(NamedTuple):
    """One link of a chain: `giver` hands partitions of `topic_id` on."""

    giver: str
    topic_id: bytes


def balance(topics: Mapping[str, frozenset[bytes]], held: dict[str, list[_P]]) -> None:
    """Change `held` until it is as even as the members' subscriptions to `topics` let it be."""
    _Balancing(topics, held).run()


class _Balancing(Generic[_P]):
    def __init__(self, topics: Mapping[str, frozenset[bytes]], held: dict[str, list[_P]]) -> None:
        self._held = held
        self._readers: dict[bytes, list[str]] = {}
        for member_id, subscribed in topics.items():
            for topic_id in subscribed:
                self._readers.setdefault(topic_id, []).append(member_id)
        self._mean = sum(map(len, held.values())) / len(held)

    def run(self) -> None:
        # Each shift makes the sum of the squares of the loads smaller, so this ends.
        moved = True
        while moved:
            moved = False
            for giver in sorted(self._held, key=lambda member_id: (-len(self._held[member_id]), member_id)):
                while self._relieve(giver):
                    moved = True

    def _relieve(self, giver: str) -> bool:
        """Shift partitions from a member along the chain to the one with the least; False if nobody has two fewer."""
        came_from = self._reachable(giver)
        taker = min(came_from, key=lambda member_id: (len(self._held[member_id]), member_id), default=giver)
        if len(self._held[taker]) > len(self._held[giver]) - 2:
            return False
        chain: list[tuple[_Step, str]] = []
        at = taker
        while at != giver:
            chain.append((came_from[at], at))
            at = came_from[at].giver
        count = self._how_many(giver, taker, [step for step, _ in chain])
        for step, receiver in chain:
            self._move(step, receiver, count)
        return True

    def _reachable(self, giver: str) -> dict[str, _Step]:
        """Everyone whom partitions of `giver` can reach, and by which last step; the shortest chains."""
        came_from: dict[str, _Step] = {}
        seen_topics: set[bytes] = set()
        queue = deque([giver])
        while queue:
            member_id = queue.popleft()
            for topic_id in dict.fromkeys(partition.topic_id for partition in self._held[member_id]):
                if topic_id in seen_topics:
                    continue
                seen_topics.add(topic_id)
                for reader in self._readers[topic_id]:
                    if reader != giver and reader not in came_from:
                        came_from[reader] = _Step(member_id, topic_id)
                        queue.append(reader)
        return came_from

    def _how_many(self, giver: str, taker: str, chain: Iterable[_Step]) -> int:
        """As many as every link has, but no more than bring either end to the mean; at least one."""
        count = min(
            int(len(self._held[giver]) - self._mean),
            int(self._mean - len(self._held[taker])),
            *(sum(at.topic_id == step.topic_id for at in self._held[step.giver]) for step in chain),
        )
        return max(1, count)

    def _move(self, step: _Step, receiver: str, count: int) -> None:
        giving = self._held[step.giver]
        moving = [partition for partition in giving if partition.topic_id == step.topic_id][-count:]
        gone = set(map(id, moving))
        self._held[step.giver] = [partition for partition in giving if id(partition) not in gone]
        self._held[receiver].extend(moving)
