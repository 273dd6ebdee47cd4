"""Odradek's Spark source and sink beside Spark's own Kafka connector: same topics, same broker, same Spark, in turns.

Each side has a Spark session in a process of its own, with the same settings; one rests while the other works. Both
run a case once to warm up, then take turns. Reads end in Spark's `noop`, which takes every column of every row.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench.harness import Results
from bench.kafka_clients import create_topics
from bench.kafka_peers import Odradek, Running, start, stop
from bench.kafka_process import BenchError
from bench.kafka_tools import MissingError, default_cache
from bench.spark_measures import LABELS, Case, Figure, row_of, steady_row
from bench.spark_sides import Outcome, Side
from bench.spark_tools import connector_jars, describe
from bench.spark_topics import (
    PARTITIONS,
    Load,
    delete_topic,
    produce,
    rows_of_files,
    rows_of_topic,
    write_files,
)

ROUNDS = 3
BUSY_LOAD = 0.5
MICRO_BATCHES = 5
SIDES = ("ours", "connector")
CELLS = (
    "each cell: millions of rows a second, median (least-most); processor seconds a million rows of Spark + the broker"
)
EPILOG = """
what is measured (--only):
  read          all of a topic to `noop`
  stream        the same as a stream, Trigger.AvailableNow, in five micro-batches, from start() to the end
  write         parquet files to a new topic, acks=all
  write_stream  the same as a stream, in two micro-batches
  archive       a topic to parquet files, a directory a day, as a stream in five micro-batches: by odradek.spark.lake,
                each batch exactly once, beside Spark's file sink
  parquet       the same by Spark's file sink on both sides

examples:
  python -m bench.spark                      everything: about twelve minutes
  python -m bench.spark --quick              a smoke run of two minutes; too short to judge by
  python -m bench.spark --only read,write --rounds 5

The first run fetches the connector from Maven Central (needs java and mvn) into the cache directory.
Exit status: 0 every bar was held, 1 a bar was missed, 2 nothing could be run, 130 interrupted.
"""


@dataclass(frozen=True)
class Scale:
    """How much."""

    read_rows: dict[int, int]  # by the size of values
    write_rows: dict[int, int]


FULL = Scale(read_rows={100: 2_000_000, 1024: 1_000_000}, write_rows={100: 1_000_000, 1024: 300_000})
QUICK = Scale(read_rows={100: 200_000, 1024: 100_000}, write_rows={100: 100_000, 1024: 50_000})


def say(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


def cases_of(scale: Scale, kinds: Sequence[str]) -> list[Case]:
    """Every case, in the order of the table."""
    cases = []
    for kind in kinds:
        writes = kind.startswith("write")
        rows = scale.write_rows if writes else scale.read_rows
        for size, count in rows.items():
            for codec in ("none", "zstd") if kind in ("read", "stream") else ("none",):
                cases.append(Case(kind, Load(size, codec, count), _bar(kind, size)))
    return cases


def _bar(kind: str, size: int) -> float | None:
    if kind == "read":
        return 1.5 if size == 100 else None
    return None if kind in ("archive", "parquet") else 1.0


class Bench:
    """One run: a broker, two sessions, topics and files."""

    def __init__(self, running: Running, work: Path, jars: Sequence[Path]) -> None:
        self._broker = running
        self._work = work
        self._jobs = 0
        self.sides: dict[str, Side] = {}
        try:
            for name, source, needed in (("ours", "odradek", ()), ("connector", "kafka", jars)):
                begin = time.monotonic()
                self.sides[name] = Side(name, source, needed, running.port, work, running.process)
                say(f"started a Spark session for {name} in {time.monotonic() - begin:.0f} s")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Both sessions."""
        for side in self.sides.values():
            side.stop()

    def prepare(self, cases: Sequence[Case]) -> None:
        """Fill topics, write files, and see that both sides read the same from each topic."""
        for load in dict.fromkeys(case.load for case in cases):
            begin = time.monotonic()
            if any(case.load == load for case in cases if case.kind.startswith("write")):
                write_files(self._files(load), load)
            if any(case.load == load for case in cases if not case.kind.startswith("write")):
                produce(self._broker.port, load)
                digests = {name: side.run("digest", topic=load.topic).digest for name, side in self.sides.items()}
                if digests["ours"] != digests["connector"] or digests["ours"][0] != load.rows:
                    raise BenchError(f"the sides read different things from {load.topic}: {digests}")
            say(f"prepared {load.rows:,} rows of {load} in {time.monotonic() - begin:.0f} s")

    def measure(self, case: Case, turn: int) -> dict[str, Outcome]:
        """Both sides once, each first in half of the turns."""
        order = SIDES if turn % 2 else SIDES[::-1]
        return {name: self._once(case, self.sides[name]) for name in order}

    def _once(self, case: Case, side: Side) -> Outcome:
        self._jobs += 1
        place = self._work / f"job-{self._jobs}"
        target = f"sink-{self._jobs}"
        load = case.load
        streaming = {"rows_max": -(-load.rows // MICRO_BATCHES), "checkpoint": str(place / "checkpoint")}
        os.sync()  # what one job left to be written is not the next one's to wait for
        if case.kind == "read":
            return side.run("read", topic=load.topic)
        if case.kind == "stream":
            outcome = side.run("stream", topic=load.topic, **streaming)
            written = outcome.rows
        elif case.kind in ("archive", "parquet"):
            outcome = side.run(case.kind, topic=load.topic, lake=str(place / "lake"), **streaming)
            written = rows_of_files(place / "lake")
        else:
            create_topics(self._broker.port, [target], PARTITIONS)
            more = {"checkpoint": str(place / "checkpoint")} if case.kind == "write_stream" else {}
            outcome = side.run(case.kind, files=str(self._files(load)), topic=target, **more)
            written = rows_of_topic(self._broker.port, target)
            delete_topic(self._broker.port, target)
        shutil.rmtree(place, ignore_errors=True)
        if written != load.rows:
            raise BenchError(f"{case.label}, {side.name}: {written:,} rows instead of {load.rows:,}")
        return outcome

    def _files(self, load: Load) -> Path:
        return self._work / f"files-{load.value_bytes}"


def run(bench: Bench, cases: Sequence[Case], rounds: int, results: Results) -> None:
    """Case by case: both sides warm up, then take turns. So neither rests for so long that Spark ends its workers."""
    for case in cases:
        begin = time.monotonic()
        bench.measure(case, 0)
        found = [bench.measure(case, turn) for turn in range(1, rounds + 1)]
        ours, theirs = (Figure(case.load.rows, [outcomes[name] for outcomes in found]) for name in SIDES)
        results.add(row_of(case, ours, theirs))
        steady = steady_row(ours, theirs) if case.kind == "stream" else None
        if steady is not None:
            results.add(steady)
        say(f"    took {time.monotonic() - begin:.0f} s")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small loads and one round: does it work at all")
    add("--only", default=",".join(LABELS), metavar="KINDS", help="some of %(default)s; all by default")
    add("--rounds", type=int, metavar="N", help=f"how often each side has its turn; {ROUNDS} by default")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the broker")
    add("--dir", type=Path, help="where topics and files are kept (8 GiB); a temporary directory by default")
    add("--cache", type=Path, default=default_cache(), help="where the connector is kept; %(default)s")
    add("--odradek", type=Path, metavar="PATH", help="the odradek to start; the one beside this Python by default")
    return parser


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run what was asked for, print the table."""
    parser = _arguments()
    options = parser.parse_args()
    kinds = [kind.strip() for kind in options.only.split(",")]
    if unknown := sorted(set(kinds) - set(LABELS)):
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(LABELS)}")
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    cases = cases_of(QUICK if options.quick else FULL, [kind for kind in LABELS if kind in kinds])
    for kind_of_signal in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind_of_signal, _interrupt)
    if (load := os.getloadavg()[0]) > BUSY_LOAD:
        say(f"this machine has other work (load average {load:.1f}): ratios will say little")
    try:
        return _compare(options, cases, rounds)
    except (MissingError, BenchError) as error:
        say(f"cannot measure: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted; everything that was started is stopped")
        return 130


def _compare(options: argparse.Namespace, cases: Sequence[Case], rounds: int) -> int:
    jars = connector_jars(options.cache)
    executable = options.odradek or Path(sys.executable).with_name("odradek")
    broker = Odradek("odradek", executable, tuple(options.set))
    broker.find()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=options.dir) as work:
        rounds_text = f"medians of {rounds} rounds{' (quick)' if options.quick else ''}"
        results = Results(f"Spark through odradek beside Spark's Kafka connector, {rounds_text}", Path(work))
        running = start(broker, Path(work) / "broker")
        try:
            bench = Bench(running, Path(work), jars)
            try:
                bench.prepare(cases)
                run(bench, cases, rounds, results)
                version = bench.sides["ours"].version
            finally:
                bench.stop()
        finally:
            stop(running)
    print(CELLS)
    print(f'ours: format("odradek"); beside it: {describe(jars)}')
    print(f"both: {version}; broker: {broker.version()} {' '.join(options.set)}, {PARTITIONS} partitions a topic")
    return results.show()


if __name__ == "__main__":
    sys.exit(main())
