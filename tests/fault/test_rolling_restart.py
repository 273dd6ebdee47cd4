"""Every broker of three is restarted in turn under load, and the clients, as they come, notice nothing but a pause.

No client has a time-out or a number of retries of its own: the defaults must do.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fault.cluster import ClusterProcesses
from tests.fault.history import Acknowledged, Assigned, History, Polled, Record, in_words
from tests.fault.load import decode, encode, now_ms, read_all
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until

pytestmark = pytest.mark.xdist_group("cluster-faults")  # one cluster at a time

NODES = [1, 2, 3]
TOPIC, PARTITIONS = "orders", 3
RATE = 300  # records a second
PADDING_BYTES = 100
CONSUMERS = 2
PAUSE_MS_MAX = 2_000  # of one partition, in one restart
SOON = 30.0


class Clients:
    """A producer at a steady rate, to the partitions in turn, and a group; each in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self.history = History()
        self.errors: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._sending_ends, self._reading_ends = threading.Event(), threading.Event()
        self._sender = threading.Thread(target=self._send, name="producer")
        self._readers = [threading.Thread(target=self._read, args=(f"c{number}",)) for number in range(CONSUMERS)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """They work meanwhile; at the end all that was sent is acknowledged and read."""
        for thread in (self._sender, *self._readers):
            thread.start()
        try:
            yield
            self._sending_ends.set()
            self._sender.join(SOON)
            wait_until(self._all_is_read, SOON, "the last record at the group")
        finally:
            self._sending_ends.set()
            self._reading_ends.set()
            for thread in (self._sender, *self._readers):
                thread.join(SOON)

    def _all_is_read(self) -> bool:
        seen = {event.record for event in list(self.history.consumed) if isinstance(event, Polled)}
        return all(event.record in seen for event in list(self.history.acknowledged))

    def _send(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "error_cb": self._told, "log_level": 0}
        )
        begin, sequence = time.monotonic(), 0
        while not self._sending_ends.is_set():
            producer.produce(
                TOPIC, encode(Record("p", sequence), PADDING_BYTES), partition=sequence % PARTITIONS,
                on_delivery=self._delivered,
            )  # fmt: skip
            sequence += 1
            while (left := begin + sequence / RATE - time.monotonic()) > 0:
                producer.poll(left)
        left_over = producer.flush(SOON)
        if left_over:
            self.errors[f"{left_over} records without an answer"] += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors[f"not delivered: {error}"] += 1
            return
        self.history.acknowledged.append(Acknowledged(now_ms(), *decode(message)))

    def _told(self, error: KafkaError) -> None:
        """Connections that break are told too, and no error: the client makes them again."""
        if error.fatal():
            self.errors[f"fatal: {error}"] += 1

    def _read(self, name: str) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "error_cb": self._told, "log_level": 0})

        def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.history.consumed.extend(Assigned(now_ms(), name, partition.partition) for partition in partitions)

        consumer.subscribe([TOPIC], on_assign=assigned)
        try:
            while not self._reading_ends.is_set():
                message = consumer.poll(0.1)
                error = message.error() if message is not None else None
                if error is not None:
                    self._told(error)
                elif message is not None:
                    self.history.consumed.append(Polled(now_ms(), name, *decode(message)))
        finally:
            consumer.close()


def longest_pause_ms(history: History, partition: int, begin_ms: int, end_ms: int) -> int:
    """The longest time in which no record of a partition was acknowledged, from one before to one after."""
    times = sorted(event.at_ms for event in history.acknowledged if event.place.partition == partition)
    around = [(before, after) for before, after in pairwise(times) if after >= begin_ms and before <= end_ms]
    assert around, f"nothing of partition {partition} was acknowledged"
    return max(after - before for before, after in around)


def is_whole(admin: AdminClient) -> bool:
    """Whether all brokers are known, and each partition has a leader and all its replicas in sync."""
    with suppress(KafkaException):
        found = admin.list_topics(timeout=5.0)
        partitions = found.topics[TOPIC].partitions.values() if TOPIC in found.topics else []
        return len(found.brokers) == len(NODES) and all(
            one.leader in NODES and sorted(one.isrs) == NODES for one in partitions
        )
    return False


def restart(cluster: ClusterProcesses, node: int, admin: AdminClient) -> tuple[int, int]:
    """In good order; when it began, and when all replicas were in sync again."""
    begin_ms = now_ms()
    assert cluster.brokers[node].stop() == 0, cluster.brokers[node].tail()
    cluster.restart([node])
    wait_until(lambda: is_whole(admin), SOON, f"every replica in sync after the restart of broker {node}")
    return begin_ms, now_ms()


def test_a_rolling_restart_under_load_goes_unnoticed(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, LoopbackNetwork(), NODES) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        wait_until(lambda: is_whole(admin), SOON, "all brokers in the metadata")
        topic = NewTopic(TOPIC, PARTITIONS, len(NODES), config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(SOON)
        wait_until(lambda: is_whole(admin), SOON, "every replica in sync")
        clients = Clients(cluster.bootstrap)
        with clients.running():
            wait_until(lambda: clients.history.polled_count() > RATE, SOON, "a second's worth of records at the group")
            restarts = {node: restart(cluster, node, admin) for node in NODES}
            behind = len(clients.history.acknowledged) + RATE
            wait_until(lambda: len(clients.history.acknowledged) > behind, SOON, "more after the last restart")
        clients.history.final = read_all(cluster.bootstrap, TOPIC, PARTITIONS, SOON)
        tracebacks = [log.name for log in cluster.logs() if b"Traceback" in log.read_bytes()]
    assert not clients.errors
    findings = clients.history.check()
    assert not findings, "\n".join(in_words(findings))
    pauses_ms = {
        (node, partition): longest_pause_ms(clients.history, partition, *times)
        for node, times in restarts.items()
        for partition in range(PARTITIONS)
    }
    print(f"pauses in ms by broker restarted and partition: {pauses_ms}")
    print(f"restarts took {[end - begin for begin, end in restarts.values()]} ms")
    assert max(pauses_ms.values()) < PAUSE_MS_MAX, pauses_ms
    assert not tracebacks
