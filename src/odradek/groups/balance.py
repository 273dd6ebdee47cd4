"""Evening out an assignment among members that subscribe to different topics, by the fewest moves that it finds.

Only members that subscribe to a topic can take its partitions, so a partition may have to go round: A gives to B, who
gives another to C. When no such chain leads from a member to one that has at least two fewer, no assignment is more
even. It knows members, topics and partitions, nothing of groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar


class _Placed(Protocol):
    @property
    def topic_id(self) -> bytes: ...


_P = TypeVar("_P", bound=_Placed)


class _Step(NamedTuple):
    """One link of a chain: `giver` hands partitions of `topic_id` on to `taker`."""

    giver: str
    topic_id: bytes
    taker: str


def balance(topics: Mapping[str, frozenset[bytes]], held: dict[str, list[_P]]) -> None:
    """Change `held` until it is as even as the members' subscriptions to `topics` let it be."""
    balancing = _Balancing(topics, held)
    balancing.run()
    for member_id in held:
        held[member_id] = balancing.held_by(member_id)


class _Balancing(Generic[_P]):
    def __init__(self, topics: Mapping[str, frozenset[bytes]], held: Mapping[str, list[_P]]) -> None:
        self._readers: dict[bytes, list[str]] = {}
        self._held: dict[str, dict[bytes, list[_P]]] = {}  # member -> topic -> partitions; no empty lists
        self._load = {member_id: len(partitions) for member_id, partitions in held.items()}
        self._mean = sum(self._load.values()) / len(held)
        for member_id, subscribed in topics.items():
            for topic_id in sorted(subscribed):
                self._readers.setdefault(topic_id, []).append(member_id)
            mine = self._held[member_id] = {}
            for partition in held[member_id]:
                mine.setdefault(partition.topic_id, []).append(partition)

    def held_by(self, member_id: str) -> list[_P]:
        return [partition for partitions in self._held[member_id].values() for partition in partitions]

    def run(self) -> None:
        # Each shift makes the sum of the squares of the loads smaller, so this ends.
        moved = True
        while moved:
            moved = False
            for giver in sorted(self._load, key=lambda member_id: (-self._load[member_id], member_id)):
                while self._relieve(giver):
                    moved = True

    def _relieve(self, giver: str) -> bool:
        """Shift partitions from a member along a chain to one with less; False if nobody in reach has two fewer."""
        limit = self._load[giver] - 2
        least = min(self._load.values())
        if least > limit:
            return False
        chain = self._chain(giver, least, limit)
        if not chain:
            return False
        count = self._how_many(giver, chain)
        for step in reversed(chain):
            self._move(step, count)
        self._load[giver] -= count
        self._load[chain[-1].taker] += count
        return True

    def _chain(self, giver: str, least: int, limit: int) -> list[_Step]:
        """The way to the one with the least among those in reach; empty if all of them have more than `limit`."""
        came_from: dict[str, _Step] = {}
        seen_topics: set[bytes] = set()
        queue = deque([giver])
        best: str | None = None
        while queue and (best is None or self._load[best] > least):
            member_id = queue.popleft()
            for topic_id in [each for each in self._held[member_id] if each not in seen_topics]:
                seen_topics.add(topic_id)
                for reader in self._readers[topic_id]:
                    if reader != giver and reader not in came_from:
                        came_from[reader] = _Step(member_id, topic_id, reader)
                        queue.append(reader)
                        if self._load[reader] <= limit and (best is None or self._load[reader] < self._load[best]):
                            best = reader
        chain: list[_Step] = []
        while best is not None and best != giver:
            chain.append(came_from[best])
            best = came_from[best].giver
        return chain[::-1]

    def _how_many(self, giver: str, chain: list[_Step]) -> int:
        """As many as every link has, but no more than bring either end to the mean; at least one."""
        count = min(
            int(self._load[giver] - self._mean),
            int(self._mean - self._load[chain[-1].taker]),
            *(len(self._held[step.giver][step.topic_id]) for step in chain),
        )
        return max(1, count)

    def _move(self, step: _Step, count: int) -> None:
        giving = self._held[step.giver]
        moving = giving[step.topic_id][-count:]
        del giving[step.topic_id][-count:]
        if not giving[step.topic_id]:
            del giving[step.topic_id]
        self._held[step.taker].setdefault(step.topic_id, []).extend(moving)
