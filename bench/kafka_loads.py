"""What is done to a running system, by section; every load gives values by the keys of `kafka_measures`.

Throughput is driven by librdkafka's own tool and, at one size, by confluent-kafka from Python; latency by
confluent-kafka to a schedule; single requests by `kafka_requests.c`. All with acks=all and without compression.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.kafka_clients import confluent_consume, confluent_produce, create_topics, paced_producing, servers
from bench.kafka_crowd import crowd, many_partitions, single_requests
from bench.kafka_nats import paced_publishing, publish_many, pull_many
from bench.kafka_pace import Paced, Schedule, percentile
from bench.kafka_peers import Running
from bench.kafka_process import BenchError, run_tool

GIB = 1 << 30
MB = 1_000_000
PARTITIONS = 4
LATENCY_BYTES = 1024
LATENCY_SKIP_SECONDS = 1.0
LATE_MS_MAX = 2.0  # beyond this the client, not the broker, sets the percentiles
LOAD_SECONDS = 240.0
WARM_READS = 2  # a JVM reads twice as fast the second time
NATS_SHARE = 4  # it gets a quarter of the records: it takes them one by one
LINGER_MS = 5  # librdkafka's and Java's default; the tool's own is a second


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    records: dict[int, int]  # how many of which size
    confluent_records: int
    warm_records: int
    latency_seconds: float
    request_seconds: float
    starts: int
    idle_connections: int
    busy_connections: int
    topics: int  # of a hundred partitions each


FULL = Scale({100: 3_000_000, 1024: 700_000, 10240: 100_000}, 300_000, 300_000, 15.0, 5.0, 3, 1000, 200, 50)
QUICK = Scale({100: 300_000, 1024: 60_000, 10240: 8_000}, 30_000, 30_000, 3.0, 1.5, 1, 100, 20, 5)
RATES = (1_000, 10_000)


class Loads(Protocol):
    """The loads for one kind of system."""

    def warm_up(self) -> None:
        """Work that is not measured: a just-in-time compiler has its say."""

    def sections(self) -> dict[str, Callable[[], dict[str, float]]]:
        """The measured loads by name."""


def loads_for(running: Running, performance: Path, driver: Path, scale: Scale) -> Loads:
    """The loads that fit a system."""
    return KafkaLoads(running, performance, driver, scale) if running.peer.kafka else NatsLoads(running, scale)


class _Cost:
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@contextmanager
def _broker_cpu(running: Running) -> Iterator[_Cost]:
    cost = _Cost()
    before = running.process.cpu_seconds()
    yield cost
    cost.cpu_seconds = running.process.cpu_seconds() - before


def _throughput(direction: str, size: int, count: int, cost: _Cost) -> dict[str, float]:
    return {
        f"{direction}.{size}.mb_s": size * count / cost.seconds / MB,
        f"{direction}.{size}.records_s": count / cost.seconds,
        f"{direction}.{size}.cpu_s_gib": cost.cpu_seconds / (size * count / GIB),
    }


def _latency(rate: int, paced: Paced) -> dict[str, float]:
    late = percentile(sorted(paced.late_ms), 0.99)
    if late > LATE_MS_MAX:
        print(f"  the client itself was late by {late:.1f} ms (p99) at {rate:,}/s", file=sys.stderr, flush=True)
    return {f"latency.{rate}.{name}": value for name, value in paced.percentiles().items()} | {
        f"latency.{rate}.late": late
    }


def _seconds(pattern: str, output: str, count: int) -> float:
    """The time that rdkafka_performance gives in the last of its summaries, if that tells of all records."""
    summaries = re.findall(pattern, output)
    if not summaries or int(summaries[-1][0]) < count:
        raise BenchError(f"rdkafka_performance did not finish {count} records: {output.strip()[-400:]}")
    return int(summaries[-1][1]) / 1000


class KafkaLoads:
    """For every system that speaks Kafka's protocol: the same clients, the same settings."""

    def __init__(self, running: Running, performance: Path, driver: Path, scale: Scale) -> None:
        self._running = running
        self._port = running.port
        self._performance = performance
        self._driver = driver
        self._scale = scale

    def sections(self) -> dict[str, Callable[[], dict[str, float]]]:
        """All of them."""
        return {
            "throughput": self.throughput,
            "latency": self.latency,
            "requests": self.requests,
            "connections": self.connections,
            "partitions": self.partitions,
        }

    def warm_up(self) -> None:
        """Produce and consume at two sizes, and single requests for a moment."""
        for size, count in ((100, self._scale.warm_records), (1024, self._scale.warm_records)):
            topic = f"warm-{size}"
            create_topics(self._port, [topic], PARTITIONS)
            self._produce(topic, size, count)
            for _ in range(WARM_READS):
                self._consume(topic, count)
        create_topics(self._port, ["warm-requests"], 1)
        single_requests(self._driver, self._running, "warm-requests", 1, 1, 1, 1.0)

    def throughput(self) -> dict[str, float]:
        """Produce, then consume from the start, at each size; then the same from Python at one size."""
        values: dict[str, float] = {}
        for size, count in self._scale.records.items():
            topic = f"throughput-{size}"
            create_topics(self._port, [topic], PARTITIONS)
            with _broker_cpu(self._running) as cost:
                cost.seconds = self._produce(topic, size, count)
            values |= _throughput("produce", size, count, cost)
            with _broker_cpu(self._running) as cost:
                cost.seconds = self._consume(topic, count)
            values |= _throughput("consume", size, count, cost)
        count = self._scale.confluent_records
        create_topics(self._port, ["confluent"], PARTITIONS)
        seconds = confluent_produce(self._port, "confluent", LATENCY_BYTES, count, LINGER_MS)
        values["confluent.produce.mb_s"] = LATENCY_BYTES * count / seconds / MB
        seconds = confluent_consume(self._port, "confluent", PARTITIONS, count)
        values["confluent.consume.mb_s"] = LATENCY_BYTES * count / seconds / MB
        return values

    def latency(self) -> dict[str, float]:
        """One partition, linger 0, at each rate."""
        values: dict[str, float] = {}
        for rate in RATES:
            topic = f"latency-{rate}"
            create_topics(self._port, [topic], 1)
            schedule = Schedule(rate, self._scale.latency_seconds + LATENCY_SKIP_SECONDS)
            paced_producing(self._port, topic, LATENCY_BYTES, schedule)
            values |= _latency(rate, schedule.result(LATENCY_SKIP_SECONDS))
        return values

    def requests(self) -> dict[str, float]:
        """One record a request, over one connection and over fifty."""
        values: dict[str, float] = {}
        create_topics(self._port, ["requests"], 10)
        for connections, in_flight in ((1, 1), (1, 5), (50, 1)):
            result = single_requests(
                self._driver, self._running, "requests", 10, connections, in_flight, self._scale.request_seconds
            )
            values[f"requests.{connections}.{in_flight}.per_s"] = result.per_second
            values[f"requests.{connections}.{in_flight}.p99"] = result.p99_ms
        return values

    def connections(self) -> dict[str, float]:
        """Many idle connections, and busy ones beside them."""
        scale = self._scale
        create_topics(self._port, ["crowd"], 10)
        return crowd(self._driver, self._running, scale.idle_connections, scale.busy_connections, scale.request_seconds)

    def partitions(self) -> dict[str, float]:
        """Many partitions: made, written to, described."""
        return many_partitions(self._running, self._scale.topics)

    def _produce(self, topic: str, size: int, count: int) -> float:
        command = [str(self._performance), "-P", "-b", servers(self._port), "-t", topic, "-s", str(size)]
        command += ["-c", str(count), "-a", "-1", "-X", f"linger.ms={LINGER_MS}"]
        command += ["-X", "queue.buffering.max.messages=1000000"]
        command += ["-X", "sticky.partitioning.linger.ms=0"]  # spreads a short run evenly, too
        command += ["-i", "600000"]  # no statistics on the way
        # It takes an event of its own in the queue for a lost record (status 1); what it delivered is what counts.
        output = run_tool(command, LOAD_SECONDS, statuses=(0, 1))
        return _seconds(r"(\d+) delivered \(offset -?\d+, 0 failed\) in (\d+)ms", output, count)

    def _consume(self, topic: str, count: int) -> float:
        which = [word for partition in range(PARTITIONS) for word in ("-p", str(partition))]
        command = [str(self._performance), "-C", "-b", servers(self._port), "-t", topic, *which, "-o", "beginning"]
        output = run_tool([*command, "-c", str(count)], LOAD_SECONDS)
        return _seconds(r"(\d+) messages \(\d+ bytes\) consumed in (\d+)ms", output, count)


class NatsLoads:
    """The same in NATS's terms, as far as it goes."""

    def __init__(self, running: Running, scale: Scale) -> None:
        self._running = running
        self._port = running.port
        self._scale = scale

    def sections(self) -> dict[str, Callable[[], dict[str, float]]]:
        """Throughput and latency."""
        return {"throughput": self.throughput, "latency": self.latency}

    def warm_up(self) -> None:
        """A short produce and consume."""
        count = self._scale.warm_records // NATS_SHARE
        publish_many(self._port, "warm", LATENCY_BYTES, count)
        pull_many(self._port, "warm", count)

    def throughput(self) -> dict[str, float]:
        """Publish with acknowledgements, then pull from the start, at each size."""
        values: dict[str, float] = {}
        for size, records in self._scale.records.items():
            count = records // NATS_SHARE
            stream = f"throughput-{size}"
            with _broker_cpu(self._running) as cost:
                cost.seconds = publish_many(self._port, stream, size, count)
            values |= _throughput("produce", size, count, cost)
            with _broker_cpu(self._running) as cost:
                cost.seconds = pull_many(self._port, stream, count)
            values |= _throughput("consume", size, count, cost)
        return values

    def latency(self) -> dict[str, float]:
        """One stream, one connection, at each rate."""
        values: dict[str, float] = {}
        for rate in RATES:
            schedule = Schedule(rate, self._scale.latency_seconds + LATENCY_SKIP_SECONDS)
            paced_publishing(self._port, f"latency-{rate}", LATENCY_BYTES, schedule)
            values |= _latency(rate, schedule.result(LATENCY_SKIP_SECONDS))
        return values
