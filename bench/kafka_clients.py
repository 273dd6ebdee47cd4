"""Loads through confluent-kafka, the client that most Python programs use."""

from __future__ import annotations

import functools
import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.kafka_pace import Schedule
from bench.kafka_process import BenchError, Deadline
from bench.kafka_wire import Connection, metadata_frame, partitions_led

LOAD_SECONDS = 400.0
ADMIN_SECONDS = 400.0
IN_FLIGHT = 5  # what Java's producer does, and the most with idempotence
CONSUME_BATCH = 10_000
LEADER_WAIT_SECONDS = 0.01
LOG_LEVEL = 2  # only what is critical: failures come back as exceptions


def servers(port: int) -> str:
    """The address as clients take it."""
    return f"127.0.0.1:{port}"


def _common(port: int) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": servers(port), "log_level": LOG_LEVEL}


def create_topics(port: int, names: list[str], partitions: int) -> None:
    """Make topics and wait until every partition has a leader."""
    admin = AdminClient(_common(port))
    wanted = [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names]
    futures = admin.create_topics(wanted, operation_timeout=ADMIN_SECONDS, request_timeout=ADMIN_SECONDS)
    for future in futures.values():
        future.result(ADMIN_SECONDS)
    deadline = Deadline(ADMIN_SECONDS, f"waiting for leaders of {len(names) * partitions} new partitions")
    with Connection(port) as connection:
        while partitions_led(connection.call(metadata_frame(names))) < len(names) * partitions:
            deadline.check()
            time.sleep(LEADER_WAIT_SECONDS)


class _Deliveries:
    """Counts what was delivered, and keeps the first failure."""

    def __init__(self) -> None:
        self.count = 0
        self.error: KafkaError | None = None

    def take(self, error: KafkaError | None, _message: Message) -> None:
        """One more."""
        self.count += 1
        self.error = self.error or error

    def check(self) -> None:
        """Raise when a record was not delivered."""
        if self.error is not None:
            raise BenchError(f"a record was not delivered: {self.error}")


def confluent_produce(port: int, topic: str, size: int, count: int, linger_ms: int) -> float:
    """Produce so many records as fast as it goes; give the seconds until the last is acknowledged."""
    producer = Producer(
        {
            **_common(port),
            "acks": "all",
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    deadline = Deadline(LOAD_SECONDS, f"producing {count} records with confluent-kafka")
    deliveries = _Deliveries()
    value = b"x" * size
    begin = time.perf_counter()
    for number in range(count):
        producer.produce(topic, value, on_delivery=deliveries.take)
        if number % 1000 == 0:
            producer.poll(0)
            deadline.check()
    while deliveries.count < count:
        producer.poll(0.1)
        deadline.check()
    deliveries.check()
    return time.perf_counter() - begin


def confluent_consume(port: int, topic: str, partitions: int, count: int) -> float:
    """Consume so many records from the start; give the seconds from the first to the last."""
    consumer = Consumer({**_common(port), "group.id": "bench", "enable.auto.commit": False})
    deadline = Deadline(LOAD_SECONDS, f"consuming {count} records with confluent-kafka")
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        begin = 0.0
        got = 0
        while got < count:
            messages = consumer.consume(CONSUME_BATCH, 0.05)
            begin = begin or (time.perf_counter() if messages else 0.0)
            for message in messages:
                if message.error():
                    raise BenchError(f"a record was not consumed: {message.error()}")
            got += len(messages)
            deadline.check()
        return time.perf_counter() - begin
    finally:
        consumer.close()


def paced_producing(port: int, topic: str, size: int, schedule: Schedule) -> None:
    """Produce to a schedule, with a thread that takes the delivery reports the moment they come."""
    producer = Producer(
        {
            **_common(port),
            "acks": "all",
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": IN_FLIGHT,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    deliveries = _Deliveries()
    value = b"x" * size
    ended = threading.Event()
    # The connection and the metadata are not part of a record's latency.
    producer.produce(topic, value, partition=0, on_delivery=deliveries.take)
    if producer.flush(30):
        raise BenchError("the first record was not acknowledged within 30 s")

    def poll() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    def acknowledged(number: int, error: KafkaError | None, message: Message) -> None:
        schedule.acknowledge(number)
        deliveries.take(error, message)

    poller = threading.Thread(target=poll, name="delivery-reports", daemon=True)
    poller.start()
    try:
        schedule.run(
            lambda number: producer.produce(
                topic, value, partition=0, on_delivery=functools.partial(acknowledged, number)
            )
        )
    finally:
        ended.set()
        poller.join()
    deliveries.check()


def produce_to_all(port: int, topics: list[str], partitions: int) -> float:
    """One record to each partition of each topic; give the seconds until the last is acknowledged."""
    producer = Producer({**_common(port), "acks": "all", "linger.ms": 0})
    deadline = Deadline(LOAD_SECONDS, f"producing to {len(topics) * partitions} partitions")
    deliveries = _Deliveries()
    begin = time.perf_counter()
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"x", partition=partition, on_delivery=deliveries.take)
        producer.poll(0)
    while deliveries.count < len(topics) * partitions:
        producer.poll(0.1)
        deadline.check()
    deliveries.check()
    return time.perf_counter() - begin
