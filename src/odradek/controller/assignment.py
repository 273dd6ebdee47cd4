"""Which brokers get the replicas of a new partition.

Pure. The first replica, which leads, goes to the broker that has the fewest of them; the others go to racks that have
none of the partition yet, then to brokers that hold the least. Who comes second is spread, too: when a broker dies,
what it led goes to all the others. Brokers that are down are taken only when there are too few others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from odradek.controller.image import BrokerImage, ClusterImage


@dataclass(slots=True)
class Load:
    """What each broker holds so far."""

    first: Counter[int] = field(default_factory=Counter)  # partitions of which it is the preferred leader
    held: Counter[int] = field(default_factory=Counter)  # partitions of which it has a replica
    second: Counter[tuple[int, int]] = field(default_factory=Counter)  # (first, second replica) of a partition

    def add(self, replicas: Sequence[int], count: int = 1) -> None:
        """Count one partition more, or several with the same replicas."""
        for replica in replicas:
            self.held[replica] += count
        if replicas:
            self.first[replicas[0]] += count
        if len(replicas) > 1:
            self.second[replicas[0], replicas[1]] += count


def load_of(image: ClusterImage) -> Load:
    """What the brokers hold by this image."""
    load = Load()
    # Many partitions have the same replicas, and partitions are often made one by one.
    alike = Counter(partition.replicas for topic in image.topics.values() for partition in topic.partitions.values())
    for replicas, count in alike.items():
        load.add(replicas, count)
    return load


def assign(brokers: Iterable[BrokerImage], count: int, factor: int, load: Load) -> list[tuple[int, ...]]:
    """Find replicas for `count` partitions, `factor` for each, and add them to the load.

    At least one of the brokers is active, and there are at least `factor` of them.
    """
    ring = sorted(brokers, key=lambda broker: broker.id)
    return [_place(ring, factor, load) for _ in range(count)]


def _place(ring: Sequence[BrokerImage], factor: int, load: Load) -> tuple[int, ...]:
    first = min(
        (broker for broker in ring if broker.is_active),
        key=lambda broker: (load.first[broker.id], load.held[broker.id], broker.id),
    )
    chosen = [first.id]
    racks: Counter[str] = Counter()
    left = [broker for broker in _from(ring, first) if broker is not first]
    if first.rack is not None:
        racks[first.rack] += 1
    while len(chosen) < factor:
        # `min` takes the first of equals, and `left` begins behind the first replica.
        taken = min(
            left,
            key=lambda broker: (
                not broker.is_active,
                0 if broker.rack is None else racks[broker.rack],
                load.held[broker.id],
                load.second[first.id, broker.id],
            ),
        )
        left.remove(taken)
        chosen.append(taken.id)
        if taken.rack is not None:
            racks[taken.rack] += 1
    load.add(chosen)
    return tuple(chosen)


def _from(ring: Sequence[BrokerImage], first: BrokerImage) -> list[BrokerImage]:
    start = ring.index(first)
    return [*ring[start:], *ring[:start]]
