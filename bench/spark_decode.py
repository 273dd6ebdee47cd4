"""Ways to turn the bytes of a fetch into Arrow, side by side on the same batches: records a second of processor time.

The first four decode from memory; the last two read the same batches from a broker, and so have the network's share in
their time. By hand: `python -m bench.spark_decode`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.harness import machine, median
from bench.kafka_peers import Odradek, start, stop
from bench.kafka_process import BenchError
from bench.spark_decode_kernel import compiled
from odradek import model
from odradek.client.client import Client
from odradek.client.fetched import Fetched
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.header import iter_headers, stamp_offset
from odradek.records.record import NewRecord
from odradek.spark.connection import ConnectionOptions
from odradek.spark.offsets import OffsetRange
from odradek.spark.read.decode import ALL_COLUMNS, TYPES, arrow_schema, decode
from odradek.spark.read.payloads import payloads
from odradek.spark.read.ranges import read_range
from odradek.spark.read.scan import scan
from odradek.wire.messages import produce

COLUMNS = ALL_COLUMNS[:-1]  # all but headers, as Spark's connector has it unless it is told otherwise
TOPIC = "orders"
PARTITION = model.TopicPartition(TOPIC, 0)
ANSWER_BYTES = 16 * 1024 * 1024
KEY_BYTES = 8
PATTERNS = 8  # different batches; the rest repeats them
CONSUME_MESSAGES = 10_000
CONSUME_SECONDS = 60.0
REQUESTS_AT_ONCE = 50
ROUNDS = 5


@dataclass(frozen=True)
class Load:
    """What an answer holds."""

    name: str
    batch_bytes: int
    value_bytes: tuple[int, ...]  # one of them is drawn for each record
    codec: Codec = Codec.NONE


@dataclass(frozen=True)
class Answer:
    """A load as a broker sends it."""

    load: Load
    data: bytes
    records: int


MIXED = (12, 40, 40, 75, 90, 100, 130, 180, 300, 1200)
LOADS = (
    Load("100 B, batches of 16 KiB", 16 * 1024, (100,)),
    Load("100 B, batches of 1 MiB", 1024 * 1024, (100,)),
    Load("12 B to 1.2 KB, batches of 16 KiB", 16 * 1024, MIXED),
    Load("12 B to 1.2 KB, batches of 1 MiB", 1024 * 1024, MIXED),
    Load("100 B, five records a batch", 500, (100,)),
    Load("100 B, zstd, batches of 16 KiB", 16 * 1024, (100,), Codec.ZSTD),
    Load("100 B, zstd, batches of 1 MiB", 1024 * 1024, (100,), Codec.ZSTD),
)


def build(load: Load) -> Answer:
    """Make an answer; values are hexadecimal digits, which compress to a half."""
    chance = random.Random(load.name)
    patterns = []
    for _ in range(PATTERNS):
        records: list[NewRecord] = []
        size = 0
        while size < load.batch_bytes:
            value = chance.randbytes(chance.choice(load.value_bytes) // 2).hex().encode()
            records.append(NewRecord(value, chance.randbytes(KEY_BYTES), 1_700_000_000_000 + len(records) // 4))
            size += len(value) + KEY_BYTES + 9
        patterns.append((build_batch(records, codec=load.codec), len(records)))
    data, offset, number = bytearray(), 0, 0
    while len(data) < ANSWER_BYTES // (2 if load.codec is not Codec.NONE else 1):
        batch, count = patterns[number % PATTERNS]
        stamp_offset(batch, offset, 0)
        data += batch
        offset += count
        number += 1
    return Answer(load, bytes(data), offset)


# Ways.


def ours(answer: Answer) -> int:
    """What odradek.spark does."""
    scanned = scan(memoryview(answer.data), 0, answer.records)
    return sum(batch.num_rows for batch in decode(scanned, PARTITION, 0, answer.records, COLUMNS))


def plain_python(answer: Answer) -> int:
    """Records as the consumer makes them, then lists, then Arrow."""
    fetched = Fetched(PARTITION, memoryview(answer.data), 0)
    rows = 0
    while fetched:
        records, _ = fetched.next_batch()
        topics, partitions, offsets, times, kinds, keys, values, _, _ = zip(*records, strict=True)
        stamps = [time_ms * 1000 for time_ms in times]
        columns = (keys, values, topics, partitions, offsets, stamps, kinds)
        arrays = [pa.array(column, TYPES[name]) for name, column in zip(COLUMNS, columns, strict=True)]
        rows += pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(COLUMNS)).num_rows
    return rows


def numba_way() -> Callable[[Answer], int] | None:
    """A compiled loop; heads, CRC and decompression as ours."""
    kernel = compiled()
    if kernel is None:
        return None

    def decode_all(answer: Answer) -> int:
        scanned = scan(memoryview(answer.data), 0, answer.records)
        return sum(kernel(group).num_rows for group in payloads(scanned))

    return decode_all


def from_broker(bootstrap: str) -> Callable[[Answer], int]:
    """Ours with the fetching."""

    def read(answer: Answer) -> int:
        wanted = OffsetRange(TOPIC, 0, 0, answer.records)
        found = read_range(ConnectionOptions(bootstrap), wanted, COLUMNS, read_committed=False, fail_on_data_loss=True)
        return sum(batch.num_rows for batch in found)

    return read


def confluent(bootstrap: str) -> Callable[[Answer], int]:
    """The consumer of librdkafka, then lists, then Arrow."""

    def consume(answer: Answer) -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        rows = 0
        while rows < answer.records:
            messages = consumer.consume(min(CONSUME_MESSAGES, answer.records - rows), CONSUME_SECONDS)
            if not messages:
                raise BenchError(f"librdkafka brought {rows} of {answer.records} records")
            arrays = [
                pa.array([message.key() for message in messages], pa.binary()),
                pa.array([message.value() for message in messages], pa.binary()),
                pa.array([message.topic() for message in messages], pa.string()),
                pa.array([message.partition() for message in messages], pa.int32()),
                pa.array([message.offset() for message in messages], pa.int64()),
                pa.array([message.timestamp()[1] * 1000 for message in messages], TYPES["timestamp"]),
                pa.array([message.timestamp()[0] - 1 for message in messages], pa.int32()),
            ]
            rows += pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(COLUMNS)).num_rows
        consumer.close()
        return rows

    return consume


# Measuring.


def fill(bootstrap: str, answer: Answer) -> None:
    """Put the batches as they are into a new topic."""

    async def run() -> None:
        async with Client(bootstrap) as client:
            known = {topic.name for topic in await client.admin.list_topics()}
            if TOPIC in known:
                await client.admin.delete_topic(TOPIC)
            await client.admin.create_topic(TOPIC, configs={"retention.ms": "-1", "max.message.bytes": "4194304"})
            batches = [answer.data[at : at + header.size_bytes] for at, header in iter_headers(answer.data)]
            for first in range(0, len(batches), REQUESTS_AT_ONCE):
                # One connection keeps the order of requests.
                await asyncio.gather(*(_send(client, batch) for batch in batches[first : first + REQUESTS_AT_ONCE]))

    asyncio.run(run())


async def _send(client: Client, batch: bytes) -> None:
    partition = produce.RequestPartition(index=0, records=batch)
    topic = produce.RequestTopic(name=TOPIC, topic_id=client.cluster.topic_id(TOPIC), partition_data=[partition])
    request = produce.Request(acks=-1, timeout_ms=30_000, topic_data=[topic])
    response = await client.request(client.cluster.leader(PARTITION), request, produce.Response)
    code = response.responses[0].partition_responses[0].error_code
    if code:
        raise BenchError(f"the broker does not take a batch: error {code}")


def measure(ways: Mapping[str, Callable[[Answer], int] | None], answer: Answer, rounds: int) -> dict[str, float]:
    """Records a second of processor time, all threads of this process; in turns, the median of the rounds."""
    found: dict[str, list[float]] = {name: [] for name, way in ways.items() if way is not None}
    for number in range(rounds + 1):
        for name, way in ways.items():
            if way is None:
                continue
            began = time.process_time()
            rows = way(answer)
            seconds = time.process_time() - began
            if rows != answer.records:
                raise BenchError(f"{name} found {rows} of {answer.records} records")
            if number:  # the first one is to warm up
                found[name].append(rows / seconds)
    return {name: median(figures) for name, figures in found.items()}


def main() -> int:
    """Measure all ways on all loads and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_decode", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    executable = Path(sys.executable).with_name("odradek")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as work:
        running = start(Odradek("odradek", executable), Path(work) / "broker")
        try:
            bootstrap = f"127.0.0.1:{running.port}"
            ways: dict[str, Callable[[Answer], int] | None] = {
                "odradek.spark": ours,
                "plain Python": plain_python,
                "numba": numba_way(),
                "odradek.spark, from a broker": from_broker(bootstrap),
                "confluent-kafka, from a broker": confluent(bootstrap),
            }
            table = Table(
                title="records a second of processor time, in millions",
                caption=machine(Path(work)),
                title_justify="left",
            )
            table.add_column("load")
            for name in ways:
                table.add_column(name, justify="right")
            for load in LOADS:
                answer = build(load)
                fill(bootstrap, answer)
                figures = measure(ways, answer, options.rounds)
                cells = [f"{figures[name] / 1e6:.2f}" if name in figures else "not installed" for name in ways]
                table.add_row(load.name, *cells)
                print(f"  {load.name}: {', '.join(cells)}", file=sys.stderr, flush=True)
        finally:
            stop(running)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
