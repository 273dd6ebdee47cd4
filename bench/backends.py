"""The three kinds of segments side by side: append and read, in small batches and in batches of 16 KiB.

Run by hand: `make bench-backends`, or `python -m bench.backends --dir DIRECTORY` to measure another disk. Each round
does the same with all three, each first in a third of the rounds; the figures are medians, the ratios those to files.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.harness import machine, median
from odradek.clock import SystemClock
from odradek.config import default_settings
from odradek.disk.real import RealDisk
from odradek.log.flusher import GroupFlusher
from odradek.log.index import IndexCache
from odradek.log.log import PartitionLog
from odradek.log.recovery import Shared, open_log
from odradek.records.build import build_batch
from odradek.records.record import NewRecord

KINDS = ("file", "sqlite", "rocksdb")
MIB = 1 << 20
FETCH_BYTES = MIB
START_MS = 1_700_000_000_000
WRITERS = 64
WORDS = ("orders", "customer", "pending", "shipped", "returned", "amount", "currency", "EUR", "USD", "note")


class Load(NamedTuple):
    """One size of batches."""

    name: str
    records: int  # of a batch
    value_bytes: int
    batches: int  # that are appended and read


class Effort(NamedTuple):
    """How much is done."""

    rounds: int
    seconds: float  # of a round with writers that wait
    look_ups: int
    loads: tuple[Load, Load]


FULL = Effort(6, 0.7, 400, (Load("small batches", 1, 120, 10_000), Load("16 KiB batches", 100, 150, 4_000)))
QUICK = Effort(3, 0.2, 50, (Load("small batches", 1, 120, 2_000), Load("16 KiB batches", 100, 150, 400)))


class Figure(NamedTuple):
    """One line of the table: a number for each kind of segments, by round."""

    what: str
    unit: str
    more_is_better: bool
    rounds: list[dict[str, float]]

    def of(self, kind: str) -> float:
        """The median of one kind."""
        return median(numbers[kind] for numbers in self.rounds)

    def ratio(self, kind: str) -> float:
        """How many times as good as files; the median of the rounds' own ratios."""
        ratios = (numbers[kind] / numbers["file"] for numbers in self.rounds)
        return median(ratios if self.more_is_better else (1 / ratio for ratio in ratios))


def make_batch(load: Load, number: int, chance: random.Random) -> bytearray:
    """A batch of text such as applications send: it can be compressed, but nobody has."""
    records = []
    for at in range(load.records):
        words = " ".join(chance.choices(WORDS, k=load.value_bytes // 7))
        value = f"{number * load.records + at} {words}".encode()[: load.value_bytes]
        records.append(NewRecord(value=value, key=b"key-%d" % (number % 1000), timestamp=START_MS + number))
    return build_batch(records)


class Bench:
    """One run in one directory."""

    def __init__(self, directory: Path, effort: Effort) -> None:
        self._directory = directory
        self._effort = effort
        self.figures: list[Figure] = []

    def log(self, kind: str, *, fresh: bool) -> PartitionLog:
        """The log of one kind, emptied or as it is."""
        directory = self._directory / f"{kind}-0"
        if fresh:
            shutil.rmtree(directory, ignore_errors=True)
        settings = default_settings()
        store = settings.store_config()
        shared = Shared(RealDisk(), SystemClock(), store, IndexCache(store.log_index_cache_bytes))
        return open_log(shared, str(directory), settings.log_config({"segment.backend": kind, "flush": "group"}))[0]

    def run(self) -> None:
        """Measure everything."""
        for load in self._effort.loads:
            self._run(load)

    def _run(self, load: Load) -> None:
        chance = random.Random(7)
        batches = [make_batch(load, number, chance) for number in range(load.batches)]
        size = sum(map(len, batches))
        waiting = f"append, {load.name}, {WRITERS} writers that wait"
        self._measure(waiting, "acks/s", True, lambda kind: self._acks(kind, batches))
        together = f"append, {load.name}, one flush at the end"
        self._measure(together, "MiB/s", True, lambda kind: self._append(kind, batches))
        for kind in KINDS:
            self._append(kind, batches)
        self._measure(f"read all, {load.name}", "MiB/s", True, lambda kind: self._read(kind, size))
        self._measure(f"find an offset, {load.name}", "us", False, lambda kind: self._by_offset(kind, load))
        self._measure(f"find a time, {load.name}", "us", False, lambda kind: self._by_time(kind, load))
        self._measure(f"room on the disk, {load.name}", "bytes a byte", False, lambda kind: self._room(kind, size))

    def _measure(self, what: str, unit: str, more_is_better: bool, one: Callable[[str], float]) -> None:
        rounds = []
        for number in range(self._effort.rounds):
            first = number % len(KINDS)
            rounds.append({kind: one(kind) for kind in (*KINDS[first:], *KINDS[:first])})
        figure = Figure(what, unit, more_is_better, rounds)
        self.figures.append(figure)
        shown = ", ".join(f"{kind} {shorten(figure.of(kind))}" for kind in KINDS)
        print(f"  {what}: {shown} {unit}", file=sys.stderr, flush=True)

    # Each of these does one thing with one kind, and says how well.

    def _acks(self, kind: str, batches: Sequence[bytearray]) -> float:
        """Acknowledgements a second when each writer waits until its batch is on stable storage."""
        log = self.log(kind, fresh=True)

        async def write(flusher: GroupFlusher, first: int, until: float) -> int:
            count = 0
            while perf_counter() < until:
                data = batches[(first + count * WRITERS) % len(batches)]
                await flusher.flushed(log, log.append(data).last_offset + 1)
                count += 1
            return count

        async def run() -> float:
            flusher = GroupFlusher(default_settings().store_config().log_flush_threads)
            begin = perf_counter()
            until = begin + self._effort.seconds
            counts = await asyncio.gather(*(write(flusher, number, until) for number in range(WRITERS)))
            rate = sum(counts) / (perf_counter() - begin)
            await flusher.close()
            return rate

        rate = asyncio.run(run())
        log.close()
        return rate

    def _append(self, kind: str, batches: Sequence[bytearray]) -> float:
        log = self.log(kind, fresh=True)
        begin = perf_counter()
        for data in batches:
            log.append(data)
        log.flush()
        seconds = perf_counter() - begin
        log.close()
        return sum(map(len, batches)) / seconds / MIB

    def _read(self, kind: str, size: int) -> float:
        """What a start left is read once and checked; then it is read again, and that is measured."""
        log = self.log(kind, fresh=False)
        seconds = 0.0
        for _ in range(2):
            begin, read, offset = perf_counter(), 0, 0
            while offset < log.next_offset:
                chunk = log.read(offset, FETCH_BYTES)
                assert chunk is not None
                read, offset = read + len(chunk.data), chunk.next_offset
            seconds = perf_counter() - begin
            if read != size:
                raise SystemExit(f"{kind} gave {read} bytes, {size} were written")
        log.close()
        return size / seconds / MIB

    def _by_offset(self, kind: str, load: Load) -> float:
        offsets = random.Random(1).choices(range(load.batches * load.records), k=self._effort.look_ups)
        return self._look_up(kind, lambda log: [log.read(offset, 1) for offset in offsets])

    def _by_time(self, kind: str, load: Load) -> float:
        times = random.Random(2).choices(range(START_MS, START_MS + load.batches), k=self._effort.look_ups)
        return self._look_up(kind, lambda log: [log.offset_for_timestamp(time) for time in times])

    def _look_up(self, kind: str, find: Callable[[PartitionLog], Sequence[object]]) -> float:
        log = self.log(kind, fresh=False)
        begin = perf_counter()
        found = find(log)
        seconds = perf_counter() - begin
        log.close()
        if None in found:
            raise SystemExit(f"{kind} did not find what is there")
        return seconds / len(found) * 1e6

    def _room(self, kind: str, size: int) -> float:
        files = (file for file in (self._directory / f"{kind}-0").rglob("*") if file.is_file())
        return sum(file.stat().st_size for file in files) / size


def shorten(number: float) -> str:
    """Three digits that count."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def show(figures: Sequence[Figure], directory: Path) -> None:
    """The table, and when to choose which."""
    table = Table(title="odradek: segments", caption=machine(directory), title_justify="left", caption_justify="left")
    for column in ("what", "unit", "file", "sqlite", "x file", "rocksdb", "x file"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for figure in figures:
        others = [text for kind in KINDS[1:] for text in (shorten(figure.of(kind)), f"{figure.ratio(kind):.2f}")]
        table.add_row(figure.what, figure.unit, shorten(figure.of("file")), *others)
    Console(width=None if sys.stdout.isatty() else 130).print(table)
    print(advice(figures))


def advice(figures: Sequence[Figure]) -> str:
    """When to choose which, with the figures of this run."""

    def times(beginning: str, kind: str) -> str:
        ratios = [figure.ratio(kind) for figure in figures if figure.what.startswith(beginning)]
        return " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))))

    room = median(1 / figure.ratio("rocksdb") for figure in figures if figure.what.startswith("room"))
    return (
        "Choose file unless you have a reason not to: it is Kafka's layout, and nothing here reads or appends faster. "
        f"Choose sqlite for topics that people query in place with SQL: it appends {times('append', 'sqlite')} and "
        f"reads {times('read', 'sqlite')} times as fast as files. Choose rocksdb for large topics whose producers do "
        f"not compress: it takes {room:.2f} times the room of files, appends {times('append', 'rocksdb')} and reads "
        f"{times('read', 'rocksdb')} times as fast."
    )


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where to write (300 MiB); a temporary directory by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, to see that it works")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=arguments.dir) as directory:
        bench = Bench(Path(directory), QUICK if arguments.quick else FULL)
        bench.run()
        show(bench.figures, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
