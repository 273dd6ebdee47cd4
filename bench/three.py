"""A running cluster of three: started, asked who leads, killed node by node, started again, stopped whole.

Leaders and in-sync replicas are what Kafka's Metadata says; the quorum's leader and epoch what DescribeQuorum says.
Both sides of a comparison are asked in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from bench.kafka_clients import LOG_LEVEL
from bench.kafka_process import BenchError, Deadline, Process
from bench.kafka_three import NODES, Cluster
from odradek.client.address import Address
from odradek.client.connection import connect
from odradek.client.errors import ClientError
from odradek.wire.messages import describe_quorum

READY_SECONDS = 120.0
ADMIN_SECONDS = 5.0
QUORUM_TIMEOUT_MS = 5_000
POLL_SECONDS = 0.05
PORTS = range(20_000, 32_000)  # below those that outgoing connections take: a node that is down keeps its ports


class Quorum(NamedTuple):
    """Who leads the metadata quorum, since which election."""

    leader: int
    epoch: int


class RunningThree:
    """Three nodes that run, or some of them."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.ports = _free_ports()
        self._processes: dict[int, Process] = {}
        self._lives = 0
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._commands = dict(zip(NODES, cluster.prepare(directory, self.ports), strict=True))
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": LOG_LEVEL})

    @property
    def bootstrap(self) -> str:
        """All three, as clients take it."""
        return ",".join(f"127.0.0.1:{kafka}" for kafka, _ in self.ports)

    def __enter__(self) -> Self:
        try:
            for node in NODES:
                self.start(node)
            self._wait(lambda: len(self._brokers()) == len(NODES), READY_SECONDS, "three brokers")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop all and remove what they wrote."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # all are asked before any is waited for
        for process in self._processes.values():
            process.stop()
        self._processes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, node: int) -> None:
        """Start one; it is not ready yet."""
        self._lives += 1
        place = self.directory / f"life-{self._lives}-of-{node}"
        place.mkdir()
        self._processes[node] = Process(f"{self.cluster.name} {node}", self._commands[node], place)

    def kill(self, node: int) -> None:
        """SIGKILL, at once."""
        process = self._processes.pop(node)
        os.killpg(process.pid, signal.SIGKILL)
        process.stop()  # what is left is to take note of its end

    def cpu_seconds(self) -> float:
        """Of all nodes so far."""
        return sum(process.cpu_seconds() for process in self._processes.values())

    # What it says of itself

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """With a replica on each node; back when all are in sync."""
        topic = NewTopic(name, partitions, len(NODES), config=dict(config or {}))
        deadline = Deadline(READY_SECONDS, f"making topic {name}")
        while True:
            try:
                self._admin.create_topics([topic])[name].result(READY_SECONDS)
                break
            except KafkaException as error:  # not yet three brokers to the controller's mind
                deadline.check()
                self._check(f"making topic {name}: {error}")
                time.sleep(POLL_SECONDS)
        self.wait_in_sync(name, partitions)

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """What Metadata says; nothing when nobody answers."""
        with contextlib.suppress(KafkaException):
            found = self._admin.list_topics(topic, timeout=ADMIN_SECONDS).topics[topic]
            if found.error is None:
                return dict(found.partitions)
        return {}

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition."""
        leader = -1

        def is_known() -> bool:
            nonlocal leader
            found = self.partitions(topic).get(partition)
            leader = found.leader if found else -1
            return leader in self._processes

        self._wait(is_known, READY_SECONDS, f"a leader of {topic}-{partition}")
        return leader

    def wait_in_sync(self, topic: str, partitions: int) -> None:
        """Until all three nodes hold every partition of a topic."""

        def all_in_sync() -> bool:
            found = self.partitions(topic).values()
            return len(found) == partitions and all(
                one.leader in NODES and len(one.isrs) == len(NODES) for one in found
            )

        self._wait(all_in_sync, READY_SECONDS, f"all replicas of {topic} in sync")

    def quorum(self) -> Quorum:
        """As a node that runs tells it; tried until one can."""
        deadline = Deadline(READY_SECONDS, "a leader of the quorum")
        while True:
            for node in self._processes:
                with contextlib.suppress(ClientError, OSError):
                    found = asyncio.run(_describe_quorum(Address("127.0.0.1", self.ports[node - 1][0])))
                    if found is not None:
                        return found
            deadline.check()
            time.sleep(POLL_SECONDS)

    def _brokers(self) -> dict[int, object]:
        with contextlib.suppress(KafkaException):
            return dict(self._admin.list_topics(timeout=ADMIN_SECONDS).brokers)
        return {}

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = Deadline(seconds, f"{self.cluster.name}: waiting for {what}")
        while not condition():
            deadline.check()
            self._check(what)
            time.sleep(POLL_SECONDS)

    def _check(self, what: str) -> None:
        for process in self._processes.values():
            try:
                process.check()
            except BenchError as error:
                raise BenchError(f"{error} (while waiting for {what})") from None


async def _describe_quorum(address: Address) -> Quorum | None:
    connection = await connect(address, "bench", timeout_ms=QUORUM_TIMEOUT_MS)
    try:
        partition = describe_quorum.RequestPartition(partition_index=0)
        topic = describe_quorum.RequestTopic(topic_name="__cluster_metadata", partitions=[partition])
        request = describe_quorum.Request(topics=[topic])
        answer = await connection.request(request, describe_quorum.Response, timeout_ms=QUORUM_TIMEOUT_MS)
        found = answer.topics[0].partitions[0] if answer.topics else None
        if found is None or answer.error_code or found.error_code or found.leader_id < 0:
            return None
        return Quorum(found.leader_id, found.leader_epoch)
    finally:
        await connection.close()


def _free_ports() -> list[tuple[int, int]]:
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, 200):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == 2 * len(NODES):
            return list(zip(found[::2], found[1::2], strict=True))
    raise BenchError("no six free ports among two hundred")
