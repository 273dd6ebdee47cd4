"""Topics whose partitions are not numbered in a row, with real clients: they use the partitions that there are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from odradek.proto import mykafka_pb2 as pb
from tests.clients.conftest import needs
from tests.clients.drivers import DRIVERS
from tests.grpc.kafka import confluent_send, confluent_values, kcat_send, kcat_values
from tests.mykafka.asking import Client, asking
from tests.process import BrokerProcess, wait_until

SECONDS_MAX = 60.0
TOPIC = "books"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, {}, grpc=True) as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    """Of a broker with partitions 1 and 4 of a topic, and with none of the others."""
    with asking(broker.grpc) as client:
        assert [client.create(TOPIC, index) for index in (4, 1)] == [pb.OK] * 2
        yield client


def test_confluent_and_kafka_python_use_the_partitions_that_there_are(broker: BrokerProcess, client: Client) -> None:
    partitions = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(TOPIC).topics[TOPIC].partitions
    assert {index: each.leader for index, each in partitions.items()} == {0: -1, 1: 1, 2: -1, 3: -1, 4: 1}
    for index in (1, 4):
        confluent_send(broker.bootstrap, TOPIC, [b"first", b"second"], index)
        assert [value for _, value, _ in confluent_values(broker.bootstrap, TOPIC, 2, index)] == [b"first", b"second"]
    sender = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    assert sender.send(TOPIC, b"third", partition=4).get(SECONDS_MAX).offset == 2
    sender.close()
    reader = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=int(SECONDS_MAX * 1000)
    )
    reader.assign([kafka.TopicPartition(TOPIC, 4)])
    assert [next(reader).value for _ in range(3)] == [b"first", b"second", b"third"]
    reader.close()


def test_kcat_uses_the_partitions_that_there_are(broker: BrokerProcess, client: Client) -> None:
    needs(next(driver for driver in DRIVERS if driver.name == "kcat"))
    kcat_send(broker.bootstrap, TOPIC, [b"one", b"two"], 4)
    assert kcat_values(broker.bootstrap, TOPIC, 4) == [b"one", b"two"]
    assert client.get(TOPIC, 4, 1) == b"two"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_all_partitions_that_there_are(broker: BrokerProcess, client: Client, protocol: str) -> None:
    for index in (1, 4):
        assert client.send(TOPIC, index, b"%d" % index) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"readers-{protocol}",
            "auto.offset.reset": "earliest",
            "group.protocol": protocol,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        found: set[bytes | None] = set()

        def has_all() -> bool:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.add(message.value())
            return found == {b"1", b"4"}

        wait_until(has_all, SECONDS_MAX, "the messages of both partitions")
        if protocol == "consumer":
            assert sorted(each.partition for each in consumer.assignment()) == [1, 4]
    finally:
        consumer.close()


def test_the_command_line_shows_and_adds_to_the_partitions_that_there_are(
    broker: BrokerProcess, client: Client
) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "odradek", "topic", *words, "--broker", broker.bootstrap]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)

    described = json.loads(run("describe", TOPIC, "--json").stdout)
    assert [(row["partition"], row["leader"]) for row in described["partitions"]] == [(1, 1), (4, 1)]
    refused = run("add-partitions", TOPIC, "5")
    assert (refused.returncode, "the last with number 4" in refused.stderr) == (2, True)
    assert run("add-partitions", TOPIC, "6").stdout == f"topic {TOPIC} has 3 partitions now, 2 before\n"
