"""Loads of many: single-record requests, a crowd of connections, thousands of partitions."""

from __future__ import annotations

import json
import struct
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.kafka_clients import create_topics, produce_to_all
from bench.kafka_peers import Running
from bench.kafka_process import BenchError, run_tool
from bench.kafka_wire import (
    Connection,
    api_versions_frame,
    metadata_frame,
    partitions_led,
    produce_accepted,
    produce_answer,
    produce_frame,
)

VALUE = b"x" * 100
WARM_SECONDS = 0.5
PARTITIONS_A_TOPIC = 100
METADATA_ROUNDS = 20


@dataclass(frozen=True)
class Requests:
    """What the driver counted."""

    per_second: float
    p99_ms: float


def single_requests(
    driver: Path, running: Running, topic: str, partitions: int, connections: int, in_flight: int, seconds: float
) -> Requests:
    """Requests of one record each; every connection has `in_flight` of them under way."""
    requests = [produce_frame(topic, partition, VALUE) for partition in range(partitions)]
    answers = [produce_answer(topic, partition) for partition in range(partitions)]
    with Connection(running.port) as connection:
        for request, answer in zip(requests, answers, strict=True):
            produce_accepted(connection, request, answer)
    with tempfile.TemporaryDirectory(prefix="requests-", dir=running.directory) as directory:
        requests_file, answers_file = Path(directory) / "requests", Path(directory) / "answers"
        requests_file.write_bytes(b"".join(requests))
        answers_file.write_bytes(b"".join(struct.pack(">i", len(answer)) + answer for answer in answers))
        words = [driver, running.port, requests_file, answers_file, connections, in_flight]
        times = [int(WARM_SECONDS * 1000), int(seconds * 1000)]
        output = run_tool([str(word) for word in (*words, *times)], seconds + 60)
    counted = json.loads(output)
    return Requests(counted["requests"] / counted["seconds"], counted["p99_ms"])


def crowd(driver: Path, running: Running, idle: int, busy: int, seconds: float) -> dict[str, float]:
    """Idle connections that have asked once, busy ones beside them, and the idle ones asked again at the end."""
    before = running.process.memory_mib()
    with ExitStack() as stack:
        resting = [stack.enter_context(Connection(running.port)) for _ in range(idle)]
        for connection in resting:
            connection.call(api_versions_frame())
        grown = running.process.memory_mib() - before
        result = single_requests(driver, running, "crowd", 10, busy, 1, seconds)
        begin = time.perf_counter()
        for connection in resting:
            connection.call(api_versions_frame())
        answered = (time.perf_counter() - begin) * 1000
    return {
        "connections.per_s": result.per_second,
        "connections.p99": result.p99_ms,
        "connections.idle_mib": grown,
        "connections.idle_answer_ms": answered / idle,
    }


def many_partitions(running: Running, topics: int) -> dict[str, float]:
    """Make topics of a hundred partitions, write to each partition, and ask for all of it."""
    names = [f"many-{number}" for number in range(topics)]
    before = running.process.memory_mib()
    begin = time.perf_counter()
    create_topics(running.port, names, PARTITIONS_A_TOPIC)
    created = time.perf_counter() - begin
    produced = produce_to_all(running.port, names, PARTITIONS_A_TOPIC)
    times = []
    with Connection(running.port) as connection:
        for _ in range(METADATA_ROUNDS):
            begin = time.perf_counter()
            answer = connection.call(metadata_frame(None))
            times.append(time.perf_counter() - begin)
            if partitions_led(answer) < topics * PARTITIONS_A_TOPIC:
                raise BenchError("Metadata does not tell of all partitions")
    return {
        "partitions.create_s": created,
        "partitions.produce_s": produced,
        "partitions.metadata_ms": median(times) * 1000,
        "partitions.mib": running.process.memory_mib() - before,
    }
