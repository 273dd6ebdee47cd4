"""Three brokers, one of them away while a partition is deleted and made again: nothing of the old one comes back."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.proto import mykafka_pb2 as pb
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.mykafka.asking import Client, asking
from tests.process import wait_until

NODES = (1, 2, 3)
SECONDS_MAX = 60.0
OLD, NEW = b"of the old partition", b"of the new partition"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"default.replication.factor": "3", "min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}
    directory = tmp_path_factory.mktemp("again")
    with ClusterProcesses(directory, LoopbackNetwork(), NODES, settings, grpc=True) as cluster:
        yield cluster


def in_sync(cluster: ClusterProcesses, node: int, topic: str, partition: int) -> list[int]:
    admin = AdminClient({"bootstrap.servers": cluster.address(node, "kafka")})
    found = admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions.get(partition)
    return [] if found is None else sorted(found.isrs)


def log_of(cluster: ClusterProcesses, node: int, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((cluster.data(node) / name).glob("*.log")))


def commit(cluster: ClusterProcesses, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.address(1, "kafka"), "group.id": f"readers-of-{topic}"})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 1, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(cluster: ClusterProcesses, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.address(1, "kafka"), "group.id": f"readers-of-{topic}"})
    try:
        (place,) = consumer.committed([TopicPartition(topic, 1)], timeout=SECONDS_MAX)
        assert place.error is None, place
        return int(place.offset)
    finally:
        consumer.close()


def is_stored(client: Client, topic: str) -> bool:
    try:
        return client.told_send(topic, 1, NEW, seconds=3.0).error.code == pb.OK
    except grpc.RpcError:
        return False


@pytest.mark.parametrize("away", ["killed", "paused"])
def test_a_broker_that_was_away_has_the_new_partition_and_nothing_of_the_old(
    cluster: ClusterProcesses, away: str
) -> None:
    topic = f"books_{away}"
    with asking(cluster.address(1, "grpc")) as client:
        assert [client.create(topic, index) for index in (0, 1)] == [pb.OK] * 2
        assert [client.send(topic, 1, OLD) for _ in range(20)] == list(range(20))
        commit(cluster, topic, 20)
        wait_until(lambda: all(OLD in log_of(cluster, node, f"{topic}-1") for node in NODES), SECONDS_MAX)
        third = cluster.brokers[3]
        third.kill() if away == "killed" else third.pause()
        assert client.delete(topic, 1) == pb.OK
        assert client.create(topic, 1) == pb.OK
        # The one that is paused may be the leader of the new one, until it is fenced.
        wait_until(lambda: is_stored(client, topic), SECONDS_MAX, "a leader")
        wait_until(lambda: committed(cluster, topic) < 0, SECONDS_MAX)
        assert OLD in log_of(cluster, 3, f"{topic}-1"), "it does not know yet"
        cluster.restart([3]) if away == "killed" else third.resume()
        wait_until(lambda: in_sync(cluster, 3, topic, 1) == list(NODES), SECONDS_MAX, "all in sync")
        last = client.send(topic, 1, NEW)
        assert 0 < last < 20
        logs = [log_of(cluster, node, f"{topic}-1") for node in NODES]
        wait_until(
            lambda: len({log_of(cluster, node, f"{topic}-1") for node in NODES}) == 1,
            SECONDS_MAX,
            "logs that are alike",
        )
        assert not any(OLD in log for log in logs)
        assert [client.get(topic, 1, offset) for offset in range(last + 1)] == [NEW] * (last + 1)
        assert committed(cluster, topic) < 0
    assert cluster.died() == []
