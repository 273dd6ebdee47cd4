"""Clients of Kafka for the tests beside gRPC: kcat and confluent-kafka, partitions named by the test."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

SECONDS_MAX = 60


def kcat_values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    """All values of a partition; none may have a line feed in it."""
    place = ["-t", topic, "-p", str(partition), "-o", "beginning"]
    command = ["kcat", "-C", "-b", bootstrap, *place, "-e", "-q"]
    ran = subprocess.run(command, check=True, timeout=SECONDS_MAX, capture_output=True)
    return ran.stdout.split(b"\n")[:-1]


def kcat_send(bootstrap: str, topic: str, values: Sequence[bytes], partition: int = 0, codec: str = "none") -> None:
    """Send a line a value."""
    command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec, "-X", "acks=all"]
    subprocess.run(command, check=True, timeout=SECONDS_MAX, input=b"".join(value + b"\n" for value in values))


def confluent_values(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[tuple[int, bytes | None, int]]:
    """Offset, value and time of so many records, from the first on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, bytes | None, int]] = []
    try:
        while len(found) < count:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None and message.error() is None, f"{len(found)} of {count}: {message}"
            found.append((message.offset(), message.value(), message.timestamp()[1]))
    finally:
        consumer.close()
    return found


def confluent_send(
    bootstrap: str, topic: str, values: Sequence[bytes | None], partition: int = 0, codec: str = "none"
) -> None:
    """Send them in as few batches as can be, and wait until all replicas have them."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all", "linger.ms": 50}
    producer = Producer(settings)
    failures = []
    for value in values:
        producer.produce(
            topic, value, b"key", partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == []


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """What a group has committed, as Kafka tells it; below 0: nothing."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        (place,) = consumer.committed([TopicPartition(topic, partition)], timeout=SECONDS_MAX)
        assert place.error is None, place
        return int(place.offset)
    finally:
        consumer.close()
