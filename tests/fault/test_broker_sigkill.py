"""A broker killed with SIGKILL again and again under a real client's load: nothing that it acknowledged is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.process import BrokerProcess

ROUNDS = 50
SHARDS = 2
RECORDS_A_ROUND = 400
KEYS = 8
PARTITIONS = 3
TOPIC = "orders"


class Sender:
    """An idempotent producer that remembers what it was promised."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 180_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "logger": None,
                "log_level": 0,
            }
        )
        self.sent = 0
        self.promised: dict[int, tuple[int, int]] = {}  # sequence -> partition and offset
        self.failures: list[str] = []

    def send_some(self) -> None:
        for _ in range(RECORDS_A_ROUND):
            key, value = b"key-%d" % (self.sent % KEYS), b"%d" % self.sent
            self.producer.produce(TOPIC, value, key=key, on_delivery=self._hear)
            self.sent += 1

    def _hear(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None and partition is not None and offset is not None
        sequence = int(value)
        assert sequence not in self.promised
        self.promised[sequence] = (partition, offset)

    def wait_for(self, count: int) -> None:
        """Until so many are acknowledged."""
        for _ in range(600):
            if len(self.promised) >= count or self.failures:
                return
            self.producer.poll(0.1)
        raise AssertionError(f"{len(self.promised)} of {count} acknowledged within a minute")


def read_all(bootstrap: str) -> dict[tuple[int, int], tuple[bytes, int]]:
    """Every record by partition and offset: its key and sequence."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[tuple[int, int], tuple[bytes, int]] = {}
    ended: set[int] = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(30.0)
            assert message is not None, "the broker gave nothing for 30 s"
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None and offset is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes) and isinstance(value, bytes)
            found[partition, offset] = (key, int(value))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_killed_broker_keeps_its_promises(tmp_path: Path, shard: int) -> None:
    chance = random.Random(shard)
    broker = BrokerProcess(tmp_path / "data", {"segment.bytes": "64KiB"}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        made.result()
    sender = Sender(broker.bootstrap)
    try:
        for _ in range(ROUNDS // SHARDS):
            sender.send_some()
            sender.wait_for(len(sender.promised) + chance.randint(1, RECORDS_A_ROUND // 2))
            broker.kill()
            broker.start()
        sender.wait_for(sender.sent)
        assert sender.failures == []
        found = read_all(broker.bootstrap)
    finally:
        broker.kill()

    for sequence, place in sender.promised.items():
        assert found.get(place, (b"", -1))[1] == sequence, f"record {sequence} was promised at {place} and is not there"
    sequences = [sequence for _, sequence in found.values()]
    assert len(sequences) == len(set(sequences)) == sender.sent, "a record is doubled"
    last_by_key: dict[bytes, int] = {}
    for _, (key, sequence) in sorted(found.items()):
        assert sequence > last_by_key.get(key, -1), f"{key!r} is out of order at {sequence}"
        last_by_key[key] = sequence
