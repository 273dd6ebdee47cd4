"""Replicas of new partitions are spread: over brokers, over racks, and by who leads and who comes second."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.assignment import Load, assign
from odradek.controller.image import BrokerImage


def brokers(count: int, racks: list[str | None] | None = None, down: frozenset[int] = frozenset()) -> list[BrokerImage]:
    given = racks or [None] * count
    return [BrokerImage(number, 0, "", rack=given[number - 1], fenced=number in down) for number in range(1, count + 1)]


def test_one_partition_after_another_goes_round() -> None:
    assert assign(brokers(3), 4, 3, Load()) == [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)]


def test_topics_of_one_partition_do_not_all_begin_at_the_same_broker() -> None:
    load = Load()
    assert [assign(brokers(3), 1, 1, load)[0] for _ in range(4)] == [(1,), (2,), (3,), (1,)]


def test_what_a_broker_leads_goes_to_all_others_when_it_dies() -> None:
    placed = assign(brokers(4), 48, 4, Load())
    seconds = Counter(replicas[:2] for replicas in placed)
    assert len(seconds) == 12
    assert set(seconds.values()) == {4}


def test_replicas_of_a_partition_are_in_as_many_racks_as_there_are() -> None:
    racks = ["a", "a", "a", "b", "b", "c"]
    for replicas in assign(brokers(6, list(racks)), 60, 3, Load()):
        assert {racks[replica - 1] for replica in replicas} == {"a", "b", "c"}


def test_a_broker_that_is_down_is_taken_only_when_there_are_too_few_others() -> None:
    four = brokers(4, down=frozenset({1}))
    assert all(1 not in replicas for replicas in assign(four, 20, 3, Load()))
    assert all(replicas[3] == 1 for replicas in assign(four, 20, 4, Load()))


@pytest.mark.parametrize("there", [0, 3])
def test_a_new_broker_gets_what_comes_until_it_has_as_much(there: int) -> None:
    load = Load()
    assign(brokers(2), there, 2, load)
    assign(brokers(3), 10 * there + 3, 2, load)
    assert max(load.first.values()) - min(load.first.values()) <= 1


@given(st.integers(1, 7), st.integers(1, 40), st.data())
def test_leaders_and_replicas_are_even(count: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, count))
    load = Load()
    placed = assign(brokers(count), partitions, factor, load)
    assert all(len(set(replicas)) == factor for replicas in placed)
    firsts = [load.first[broker.id] for broker in brokers(count)]
    held = [load.held[broker.id] for broker in brokers(count)]
    assert max(firsts) - min(firsts) <= 1
    assert max(held) - min(held) <= 2
