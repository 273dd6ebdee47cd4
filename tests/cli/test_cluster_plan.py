"""Where partitions go when a broker leaves, or when the number of their replicas changes."""

from __future__ import annotations

from collections import Counter

import pytest

from odradek.cli.cluster_plan import with_factor, without
from odradek.cli.terminal import CommandError
from odradek.model import TopicPartition


def held(**partitions: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    """Partitions by `topic_index`."""
    return {TopicPartition(name[:-2], int(name[-1])): replicas for name, replicas in partitions.items()}


def racks(*brokers: int, **named: str) -> dict[int, str | None]:
    """Brokers without racks, and those of `b4="east"` with one."""
    return dict.fromkeys(brokers) | {int(name[1:]): rack for name, rack in named.items()}


def test_the_one_that_holds_least_takes_the_place_of_the_one_that_goes() -> None:
    holders = held(a_0=(1, 2, 3), a_1=(2, 3, 1), b_0=(4, 1, 2), c_0=(1, 2, 4))
    assert without(holders, 3, racks(1, 2, 3, 4, 5)) == held_lists(a_0=[1, 2, 5], a_1=[2, 5, 1])


def held_lists(**partitions: list[int]) -> dict[TopicPartition, list[int]]:
    return {TopicPartition(name[:-2], int(name[-1])): replicas for name, replicas in partitions.items()}


def test_many_partitions_are_spread_over_those_who_remain() -> None:
    holders = {TopicPartition("a", index): (3,) for index in range(40)}
    plan = without(holders, 3, racks(1, 2, 3, 4))
    assert sorted(Counter(replicas[0] for replicas in plan.values()).values()) == [13, 13, 14]


def test_a_rack_without_a_copy_goes_before_a_broker_with_less() -> None:
    holders = held(a_0=(1, 3), b_0=(5, 1))
    assert without(holders, 3, racks(b1="east", b3="west", b4="east", b5="west"))[TopicPartition("a", 0)] == [1, 5]


def test_a_broker_that_is_down_takes_nothing() -> None:
    assert without(held(a_0=(1, 3)), 3, racks(1, 2)) == held_lists(a_0=[1, 2])


def test_too_few_brokers_are_named_and_shrinking_is_a_choice() -> None:
    holders = held(a_0=(1, 2, 3))
    with pytest.raises(CommandError, match=r"a-0 has 3 replicas.*only 2 other brokers.*--shrink"):
        without(holders, 3, racks(1, 2, 3))
    assert without(holders, 3, racks(1, 2, 3), shrink=True) == held_lists(a_0=[1, 2])


def test_the_last_copy_is_never_given_up() -> None:
    with pytest.raises(CommandError, match=r"start one more first$"):
        without(held(a_0=(3,)), 3, racks(3), shrink=True)
    with pytest.raises(CommandError, match="start one more"):
        without(held(a_0=(2, 3)), 3, racks(3), shrink=True)  # 2 is down: what it has may be old


def test_replicas_are_added_behind_those_that_are_there() -> None:
    plan = with_factor(held(a_0=(2,), b_0=(1,)), [TopicPartition("a", 0)], 3, racks(1, 2, 3))
    assert plan == held_lists(a_0=[2, 3, 1])


def test_of_too_many_replicas_the_dead_go_first_and_the_preferred_leader_stays() -> None:
    holders = held(a_0=(1, 2, 3), b_0=(2, 3), c_0=(3,))
    assert with_factor(holders, [TopicPartition("a", 0)], 2, racks(1, 3)) == held_lists(a_0=[1, 3])
    busy = held(a_0=(1, 2, 3), b_0=(1,), c_0=(1,))
    assert with_factor(busy, [TopicPartition("a", 0)], 1, racks(1, 2, 3)) == held_lists(a_0=[1])


def test_what_has_the_number_already_does_not_move() -> None:
    assert with_factor(held(a_0=(1, 2)), [TopicPartition("a", 0)], 2, racks(1, 2, 3)) == {}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(CommandError, match="3 replicas need 3 brokers, and 2 brokers are up"):
        with_factor(held(a_0=(1,)), [TopicPartition("a", 0)], 3, racks(1, 2))
