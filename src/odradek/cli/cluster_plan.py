"""Which brokers shall hold a partition when one goes, or when the number of replicas changes. Pure.

A newcomer is the broker that holds the least, in a rack that has no copy yet if there is one. What need not move stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from odradek.cli.terminal import CommandError
from odradek.model import TopicPartition

Holders: TypeAlias = "Mapping[TopicPartition, tuple[int, ...]]"
Racks: TypeAlias = "Mapping[int, str | None]"  # of the brokers that can take partitions


def without(holders: Holders, gone: int, racks: Racks, *, shrink: bool = False) -> dict[TopicPartition, list[int]]:
    """Replace one broker in every partition that it holds; with `shrink` leave its place empty if need be."""
    racks = {broker: rack for broker, rack in racks.items() if broker != gone}
    load = _load(holders)
    plan: dict[TopicPartition, list[int]] = {}
    for key, replicas in sorted(holders.items()):
        if gone not in replicas:
            continue
        stay = [broker for broker in replicas if broker != gone]
        newcomer = _choose(stay, racks, load)
        if newcomer is not None:
            load[newcomer] += 1
            plan[key] = [newcomer if broker == gone else broker for broker in replicas]
        elif shrink and any(broker in racks for broker in stay):
            plan[key] = stay
        else:
            raise CommandError(_nobody_takes(key, len(replicas), len(racks), can_shrink=bool(stay)))
    return plan


def _nobody_takes(key: TopicPartition, replicas: int, brokers: int, *, can_shrink: bool) -> str:
    advice = " or let it have fewer with --shrink" if can_shrink else ""
    have = "replica" if replicas == 1 else "replicas"
    return (
        f"{key} has {replicas} {have}, and only {brokers} other brokers are up: start one more first,{advice}".rstrip(
            ","
        )
    )


def with_factor(
    holders: Holders, wanted: Collection[TopicPartition], factor: int, racks: Racks
) -> dict[TopicPartition, list[int]]:
    """Give partitions so many replicas; those that have as many already are left out."""
    if factor > len(racks):
        up = "1 broker is" if len(racks) == 1 else f"{len(racks)} brokers are"
        raise CommandError(f"{factor} replicas need {factor} brokers, and {up} up: start more first")
    load = _load(holders)
    plan: dict[TopicPartition, list[int]] = {}
    for key in sorted(wanted):
        replicas = list(holders[key])
        while len(replicas) > factor:
            leaves = max(reversed(replicas), key=lambda broker: _leaves_first(broker, replicas, racks, load))
            load[leaves] -= 1
            replicas.remove(leaves)
        while len(replicas) < factor and (newcomer := _choose(replicas, racks, load)) is not None:
            load[newcomer] += 1
            replicas.append(newcomer)
        if replicas != list(holders[key]):
            plan[key] = replicas
    return plan


def _leaves_first(broker: int, replicas: list[int], racks: Racks, load: Counter[int]) -> tuple[bool, bool, int]:
    """Brokers that are down go first, then the one that holds most; the preferred leader stays as long as it can."""
    return broker not in racks, broker != replicas[0], load[broker]


def _load(holders: Holders) -> Counter[int]:
    return Counter(broker for replicas in holders.values() for broker in replicas)


def _choose(present: Iterable[int], racks: Racks, load: Counter[int]) -> int | None:
    """The broker that takes one more replica, or nobody if all have one."""
    present = set(present)
    used = {racks[broker] for broker in present if racks.get(broker) is not None}
    free = [broker for broker in racks if broker not in present]
    return min(free, key=lambda broker: (racks[broker] in used, load[broker], broker), default=None)
