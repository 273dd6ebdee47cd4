"""Whatever brokers and operators do, and wherever a controller dies: no partition is led by one that lacks records.

`World` checks after each record that the image is sound and that no epoch falls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.controller.image import NO_LEADER, ClusterImage, PartitionImage
from odradek.wire.errors import PeerError
from tests.controller.worlds import World

BROKERS = (1, 2, 3, 4)
Steps = list[tuple[int, int, int]]
Partitions = Mapping[tuple[bytes, int], PartitionImage]

steps = st.integers(0, 2**32).map(lambda seed: drawn(Random(seed))) | st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 255), st.integers(0, 15)), max_size=40
)


def drawn(chance: Random) -> Steps:
    """Many steps: the heart of a cluster's life is far from its beginning."""
    kinds = (0, 1, 2, 2, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 12, 12, 13, 13, 14, 14, 15)
    return [(chance.choice(kinds), chance.randrange(256), chance.randrange(16)) for _ in range(chance.randrange(80))]


def partitions_of(world: World) -> Partitions:
    return {(topic.id, index): partition for topic, index, partition in world.image.all_partitions()}


def chosen(mask: int, start: int) -> list[int]:
    """Some brokers, beginning anywhere."""
    order = BROKERS[start % 4 :] + BROKERS[: start % 4]
    return [broker_id for broker_id in order if mask >> (broker_id - 1) & 1]


def topic_name(number: int) -> str:
    return ("t", "u")[number % 2]


def restart(world: World, number: int) -> None:
    broker_id = BROKERS[number % 4]
    world.live.discard(broker_id)
    world.register(broker_id, f"start {len(world.log)}")


def beat(world: World, number: int, **wants: bool) -> None:
    if BROKERS[number % 4] in world.image.brokers:
        world.beat(BROKERS[number % 4], **wants)


def alter(world: World, number: int, mask: int) -> None:
    name, index = topic_name(number), number // 2 % 2
    partition = world.image.partition(name, index)
    if partition is not None and partition.leader != NO_LEADER:
        wished = {*chosen(mask, 0), partition.leader}
        world.alter([replica for replica in partition.replicas if replica in wished], name, index)


def reassign(world: World, number: int, mask: int) -> None:
    world.reassign(chosen(mask, number) if mask else None, topic_name(number), number // 2 % 2)


def unclean(world: World, number: int, _mask: int) -> None:
    world.do("elect", topic=topic_name(number), partition=number // 2 % 2, unclean=True)


CLEAN: tuple[Callable[[World, int, int], object], ...] = (
    lambda world, number, mask: world.topic(topic_name(number), *[chosen(mask, number)] * 2),
    lambda world, number, _: world.topic(topic_name(number), partitions=2),
    lambda world, number, _: beat(world, number),
    lambda world, number, _: beat(world, number, wants_shutdown=number > 200),
    lambda world, number, _: beat(world, number, wants_fence=number > 128),
    lambda world, number, _: world.fence(BROKERS[number % 4]),
    lambda world, number, _: restart(world, number),
    lambda world, number, _: world.do("elect", topic=topic_name(number), partition=None),
    lambda world, number, _: world.do("rebalance"),
    lambda world, number, _: world.do("unregister-broker", broker_id=BROKERS[number % 4]),
    lambda world, number, _: world.do("delete-topic", name=topic_name(number)),
    lambda world, number, _: world.live.discard(BROKERS[number % 4]),
    reassign,
)


def run(world: World, taken: Steps) -> None:
    """Take the steps; those that are refused change nothing."""
    for kind, number, mask in taken:
        before = partitions_of(world)
        try:
            if kind == 15:
                unclean(world, number, mask)
                continue
            if kind in (13, 14):
                alter(world, number, mask)
                continue
            CLEAN[kind](world, number, mask)
        except PeerError:
            continue
        check_clean(before, partitions_of(world))


def check_clean(before: Partitions, after: Partitions) -> None:
    """Nobody is in sync who was not, and nobody leads who was not in sync."""
    for key, partition in after.items():
        earlier = before.get(key)
        if earlier is not None:
            assert set(partition.isr) <= set(earlier.isr), (earlier, partition)
            assert partition.leader in (NO_LEADER, *earlier.isr), (earlier, partition)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_every_image_is_sound_and_every_election_clean(taken: Steps) -> None:
    world = World(BROKERS)
    world.topic("t", [1, 2, 3], [2, 3, 4])
    run(world, taken)
    again = ClusterImage()
    again.cluster_id = world.image.cluster_id
    for offset, record in enumerate(world.log):
        again.apply(record, offset)
    assert again == world.image
    assert ClusterImage.from_json(json.loads(json.dumps(world.image.to_json()))) == world.image
    assert world.image.copy() == world.image


@settings(max_examples=50, deadline=None)
@given(steps, st.integers(0, 15), st.integers(0, 255), st.integers(0, 15), st.integers(0, 5))
def test_a_controller_may_die_within_a_decision(taken: Steps, kind: int, number: int, mask: int, kept: int) -> None:
    world = World(BROKERS)
    world.topic("t", [1, 2, 3], [2, 3, 4])
    run(world, taken)
    saved, end = world.image.copy(), len(world.log)
    run(world, [(kind, number, mask)])
    records = world.log[end:]
    world.image, world.log = saved, world.log[:end]
    for record in records[:kept]:
        world.write(record)
    world.do("adopt")
    for broker in world.image.brokers.values():
        for partition in partitions_of(world).values():
            if not broker.fenced and broker.id in partition.isr:
                assert partition.leader != NO_LEADER


@settings(max_examples=50, deadline=None)
@given(steps)
def test_when_all_are_back_everything_has_a_leader_and_moves_can_end(taken: Steps) -> None:
    world = World(BROKERS)
    world.topic("t", [1, 2, 3], [2, 3, 4])
    run(world, taken)
    for broker_id in BROKERS:
        world.live.discard(broker_id)
        world.register(broker_id, "the last start")
        world.beat(broker_id)
    for topic, index, partition in list(world.image.all_partitions()):
        assert partition.leader != NO_LEADER
        world.alter(partition.replicas, topic.name, index)
    world.do("rebalance")
    for partition in partitions_of(world).values():
        assert set(partition.isr) == set(partition.replicas)
        assert partition.leader == partition.replicas[0]
        assert (partition.adding, partition.removing) == ((), ())
