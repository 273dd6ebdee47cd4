"""The clients at three real brokers: any of them is asked, leaders are followed, one that is killed is outlived."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from odradek.client.grpc import AsyncEeylops, AsyncMyKafka, Eeylops, MyKafka, Topic
from tests.client.grpc.deadline import within
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until

NODES = (1, 2, 3)
SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2"}
SOON = 60.0


class Three(NamedTuple):
    """Three brokers, and their gRPC doors by id."""

    cluster: ClusterProcesses
    doors: dict[int, str]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """All run when a test begins, and each test leaves them so."""
    directory = tmp_path_factory.mktemp("three")
    with ClusterProcesses(directory, LoopbackNetwork(), NODES, SETTINGS, grpc=True) as cluster:
        yield Three(cluster, {node: cluster.address(node, "grpc") for node in NODES})


def led_by(eeylops: Eeylops, topic: Topic) -> dict[int, int]:
    """Who leads each partition."""
    return {partition: eeylops.broker_of(topic, partition).id for partition in topic.partitions}


def test_values_go_to_their_leaders_whoever_is_asked_first(three: Three, topic: str) -> None:
    with Eeylops(three.doors[1]) as eeylops:
        made = eeylops.create_topic(topic, partitions=6)
        wait_until(lambda: len(set(led_by(eeylops, made).values())) == 3, SOON, "three leaders")
        assert [node.id for node in sorted(eeylops.cluster_config().nodes)] == [1, 2, 3]
    for node in NODES:
        with Eeylops(three.doors[node]) as eeylops:
            for partition in made.partitions:
                eeylops.produce(made, partition, [b"%d by %d" % (partition, node)])
                found = eeylops.consume(made, partition).values
                assert found[-1].value == b"%d by %d" % (partition, node) and len(found) == node
            eeylops.register("reader", made, node)
            eeylops.commit("reader", made, node, node)
    with Eeylops(three.doors[2]) as eeylops:
        assert [eeylops.last_committed("reader", made, node) for node in NODES] == [1, 2, 3]


def test_a_follower_answers_those_who_allow_it(three: Three, topic: str) -> None:
    with Eeylops(three.doors[1]) as eeylops:
        made = eeylops.create_topic(topic)
        eeylops.produce(made, 1, [b"a"])
        leader = eeylops.broker_of(made, 1).id
    follower = next(node for node in NODES if node != leader)
    with Eeylops(three.doors[follower]) as eeylops:
        wait_until(lambda: len(eeylops.consume(made, 1, follower=True).values) == 1, SOON, "the follower's copy")
        assert next(eeylops.subscribe(made, 1, follower=True)).value == b"a"


def test_mykafka_is_answered_by_any_broker(three: Three, topic: str) -> None:
    for node in NODES:
        with MyKafka(three.doors[node]) as mykafka:
            if node == 1:
                mykafka.create_partition(topic, 5)
            assert mykafka.send_message(topic, 5, b"by %d" % node) == node - 1
            assert [mykafka.get_message(topic, 5, offset) for offset in range(node)] == [
                b"by %d" % by for by in range(1, node + 1)
            ]


@within(SOON * 2)
async def test_streams_go_on_when_the_leader_is_killed(three: Three, topic: str) -> None:
    cluster = three.cluster
    async with AsyncEeylops(list(three.doors.values()), timeout_s=SOON) as eeylops:
        made = await eeylops.create_topic(topic)
        sent = [b"%d" % number for number in range(6_000)]
        got: list[bytes] = []
        killed = asyncio.Event()

        async def read() -> None:
            async with eeylops.subscribe(made, 1, consumer="all", auto_commit=True) as subscription:
                async for value in subscription:
                    got.append(value.value)
                    if value.value == sent[-1]:
                        return

        reading = asyncio.create_task(read())
        async with eeylops.publisher(made, 1) as out:
            for number, value in enumerate(sent):
                if number == 2_000:
                    await out.flush()
                    victim = (await eeylops.broker_of(made, 1)).id
                    cluster.kill([victim])
                    killed.set()
                await out.send(value)
                if number % 500 == 0:
                    await out.flush()
        assert killed.is_set() and out.stored >= len(sent)
        await reading
        assert list(dict.fromkeys(got)) == sent, "each is there, at least once, in its order"
        assert (await eeylops.broker_of(made, 1)).id != victim
    cluster.restart(NODES)


@within(SOON * 2)
async def test_a_client_of_many_addresses_outlives_the_broker_that_it_uses(three: Three, topic: str) -> None:
    async with AsyncMyKafka([three.doors[3], three.doors[1]], timeout_s=SOON) as mykafka:
        await mykafka.create_partition(topic, 0)
        assert await mykafka.send_message(topic, 0, b"a") == 0
        three.cluster.kill([3])
        assert await mykafka.get_message(topic, 0, 0) == b"a"
        assert await mykafka.send_message(topic, 0, b"b") == 1
    three.cluster.restart(NODES)
