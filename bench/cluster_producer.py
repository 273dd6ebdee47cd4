"""One producer of `bench.cluster`, a process of its own: `python -m bench.cluster_producer BOOTSTRAP TOPIC SIZE COUNT`.

It says `ready` when it is connected, begins at a line on its standard input, and says when it began and when the last
record was acknowledged, by the clock that all processes of a machine share. librdkafka's threads do most of the work.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import KafkaError, Message, Producer

from bench.kafka_clients import LOG_LEVEL
from bench.kafka_process import BenchError, Deadline

LINGER_MS = 5
CONNECT_SECONDS = 30.0
PRODUCE_SECONDS = 300.0
POLL_EVERY = 1_000


class Errors:
    """Only failures are reported, so that a record costs no call of Python when it is acknowledged."""

    def __init__(self) -> None:
        self.first: KafkaError | None = None

    def take(self, error: KafkaError | None, _message: Message) -> None:
        """One more."""
        self.first = self.first or error


def main(bootstrap: str, topic: str, size: int, count: int) -> None:
    """Produce so many records to all partitions in turn of librdkafka's choosing."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": LOG_LEVEL,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, timeout=CONNECT_SECONDS)
    print("ready", flush=True)
    sys.stdin.readline()
    errors, value = Errors(), b"x" * size
    deadline = Deadline(PRODUCE_SECONDS, f"producing {count} records")
    begin = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=errors.take)
                break
            except BufferError:
                producer.poll(0.01)
        if number % POLL_EVERY == 0:
            producer.poll(0)
            deadline.check()
    left = producer.flush(deadline.left())
    end = time.perf_counter()
    if left or errors.first is not None:
        raise BenchError(f"{left} records were not acknowledged in time; the first error: {errors.first}")
    print(f"{begin} {end}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
