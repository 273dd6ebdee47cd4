"""The topics and files of the Spark comparison: made once a run, the same for both sides."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.kafka_clients import LOG_LEVEL, create_topics, servers
from bench.kafka_process import BenchError, Deadline

PARTITIONS = 4
FILES = 4
PRODUCE_SECONDS = 300.0
ADMIN_SECONDS = 30.0
CHUNK = 5_000
KEY_BYTES = 8
POOL = 10_007  # different values; a prime, so that they meet all partitions
SIZES = {100: "100 B", 1024: "1 KiB"}


@dataclass(frozen=True)
class Load:
    """A topic to read, or what is written."""

    value_bytes: int
    codec: str
    rows: int

    @property
    def topic(self) -> str:
        """Its name."""
        return f"read-{self.value_bytes}-{self.codec}"

    def __str__(self) -> str:
        return f"{SIZES[self.value_bytes]}, {'uncompressed' if self.codec == 'none' else self.codec}"


def values(size: int) -> list[bytes]:
    """Texts of hexadecimal digits: they compress to a half, as much of what is sent does."""
    chance = random.Random(size)
    return [chance.randbytes(size // 2).hex().encode() for _ in range(POOL)]


def _common(port: int) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": servers(port), "log_level": LOG_LEVEL}


def _key(number: int) -> bytes:
    return b"%0*d" % (KEY_BYTES, number)


def produce(port: int, load: Load) -> None:
    """Fill a topic with librdkafka, whose batches are as large as its defaults make them."""
    create_topics(port, [load.topic], PARTITIONS)
    failures: list[object] = []
    producer = Producer(
        {
            **_common(port),
            "acks": "all",
            "compression.type": load.codec,
            "queue.buffering.max.messages": 200_000,
        }
    )
    pool = values(load.value_bytes)
    deadline = Deadline(PRODUCE_SECONDS, f"filling the topic {load.topic}")
    for start in range(0, load.rows, CHUNK):
        numbers = range(start, min(start + CHUNK, load.rows))
        batch = [
            {"key": _key(number), "value": pool[number % POOL], "partition": number % PARTITIONS} for number in numbers
        ]
        while len(producer) + CHUNK > 150_000:
            producer.poll(0.01)
            deadline.check()
        if producer.produce_batch(
            load.topic, batch, on_delivery=lambda error, _: failures.append(error) if error else None
        ) < len(batch):
            raise BenchError(f"the topic {load.topic} cannot be filled: the queue is full")
    if producer.flush(deadline.left()) or failures:
        raise BenchError(f"the topic {load.topic} cannot be filled: {failures[:1] or 'records are left over'}")


def write_files(directory: Path, load: Load) -> None:
    """Files with the rows that are written to topics."""
    directory.mkdir(parents=True)
    pool = values(load.value_bytes)
    for file in range(FILES):
        numbers = range(file * load.rows // FILES, (file + 1) * load.rows // FILES)
        rows = pa.table(
            {
                "key": pa.array([_key(number) for number in numbers], pa.binary()),
                "value": pa.array([pool[number % POOL] for number in numbers], pa.binary()),
            }
        )
        pq.write_table(rows, directory / f"part-{file}.parquet", compression="none", use_dictionary=False)


def rows_of_topic(port: int, topic: str) -> int:
    """How many records a topic has that nothing was removed from."""
    consumer = Consumer({**_common(port), "group.id": "bench"})
    try:
        bounds = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=ADMIN_SECONDS)
            for each in range(PARTITIONS)
        ]
        return sum(high - low for low, high in bounds)
    finally:
        consumer.close()


def rows_of_files(lake: Path) -> int:
    """How many rows the parquet files below a directory have."""
    return sum(pq.read_metadata(file).num_rows for file in lake.rglob("*.parquet") if file.name[0] not in "._")


def delete_topic(port: int, topic: str) -> None:
    """Make room."""
    admin = AdminClient(_common(port))
    for future in admin.delete_topics([topic]).values():
        future.result(ADMIN_SECONDS)
