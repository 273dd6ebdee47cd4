"""Every partition goes to one of its subscribers; uniform is even and moves little, range is contiguous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.groups.assignors import ASSIGNORS, Assignor, Partitions, Subscriber, TopicIdPartition, range_, uniform

A, B, C = (bytes([number] * 16) for number in (1, 2, 3))


def everything(counts: Mapping[bytes, int]) -> set[TopicIdPartition]:
    return {TopicIdPartition(topic, partition) for topic, count in counts.items() for partition in range(count)}


def some(topic: bytes, *partitions: int) -> Partitions:
    return frozenset(TopicIdPartition(topic, partition) for partition in partitions)


def reader(
    member_id: str, *topics: bytes, held: Partitions = frozenset(), instance_id: str | None = None
) -> Subscriber:
    return Subscriber(member_id, instance_id, frozenset(topics), held)


def after(members: Sequence[Subscriber], target: Mapping[str, Partitions]) -> list[Subscriber]:
    """The members with what they were given."""
    return [member._replace(held=target[member.member_id]) for member in members]


def moved(members: Sequence[Subscriber], target: Mapping[str, Partitions]) -> int:
    """How many partitions somebody had and has no more."""
    return sum(len(member.held - target.get(member.member_id, frozenset())) for member in members)


COUNTS = st.fixed_dictionaries({A: st.integers(0, 12), B: st.integers(0, 12), C: st.integers(0, 5)})


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[bytes, int]]:
    """Members with any subscriptions, who hold anything, twice given and long gone partitions included."""
    counts = draw(COUNTS)
    topics = st.frozensets(st.sampled_from([A, B, C]))
    held = st.frozensets(st.builds(TopicIdPartition, st.sampled_from([A, B, C]), st.integers(0, 14)), max_size=8)
    names = draw(st.lists(st.text("abcdefgh", min_size=1, max_size=2), unique=True, max_size=6))
    return [Subscriber(name, None, draw(topics), draw(held)) for name in names], counts


@pytest.mark.parametrize("assignor", ASSIGNORS.values())
@given(group=groups())
def test_every_partition_that_somebody_wants_goes_to_one_who_wants_it(
    assignor: Assignor, group: tuple[list[Subscriber], dict[bytes, int]]
) -> None:
    members, counts = group
    target = assignor(members, counts)
    assert target.keys() == {member.member_id for member in members}
    given_out = [partition for partitions in target.values() for partition in partitions]
    wanted = {partition for partition in everything(counts) if any(partition.topic_id in m.topics for m in members)}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted
    for member in members:
        assert all(partition.topic_id in member.topics for partition in target[member.member_id])


@pytest.mark.parametrize("assignor", ASSIGNORS.values())
@given(group=groups())
def test_the_order_in_which_members_are_listed_does_not_matter(
    assignor: Assignor, group: tuple[list[Subscriber], dict[bytes, int]]
) -> None:
    members, counts = group
    assert assignor(members, counts) == assignor(members[::-1], dict(reversed(counts.items())))


# uniform


@given(counts=COUNTS, sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_uniform_stays_even_to_within_one_while_members_come_and_go(counts: dict[bytes, int], sizes: list[int]) -> None:
    held: dict[str, Partitions] = {}
    for size in sizes:
        members = [reader(f"m{n}", A, B, C, held=held.get(f"m{n}", frozenset())) for n in range(size)]
        held = uniform(members, counts)
        loads = [len(partitions) for partitions in held.values()]
        assert max(loads) - min(loads) <= 1


@given(counts=COUNTS, size=st.integers(1, 8))
def test_uniform_takes_from_those_who_stay_only_the_share_of_a_newcomer(counts: dict[bytes, int], size: int) -> None:
    members = [reader(f"m{n}", A, B, C) for n in range(size)]
    members = after(members, uniform(members, counts))
    target = uniform([*members, reader("a-newcomer", A, B, C)], counts)
    assert moved(members, target) == len(target["a-newcomer"]) == sum(counts.values()) // (size + 1)


@given(counts=COUNTS, size=st.integers(2, 8))
def test_uniform_takes_nothing_from_those_who_stay_when_one_leaves(counts: dict[bytes, int], size: int) -> None:
    members = [reader(f"m{n}", A, B, C) for n in range(size)]
    remaining = after(members, uniform(members, counts))[1:]
    assert moved(remaining, uniform(remaining, counts)) == 0


@given(group=groups())
def test_uniform_leaves_a_finished_assignment_alone(group: tuple[list[Subscriber], dict[bytes, int]]) -> None:
    members, counts = group
    target = uniform(members, counts)
    assert uniform(after(members, target), counts) == target


def test_uniform_spreads_each_topic_over_the_members() -> None:
    target = uniform([reader("x", A, B), reader("y", A, B)], {A: 4, B: 4})
    assert {member: sorted(p.partition for p in given if p.topic_id == A) for member, given in target.items()} == {
        "x": [0, 2],
        "y": [1, 3],
    }


def evenness(loads: Sequence[int]) -> int:
    return sum(load * load for load in loads)


@settings(max_examples=60)
@given(
    subscriptions=st.lists(st.frozensets(st.sampled_from([A, B, C]), min_size=1), min_size=2, max_size=3),
    counts=st.fixed_dictionaries({A: st.integers(0, 3), B: st.integers(0, 3), C: st.integers(0, 2)}),
    data=st.data(),
)
def test_uniform_is_as_even_as_different_subscriptions_let_it_be(
    subscriptions: list[frozenset[bytes]], counts: dict[bytes, int], data: st.DataObject
) -> None:
    members = []
    left = everything(counts)
    for number, topics in enumerate(subscriptions):
        held = data.draw(st.frozensets(st.sampled_from(sorted(left)))) if left else frozenset()
        left -= held
        members.append(Subscriber(f"m{number}", None, topics, held))
    target = uniform(members, counts)
    ways = [
        [number for number, topics in enumerate(subscriptions) if partition.topic_id in topics]
        for partition in sorted(everything(counts))
    ]
    best = min(
        evenness([choice.count(number) for number in range(len(subscriptions))])
        for choice in product(*filter(None, ways))
    )
    assert evenness([len(partitions) for partitions in target.values()]) == best


def test_uniform_lets_partitions_go_round_by_a_third_member() -> None:
    # x holds A only, z can take C only: y, who reads both, has to stand between.
    members = [reader("x", A, held=some(A, 0, 1, 2, 3)), reader("y", A, C, held=some(C, 0, 1)), reader("z", C)]
    assert sorted(len(given) for given in uniform(members, {A: 4, C: 2}).values()) == [2, 2, 2]


def test_uniform_moves_only_what_it_must_between_different_subscriptions() -> None:
    members = [reader("x", A, B, held=some(A, *range(300))), reader("y", A, held=frozenset()), reader("z", B)]
    target = uniform(members, {A: 300, B: 10})
    assert sorted(map(len, target.values())) == [10, 150, 150]
    assert moved(members, target) == 150


def test_nobody_and_nothing_to_assign_is_no_trouble() -> None:
    assert uniform([], {A: 3}) == range_([], {A: 3}) == {}
    assert uniform([reader("x")], {A: 3}) == range_([reader("x")], {A: 3}) == {"x": frozenset()}


# range


def test_range_gives_contiguous_ranges_the_first_members_one_more() -> None:
    target = range_([reader("z", A), reader("x", A), reader("y", A)], {A: 8})
    assert target == {"x": some(A, 0, 1, 2), "y": some(A, 3, 4, 5), "z": some(A, 6, 7)}


def test_range_gives_topics_of_one_size_the_same_ranges() -> None:
    for given_out in range_([reader("x", A, B), reader("y", A, B), reader("z", A, B)], {A: 7, B: 7}).values():
        assert {at.partition for at in given_out if at.topic_id == A} == {
            at.partition for at in given_out if at.topic_id == B
        }


def test_range_puts_static_members_first_by_their_instance_ids() -> None:
    members = [reader("a", A), reader("c", A, instance_id="one"), reader("b", A, instance_id="two")]
    assert range_(members, {A: 3}) == {"c": some(A, 0), "b": some(A, 1), "a": some(A, 2)}


def test_range_counts_only_the_subscribers_of_a_topic() -> None:
    target = range_([reader("x", A), reader("y", A, B)], {A: 2, B: 2})
    assert target == {"x": some(A, 0), "y": some(A, 1) | some(B, 0, 1)}


def test_range_leaves_members_without_partitions_if_there_are_too_few() -> None:
    assert range_([reader("x", A), reader("y", A)], {A: 1}) == {"x": some(A, 0), "y": frozenset()}
