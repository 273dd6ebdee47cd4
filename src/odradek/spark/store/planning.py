"""Cuts what is to be read into tasks: neighbours go together until a task has enough to do, none is too large. Pure.

An object costs a request besides its bytes. So a day of tiny objects makes a few tasks and not one for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

OBJECT_COST_BYTES = 256 * 1024  # what could be read in the time that a request takes, about

_T = TypeVar("_T")


def grouped(
    items: Sequence[_T], cost: Callable[[_T], int], *, bytes_max: int, at_least: int | None = None
) -> list[list[_T]]:
    """Neighbours together, in groups of about `bytes_max`, and `at_least` of them if there are so many items."""
    costs = [max(1, cost(item)) for item in items]
    total = sum(costs)
    wanted = max(math.ceil(total / bytes_max), at_least or 1)
    groups: list[list[int]] = []
    before, last = 0, -1
    for index, own in enumerate(costs):
        number = (2 * before + own) * wanted // (2 * total)  # by where its middle lies
        if number != last:
            groups.append([])
            last = number
        groups[-1].append(index)
        before += own
    while len(groups) < min(at_least or 1, len(items)):
        _halve_largest(groups, costs)
    return [[items[index] for index in group] for group in groups]


def _halve_largest(groups: list[list[int]], costs: Sequence[int]) -> None:
    """Cut the most expensive group that has more than one item, near the middle of its cost."""
    place = max(
        (place for place, group in enumerate(groups) if len(group) > 1),
        key=lambda place: sum(costs[index] for index in groups[place]),
    )
    group = groups[place]
    half = sum(costs[index] for index in group) / 2
    size, spent = 1, costs[group[0]]
    while size < len(group) - 1 and spent + costs[group[size]] <= half:
        spent += costs[group[size]]
        size += 1
    groups[place : place + 1] = [group[:size], group[size:]]
