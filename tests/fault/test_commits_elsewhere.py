"""A group's coordinator takes the offsets of partitions that other brokers have, and its own broker does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until

NODES = [1, 2, 3]
TOPIC, SOON = "orders", 30.0

pytestmark = pytest.mark.xdist_group("cluster-faults")  # one cluster at a time


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Each broker has one partition, and no other broker has it."""
    work: Path = tmp_path_factory.mktemp("cluster")
    with ClusterProcesses(work, LoopbackNetwork(), NODES) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        wait_until(lambda: len(admin.list_topics(timeout=SOON).brokers) == len(NODES), SOON, "all brokers")
        topic = NewTopic(TOPIC, num_partitions=len(NODES), replica_assignment=[[node] for node in NODES])
        admin.create_topics([topic])[TOPIC].result(SOON)
        yield brokers


@pytest.mark.parametrize("group", ["a", "b", "c", "d"])  # of different coordinators
def test_offsets_of_partitions_on_other_brokers_are_kept(cluster: ClusterProcesses, group: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    wanted = {index: 10 + index for index in range(len(NODES))}
    places = [TopicPartition(TOPIC, index, offset) for index, offset in wanted.items()]
    try:
        told = consumer.commit(offsets=places, asynchronous=False) or []
        assert {one.partition: one.error for one in told} == dict.fromkeys(wanted)
        kept = consumer.committed([TopicPartition(TOPIC, index) for index in wanted], timeout=SOON)
        assert {one.partition: one.offset for one in kept} == wanted
    finally:
        consumer.close()
