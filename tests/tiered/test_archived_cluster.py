"""Archived topics in a cluster: leaders die while they upload, new replicas copy only what is on the leader's disk."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from odradek.client import Admin, Client, PartitionInfo, RequestError
from odradek.model import TopicPartition
from odradek.objects.stores import ObjectStore, open_store
from odradek.wire.errors import ErrorCode
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until
from tests.tiered.topics import (
    ARCHIVED_SECONDS_MAX,
    CONFIGS,
    QUICK,
    TOPIC,
    client_lines,
    kcat_lines,
    lines,
    local_start,
    produce,
    stored_lines,
    whole,
)

COUNT = 5_000
NODES = [1, 2, 3]
SETTINGS = {**QUICK, "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
PLACE = TopicPartition(TOPIC, 0)
Answer = TypeVar("Answer")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "shared").as_uri())


@pytest.fixture
def cluster(tmp_path: Path, store: ObjectStore) -> Iterator[ClusterProcesses]:
    settings = {**SETTINGS, "store.url": store.url}
    with ClusterProcesses(tmp_path, LoopbackNetwork(), NODES, settings) as running:
        yield running


def ask(cluster: ClusterProcesses, question: Callable[[Admin], Awaitable[Answer]]) -> Answer:
    """Ask the cluster something."""

    async def run() -> Answer:
        async with Client(cluster.bootstrap) as client:
            return await question(client.admin)

    return asyncio.run(run())


def partition(cluster: ClusterProcesses) -> PartitionInfo:
    return ask(cluster, lambda admin: admin.describe_topic(TOPIC)).partitions[0]


def leader(cluster: ClusterProcesses) -> int:
    return partition(cluster).leader


def test_leaders_that_die_while_they_upload_lose_and_repeat_nothing(
    cluster: ClusterProcesses, store: ObjectStore
) -> None:
    chance = random.Random(3)
    configs = {**CONFIGS, "segment.bytes": "8000"}
    ask(cluster, lambda admin: admin.create_topic(TOPIC, 1, configs, replication=3))
    sent: list[bytes] = []
    for seed in range(3):
        more = lines(COUNT // 3, seed)
        least = len(list(store.list(""))) + chance.randrange(1, 40)
        producing = threading.Thread(target=produce, args=(cluster.bootstrap, more))
        producing.start()
        wait_until(lambda least=least: len(list(store.list(""))) >= least, ARCHIVED_SECONDS_MAX, "some objects")
        node = leader(cluster)
        cluster.kill([node])
        wait_until(lambda node=node: leader(cluster) not in (node, -1), 30, "another leader")
        cluster.restart([node])
        producing.join()
        sent += more
    assert kcat_lines(cluster.bootstrap) == sent
    for node in NODES:
        wait_until(lambda node=node: local_start(cluster.data(node)) > COUNT // 2, ARCHIVED_SECONDS_MAX, "small disks")
    assert kcat_lines(cluster.bootstrap) == sent
    assert client_lines(cluster.bootstrap, len(sent)) == sent
    wait_until(lambda: len(list(store.list(""))) == 4 * len(whole(store)), 10, "an archive without strays")
    archived = stored_lines(store)
    assert archived == sent[: len(archived)]
    assert not cluster.died()


def test_a_new_replica_begins_where_the_leaders_disk_does_and_can_lead(
    cluster: ClusterProcesses, store: ObjectStore
) -> None:
    ask(cluster, lambda admin: admin.create_topic(TOPIC, 1, CONFIGS, replication=2))
    sent = lines(COUNT)
    produce(cluster.bootstrap, sent)
    old = partition(cluster)
    (new,) = set(NODES) - set(old.replicas)
    for node in old.replicas:
        wait_until(lambda node=node: local_start(cluster.data(node)) > COUNT // 2, ARCHIVED_SECONDS_MAX, "small disks")
    assert ask(cluster, lambda admin: admin.reassign({PLACE: [new]})) == {PLACE: None}
    wait_until(lambda: not ask(cluster, lambda admin: admin.moves()), ARCHIVED_SECONDS_MAX, "the move")
    wait_until(lambda: leader(cluster) == new, ARCHIVED_SECONDS_MAX, "the new one to lead")
    assert local_start(cluster.data(new)) > COUNT // 2
    assert kcat_lines(cluster.bootstrap) == sent
    assert whole(store)
    ask(cluster, lambda admin: admin.delete_topic(TOPIC))
    wait_until(lambda: not list(store.list("")), ARCHIVED_SECONDS_MAX, "an empty store")


def test_a_store_of_one_brokers_own_is_refused(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, LoopbackNetwork(), NODES, SETTINGS) as running:
        with pytest.raises(RequestError, match=r"store\.url") as error:
            ask(running, lambda admin: admin.create_topic(TOPIC, 1, CONFIGS))
        assert error.value.code is ErrorCode.INVALID_CONFIG
