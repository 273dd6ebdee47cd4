"""Replicated throughput: three brokers, three replicas, acks=all; odradek beside Apache Kafka on one machine.

Each round starts every cluster in an empty directory, warms it up, loads it with idempotent producers (processes with
librdkafka), stops it and removes its data, one after another, in an order that changes with the round. The figures are
medians. The bar is for odradek with flush=replicated, which answers when the replicas have the record in memory, as
Kafka does; the default mode, in which every replica flushes first, stands beside it without a bar.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from confluent_kafka import Consumer, KafkaException, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.harness import machine, median
from bench.kafka_clients import LOG_LEVEL
from bench.kafka_process import BenchError
from bench.kafka_three import Cluster, KafkaThree, OdradekThree
from bench.kafka_tools import MissingError, default_cache
from bench.three import RunningThree

ROUNDS = 3
PRODUCERS = 2
PARTITIONS = 6
PRODUCE_SECONDS = 400.0
CONFIG = {"min.insync.replicas": "2"}
JUDGED, AGAINST = "odradek-replicated", "kafka"
BAR = 1.0
EPILOG = """
Exit status: 0 the bar was held or could not be judged, 1 it was missed, 2 nothing could be run, 130 interrupted.
"""


@dataclass(frozen=True)
class Size:
    """One load."""

    name: str
    value_bytes: int
    count: int  # records of one producer


SIZES = (Size("100 B", 100, 600_000), Size("1 KiB", 1024, 100_000))
QUICK_DIVISOR = 10


@dataclass(frozen=True)
class Figure:
    """What one load gave."""

    records_a_second: float
    mib_a_second: float
    cpu_seconds_a_gib: float


def say(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


class Producers:
    """Some producer processes that begin together."""

    def __init__(self, bootstrap: str, topic: str, size: Size, count: int) -> None:
        self._count = count * PRODUCERS
        command = [sys.executable, "-m", "bench.cluster_producer", bootstrap, topic, str(size.value_bytes), str(count)]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(PRODUCERS)
        ]

    def run(self) -> float:
        """Records a second, from the first that began to the last that ended."""
        try:
            for process in self._processes:
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    raise BenchError(f"a producer did not start: {process.communicate(timeout=10)[1].strip()[-500:]}")
            for process in self._processes:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            times = [self._times(process) for process in self._processes]
        finally:
            for process in self._processes:
                process.kill()
                process.communicate()
        return self._count / (max(end for _, end in times) - min(begin for begin, _ in times))

    def _times(self, process: subprocess.Popen[str]) -> tuple[float, float]:
        try:
            output, errors = process.communicate(timeout=PRODUCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchError(f"a producer was not done after {PRODUCE_SECONDS:.0f} s") from None
        if process.returncode:
            raise BenchError(f"a producer failed: {errors.strip()[-500:]}")
        begin, end = output.split()
        return float(begin), float(end)


def measure(cluster: Cluster, directory: Path, sizes: Sequence[Size]) -> dict[str, Figure]:
    """One turn of one cluster."""
    figures = {}
    with RunningThree(cluster, directory) as running:
        for number, size in enumerate(sizes):
            topic = f"load-{number}"
            running.create_topic(topic, PARTITIONS, CONFIG)
            Producers(running.bootstrap, topic, size, size.count // 2).run()  # warm: a JVM needs it
            cpu = running.cpu_seconds()
            rate = Producers(running.bootstrap, topic, size, size.count).run()
            gib = size.count * PRODUCERS * size.value_bytes / 2**30
            figures[size.name] = Figure(rate, rate * size.value_bytes / 2**20, (running.cpu_seconds() - cpu) / gib)
            _check(running.bootstrap, topic, (size.count // 2 + size.count) * PRODUCERS)
            say(f"  {size.name}: {rate:,.0f} records/s, {figures[size.name].mib_a_second:,.1f} MiB/s")
    return figures


def _check(bootstrap: str, topic: str, count: int) -> None:
    """Every record is there, and none twice."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": LOG_LEVEL})
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(partition, timeout=30.0)[1] for partition in partitions]
    finally:
        consumer.close()
    if sum(ends) != count:
        raise BenchError(f"{count} records were acknowledged, and {sum(ends)} can be read")


def _report(results: dict[str, list[dict[str, Figure]]], sizes: Sequence[Size], directory: Path) -> int:
    table = Table(
        title=f"three brokers, RF 3, acks=all, {PARTITIONS} partitions, {PRODUCERS} producers: medians",
        caption=machine(directory),
        title_justify="left",
        caption_justify="left",
    )
    for column in ("values of", "cluster", "rounds", "records/s", "MiB/s", "broker CPU s/GiB", f"of {AGAINST}'s"):
        table.add_column(column, justify="left" if column in ("values of", "cluster") else "right")
    missed = False
    for size in sizes:
        rates = {name: median(one[size.name].records_a_second for one in rounds) for name, rounds in results.items()}
        for name, rounds in results.items():
            figures = [one[size.name] for one in rounds]
            ratio = rates[name] / rates[AGAINST] if AGAINST in rates and name != AGAINST else None
            missed |= name == JUDGED and ratio is not None and ratio < BAR
            table.add_row(
                size.name,
                name,
                str(len(figures)),
                f"{rates[name]:,.0f}",
                f"{median(one.mib_a_second for one in figures):,.1f}",
                f"{median(one.cpu_seconds_a_gib for one in figures):,.1f}",
                f"{ratio:.2f}" if ratio is not None else "",
            )
    Console(width=None if sys.stdout.isatty() else 130).print(table)
    if not {JUDGED, AGAINST} <= results.keys():
        print(f"The bar was not judged: that takes {JUDGED} and {AGAINST} in one run.")
        return 0
    print(f"{JUDGED} >= {BAR} of {AGAINST}'s: {'MISSED' if missed else 'held'}")
    return 1 if missed else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rounds", type=int, default=ROUNDS, metavar="N", help="how often each has its turn; %(default)s")
    add("--only", choices=("odradek", JUDGED, AGAINST), action="append", help="this one; may be given several times")
    add("--quick", action="store_true", help="a tenth of the records: does it work at all")
    add("--dir", type=Path, help="where the brokers keep their data (3 GiB); a temporary directory by default")
    add("--cache", type=Path, default=default_cache(), help="where Kafka's jars are kept; %(default)s")
    add("--odradek", type=Path, metavar="PATH", help="the odradek to start; the one beside this Python by default")
    return parser


def _clusters(options: argparse.Namespace) -> list[Cluster]:
    odradek = options.odradek or Path(sys.executable).with_name("odradek")
    every: list[Cluster] = [
        OdradekThree(JUDGED, odradek, ("flush=replicated",), "no fsync before the answer (flush=replicated)"),
        OdradekThree("odradek", odradek, (), "fsync at every replica before the answer (its default)"),
        KafkaThree(options.cache),
    ]
    found = []
    for cluster in every:
        if options.only and cluster.name not in options.only:
            continue
        try:
            cluster.find()
            say(f"{cluster.name}: {cluster.version()}; {cluster.durability}")
            found.append(cluster)
        except (MissingError, BenchError) as error:
            say(f"skipped: {cluster.name}: {error}")
    return found


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds, print the table."""
    options = _arguments().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    divisor = QUICK_DIVISOR if options.quick else 1
    sizes = [Size(size.name, size.value_bytes, size.count // divisor) for size in SIZES]
    clusters = _clusters(options)
    results: dict[str, list[dict[str, Figure]]] = {}
    say(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="odradek-cluster-", dir=options.dir) as work:
        try:
            for number in range(options.rounds):
                at = number % max(1, len(clusters))
                for cluster in clusters[at:] + clusters[:at]:
                    begin = time.monotonic()
                    say(f"round {number + 1} of {options.rounds}: {cluster.name}")
                    try:
                        figures = measure(cluster, Path(work) / cluster.name, sizes)
                        results.setdefault(cluster.name, []).append(figures)
                    except (BenchError, KafkaException) as error:
                        say(f"  {cluster.name}: {error}")
                    os.sync()  # what one left to be written is not the next one's to wait for
                    say(f"  took {time.monotonic() - begin:.0f} s")
        except KeyboardInterrupt:
            say("interrupted; everything that was started is stopped")
            return 130
        return _report(results, sizes, Path(work)) if results else 2


if __name__ == "__main__":
    sys.exit(main())
