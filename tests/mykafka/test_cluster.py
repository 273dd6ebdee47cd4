"""MyKafka's door on three brokers: each of them answers every call, whoever leads the partition."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from odradek.proto import mykafka_pb2 as pb
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.mykafka.asking import Client, asking
from tests.process import wait_until

NODES = (1, 2, 3)
SECONDS_MAX = 60.0
FAR_SECONDS = 600.0  # a deadline that no call should need
NUMBERS = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    cluster = ClusterProcesses(tmp_path_factory.mktemp("mykafka"), LoopbackNetwork(), NODES, settings, grpc=True)
    with cluster:
        yield cluster


@pytest.fixture
def clients(cluster: ClusterProcesses) -> Iterator[list[Client]]:
    """One of each broker."""
    with (
        asking(cluster.address(1, "grpc")) as first,
        asking(cluster.address(2, "grpc")) as second,
        asking(cluster.address(3, "grpc")) as third,
    ):
        yield [first, second, third]


@pytest.fixture
def topic() -> str:
    return f"topic_{next(NUMBERS)}"


def test_what_one_broker_has_made_and_stored_all_others_have_at_once(clients: list[Client], topic: str) -> None:
    for partition, maker in enumerate(clients):
        assert maker.create(topic, partition, 1024) == pb.OK
        for sender in clients:
            payload = b"%d" % partition
            offset = sender.send(topic, partition, payload)
            for reader in clients:
                assert reader.get(topic, partition, offset) == payload
                assert reader.offsets(topic, partition) == (0, offset, offset)
        assert [client.create(topic, partition) for client in clients] == [pb.TOPIC_ERROR] * 3
    for partition in range(3, 33):  # also by a broker that has not heard of it yet
        maker, other, third = (clients[(partition + turn) % 3] for turn in range(3))
        assert maker.create(topic, partition) == pb.OK
        assert other.offsets(topic, partition) == third.offsets(topic, partition) == (0, -1, -1)


def test_every_broker_describes_all_partitions_with_their_offsets(clients: list[Client], topic: str) -> None:
    for partition in range(6):
        clients[partition % 3].create(topic, partition, 1000 + partition)
        for _ in range(partition):
            clients[0].send(topic, partition, b"x")
    for client in clients:
        lines = [line.strip() for line in client.info().splitlines()]
        for partition in range(6):
            at = lines.index(f"max_segment_size: {1000 + partition}")
            assert lines[at - 1] == f"partition {partition}:"
            assert lines[at + 3 : at + 6] == [
                "first_offset: 0", f"next_offset: {partition}", f"commit_offset: {partition - 1}",
            ]  # fmt: skip


def test_the_corner_cases_are_told_alike_by_every_broker(clients: list[Client], topic: str) -> None:
    clients[0].create(topic, 1)
    clients[1].send(topic, 1, b"")
    for client in clients:
        assert client.get(topic, 1, 0) == b""
        assert client.get(topic, 1, 1) == pb.NO_MESSAGE
        assert client.get(topic, 1, -1) == pb.PARTITION_ERROR
        assert client.get(topic, 0, 0) == pb.NOT_FOUND
        assert client.get(f"{topic}_unknown", 0, 0) == pb.NOT_FOUND
        assert client.send(topic, 0, b"x") == -pb.NOT_FOUND
        assert client.delete(topic, 0) == pb.TOPIC_ERROR
        assert client.delete_topic(f"{topic}_unknown") == pb.OK
        assert client.send("a/b", 0, b"x") == -pb.INVALID_FILENAME
        answer = client.told_send(topic, 1, b"x" * (2 << 20))
        assert answer.error.code == pb.LOG_ERROR and "max.message.bytes" in answer.error.msg


def test_what_one_broker_deletes_is_soon_gone_at_all_and_made_again_it_is_empty(
    clients: list[Client], topic: str
) -> None:
    for partition in (0, 1):
        clients[0].create(topic, partition)
        clients[1].send(topic, partition, b"old")
    assert clients[2].delete(topic, 0) == pb.OK
    for client in clients:
        wait_until(lambda client=client: client.get(topic, 0, 0) == pb.NOT_FOUND, SECONDS_MAX, "the partition's end")
        assert client.get(topic, 1, 0) == b"old"
    assert clients[1].create(topic, 0) == pb.OK
    assert clients[0].send(topic, 0, b"new") == 0
    assert [client.get(topic, 0, 0) for client in clients] == [b"new"] * 3
    assert clients[0].delete_topic(topic) == pb.OK
    assert clients[0].create(topic, 0) == pb.OK
    assert clients[2].send(topic, 0, b"newer") == 0


def test_a_broker_that_is_killed_is_waited_for_until_another_leads(
    cluster: ClusterProcesses, clients: list[Client], topic: str
) -> None:
    partitions = range(6)  # each broker leads some
    for partition in partitions:
        assert clients[0].create(topic, partition) == pb.OK
        assert clients[0].send(topic, partition, b"before") == 0
    cluster.brokers[3].kill()
    try:
        for partition in partitions:
            client = clients[partition % 2]
            assert client.get(topic, partition, 0) == b"before"
            answer = client.told_send(topic, partition, b"after")
            if answer.error.code:  # sent to the broker that died, which had it or not
                assert answer.error.code == pb.PARTITION_ERROR and "not known" in answer.error.msg
                answer = client.told_send(topic, partition, b"after")
            assert answer.error.code == pb.OK
            assert clients[0].get(topic, partition, answer.offset) == b"after"
        assert clients[1].info().count("unknown") == 0
    finally:
        cluster.restart([3])
    wait_until(lambda: clients[2].get(topic, 0, 0) == b"before", SECONDS_MAX, "the broker's return")


def test_a_leader_that_stands_still_is_waited_for_only_until_another_leads(
    cluster: ClusterProcesses, clients: list[Client], topic: str
) -> None:
    partitions = range(6)  # each broker leads some
    for partition in partitions:
        assert clients[0].create(topic, partition) == pb.OK
        assert clients[0].send(topic, partition, b"before") == 0
    with ThreadPoolExecutor(2 * len(partitions)) as threads:
        cluster.brokers[3].pause()
        try:
            reads = [threads.submit(clients[0].told_get, topic, each, 0, FAR_SECONDS) for each in partitions]
            sends = [threads.submit(clients[1].told_send, topic, each, b"after", FAR_SECONDS) for each in partitions]
            assert [read.result(SECONDS_MAX).payload for read in reads] == [b"before"] * len(partitions)
            for partition, send in zip(partitions, sends, strict=True):
                answer = send.result(SECONDS_MAX)
                if answer.error.code:  # it may have had it before it stood still
                    assert answer.error.code == pb.PARTITION_ERROR and "not known" in answer.error.msg
                else:
                    assert clients[0].get(topic, partition, answer.offset) == b"after"
        finally:
            cluster.brokers[3].resume()
    wait_until(lambda: clients[2].get(topic, 0, 0) == b"before", SECONDS_MAX, "the broker's return")


def test_without_a_majority_nothing_is_promised_and_the_call_ends_in_its_time(
    cluster: ClusterProcesses, clients: list[Client], topic: str
) -> None:
    assert clients[0].create(topic, 0) == pb.OK
    assert clients[0].send(topic, 0, b"before") == 0
    for node in (2, 3):
        cluster.brokers[node].kill()
    try:
        answer = clients[0].told_send(topic, 0, b"alone", seconds=3.0)
        assert answer.error.code == pb.PARTITION_ERROR and answer.error.msg
        request = pb.TopicPartitionRequest(topic=topic, partition=1)
        assert clients[0].stub.CreatePartition(request, timeout=3.0).code == pb.PARTITION_ERROR
    finally:
        cluster.restart([2, 3])
    wait_until(lambda: clients[1].send(topic, 0, b"again") > 0, SECONDS_MAX, "a leader")
    assert clients[2].get(topic, 0, 0) == b"before"
