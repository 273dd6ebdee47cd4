"""How long a partition is away when its leader is killed: odradek's three nodes beside Apache Kafka's, on one machine.

Each round kills the leader of a partition under load with SIGKILL, and counts from the signal to the first record that
was sent after it and acknowledged, and to the first such record that a consumer was given. Then the killed node is
started again; the next round begins when it is in sync. Acknowledgements that were on their way when the signal came
do not count. Both sides have the same idempotent producer (acks=all) and the same consumer, with the client's defaults.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.harness import machine, median
from bench.kafka_clients import LOG_LEVEL
from bench.kafka_process import BenchError, Deadline
from bench.kafka_three import Cluster, KafkaThree, OdradekThree
from bench.kafka_tools import MissingError, default_cache
from bench.three import RunningThree

ROUNDS = 30
TOPIC = "loaded"
RATE = 500  # records a second
VALUE_BYTES = 100
STEADY_SECONDS = 2.0  # of load that is answered before each kill
FAILOVER_SECONDS_MAX = 90.0
MEDIAN_BAR_SECONDS = 2.0
WORST_BAR_SECONDS = 5.0
POLL_SECONDS = 0.01
EPILOG = """
bars: odradek's median at most 2 s and at most Kafka's, its worst at most 5 s; a node that comes back causes no election
of the quorum. Exit status: 0 every bar that could be judged was held, 1 a bar was missed, 2 nothing could be run.
"""


def say(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


class Load:
    """A producer and a consumer of one partition; each record carries the time of its sending."""

    def __init__(self, bootstrap: str) -> None:
        common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL}
        self._producer = Producer(
            {**common, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 300_000}
        )
        self._consumer = Consumer({**common, "group.id": "failover", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._read)]
        self.acknowledged = _First()
        self.consumed = _First()
        self.failure = ""

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(10.0)

    def _send(self) -> None:
        begin, count = time.perf_counter(), 0
        while not self._ended.is_set():
            value = b"%.6f " % time.perf_counter() + b"x" * VALUE_BYTES
            try:
                self._producer.produce(TOPIC, value[:VALUE_BYTES], partition=0, on_delivery=self._delivered)
                count += 1
            except BufferError:
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:
                self.failure = self.failure or f"a record could not be sent: {error}"
                return
            left = begin + count / RATE - time.perf_counter()
            self._producer.poll(max(0.0, left))
        self._producer.purge()
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.take(message)
        elif not self._ended.is_set():
            self.failure = self.failure or f"a record was not delivered: {error}"

    def _read(self) -> None:
        try:
            while not self._ended.is_set():
                message = self._consumer.poll(0.1)
                if message is not None and message.error() is None:
                    self.consumed.take(message)
        finally:
            self._consumer.close()

    def arm(self, seconds: float = 0.0) -> float:
        """From now on only records count that are sent after now, or so many seconds later; what that time is."""
        sent_after = time.perf_counter() + seconds
        self.acknowledged.arm(sent_after)
        self.consumed.arm(sent_after)
        return sent_after

    def check(self) -> None:
        """Raise when the load itself has failed."""
        if self.failure:
            raise BenchError(self.failure)


class _First:
    """When the first record came that was sent after a moment."""

    def __init__(self) -> None:
        self.at = 0.0
        self._sent_after = 0.0
        self._lock = threading.Lock()

    def arm(self, sent_after: float) -> None:
        """Forget the last; from now on only records that are sent after this time count."""
        with self._lock:
            self.at, self._sent_after = 0.0, sent_after

    def take(self, message: Message) -> None:
        """One more record."""
        now, value = time.perf_counter(), message.value()
        with self._lock:
            if not self.at and isinstance(value, bytes) and float(value.split(b" ", 1)[0]) > self._sent_after:
                self.at = now


@dataclass
class Rounds:
    """What one side gave."""

    to_acknowledged: list[float] = field(default_factory=list)
    to_consumed: list[float] = field(default_factory=list)
    to_in_sync: list[float] = field(default_factory=list)  # from the start of the killed node
    quorum_led: int = 0  # rounds in which the killed node led the quorum too
    elections_by_return: int = 0  # rounds in which the quorum's epoch rose while the node came back


def measure(cluster: Cluster, directory: Path, rounds: int) -> Rounds:
    """Kill and restart so often."""
    result = Rounds()
    with RunningThree(cluster, directory) as running:
        running.create_topic(TOPIC, 1, {"min.insync.replicas": "2"})
        with Load(running.bootstrap) as load:
            for number in range(1, rounds + 1):
                _round(running, load, result)
                say(
                    f"  {cluster.name} {number} of {rounds}: acknowledged after {result.to_acknowledged[-1]:.3f} s, "
                    f"consumed after {result.to_consumed[-1]:.3f} s, back in sync after {result.to_in_sync[-1]:.1f} s"
                )
    return result


def _round(running: RunningThree, load: Load, result: Rounds) -> None:
    for what in ("the load to run", "the load to go on"):
        load.arm(STEADY_SECONDS)
        _wait(load, what)
    leader, quorum = running.leader(TOPIC, 0), running.quorum()
    result.quorum_led += leader == quorum.leader
    killed = load.arm()
    running.kill(leader)
    acknowledged, consumed = _wait(load, "a record after the kill")
    result.to_acknowledged.append(acknowledged - killed)
    result.to_consumed.append(consumed - killed)
    before = running.quorum()
    begin = time.perf_counter()
    running.start(leader)
    running.wait_in_sync(TOPIC, 1)
    result.to_in_sync.append(time.perf_counter() - begin)
    result.elections_by_return += running.quorum().epoch != before.epoch


def _wait(load: Load, what: str) -> tuple[float, float]:
    """Until a record that counts is acknowledged, and one is consumed; when each came."""
    deadline = Deadline(FAILOVER_SECONDS_MAX, f"waiting for {what}")
    while not (load.acknowledged.at and load.consumed.at):
        load.check()
        deadline.check()
        time.sleep(POLL_SECONDS)
    return load.acknowledged.at, load.consumed.at


def _report(results: dict[str, Rounds], rounds: int, directory: Path) -> int:
    table = Table(
        title=f"SIGKILL of the leader of a loaded partition, {rounds} rounds",
        caption=f"three nodes each; {machine(directory)}",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("seconds until")
    for name in results:
        table.add_column(f"{name}, median", justify="right")
        table.add_column("worst", justify="right")
    table.add_column("ratio of medians", justify="right")
    both = list(results.values())
    for what, name in (
        ("acknowledged", "to_acknowledged"),
        ("consumed", "to_consumed"),
        ("in sync again", "to_in_sync"),
    ):
        times = [getattr(one, name) for one in both]
        cells = [f"{value:.3f}" for numbers in times for value in (median(numbers), max(numbers))]
        ratio = f"{median(times[0]) / median(times[1]):.2f}" if len(times) == 2 else ""
        table.add_row(what, *cells, ratio)
    Console(width=None if sys.stdout.isatty() else 130).print(table)
    for name, one in results.items():
        caused = f"in {one.elections_by_return} rounds" if one.elections_by_return else "never"
        print(
            f"{name}: the killed node also led the quorum in {one.quorum_led} of {len(one.to_in_sync)} rounds; "
            f"a node that came back caused an election of the quorum {caused}"
        )
    return _judge(results)


def _judge(results: dict[str, Rounds]) -> int:
    ours, theirs = results.get("odradek"), results.get("kafka")
    if ours is None:
        print("No bar was judged: that takes odradek.")
        return 0
    bars: dict[str, bool] = {"no election by a node that came back": not ours.elections_by_return}
    for what in ("acknowledged", "consumed"):
        mine = getattr(ours, f"to_{what}")
        bars[f"{what}: median <= {MEDIAN_BAR_SECONDS:g} s"] = median(mine) <= MEDIAN_BAR_SECONDS
        bars[f"{what}: worst <= {WORST_BAR_SECONDS:g} s"] = max(mine) <= WORST_BAR_SECONDS
        if theirs is not None:
            bars[f"{what}: median <= Kafka's"] = median(mine) <= median(getattr(theirs, f"to_{what}"))
    for bar, held in bars.items():
        print(f"  {bar}: {'held' if held else 'MISSED'}")
    return 0 if all(bars.values()) else 1


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.failover",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rounds", type=int, default=ROUNDS, metavar="N", help="how often the leader is killed; %(default)s")
    add("--only", choices=("odradek", "kafka"), help="one side; both by default")
    add("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="a setting of odradek")
    add("--dir", type=Path, help="where the nodes keep their data; a temporary directory by default")
    add("--cache", type=Path, default=default_cache(), help="where Kafka's jars are kept; %(default)s")
    add("--odradek", type=Path, metavar="PATH", help="the odradek to start; the one beside this Python by default")
    return parser


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both sides, print the table."""
    options = _arguments().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    odradek = options.odradek or Path(sys.executable).with_name("odradek")
    clusters: list[Cluster] = [OdradekThree("odradek", odradek, tuple(options.settings)), KafkaThree(options.cache)]
    results: dict[str, Rounds] = {}
    say(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="odradek-failover-", dir=options.dir) as work:
        for cluster in clusters:
            if options.only not in (None, cluster.name):
                continue
            try:
                cluster.find()
                say(f"{cluster.name}: {cluster.version()}")
                results[cluster.name] = measure(cluster, Path(work) / cluster.name, options.rounds)
            except (MissingError, BenchError) as error:
                say(f"{cluster.name}: {error}")
            except KeyboardInterrupt:
                say("interrupted; everything that was started is stopped")
                return 130
        if not results:
            return 2
        return _report(results, options.rounds, Path(work))


if __name__ == "__main__":
    sys.exit(main())
