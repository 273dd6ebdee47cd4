"""The log beside plain system calls on the same bytes: append, read, group flush, look-up, recovery.

Run by hand: `make bench`, or `python -m bench.log --dir DIRECTORY` to measure another disk. Medians of alternating
rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench.harness import ROUNDS, Results, Row, alternate, median
from odradek.clock import SystemClock
from odradek.config import default_settings
from odradek.disk.real import RealDisk
from odradek.log.flusher import GroupFlusher
from odradek.log.index import IndexCache
from odradek.log.log import PartitionLog
from odradek.log.recovery import Shared, open_log
from odradek.records.build import build_batch
from odradek.records.crc import crc32c
from odradek.records.record import NewRecord

MIB = 1 << 20
BATCH_RECORDS = 100
APPEND_TURNS = 25
WRITERS = 64


def make_batch(size: int, records: int, exactly: bool = False) -> bytearray:
    """A batch of about `size` bytes, or of exactly as many: then every write fills whole pages."""
    value = os.urandom(max(1, (size - 61) // records - 10))  # ten bytes are a record's own
    values = [value] * records
    if exactly:
        values[-1] += os.urandom(size - len(_batch(values)))
    return _batch(values)


def _batch(values: list[bytes]) -> bytearray:
    return build_batch([NewRecord(value=value, timestamp=SystemClock().now_ms()) for value in values])


class Bench:
    """One run in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.results = Results("odradek: the log", directory)

    def log(self, name: str, **settings: str) -> PartitionLog:
        """Open a log of this name; what is there stays."""
        values = default_settings()
        shared = Shared(
            RealDisk(), SystemClock(), values.store_config(), IndexCache(values.store_config().log_index_cache_bytes)
        )
        overrides = {key.replace("_", "."): value for key, value in settings.items()}
        return open_log(shared, str(self.directory / name), values.log_config(overrides))[0]

    def fresh(self, name: str, **settings: str) -> PartitionLog:
        """Open an empty log of this name."""
        shutil.rmtree(self.directory / name, ignore_errors=True)
        return self.log(name, **settings)

    # Appending.

    def append(self) -> None:
        """Batches of 16 KiB, one a call and eight a call, beside os.write of the same bytes."""
        batch = make_batch(16 << 10, BATCH_RECORDS)
        eight = batch * 8
        self._append(f"append 16 KiB batches ({len(batch):,} bytes)", batch, 2000, bar=0.7)
        whole_pages = make_batch(16 << 10, BATCH_RECORDS, exactly=True)
        self._append(f"the same where each fills whole pages ({len(whole_pages):,})", whole_pages, 2000, bar=0.7)
        self._append("append 16 KiB batches, 8 a call", eight, 250, bar=None)

    def _append(self, what: str, data: bytearray, count: int, bar: float | None) -> None:
        count //= APPEND_TURNS
        pairs = [pair for _ in range(ROUNDS) for pair in self._append_round(data, count)]
        ratio = median(plain / ours for ours, plain in pairs)
        ours, plain = median(a for a, _ in pairs), median(b for _, b in pairs)
        self.results.add(
            Row(
                what,
                _rate(len(data) * count, ours),
                f"os.write {_rate(len(data) * count, plain)}",
                f"{ratio:.2f}",
                f">= {bar}" if bar else "",
                ratio >= bar if bar else None,
            )
        )

    def _append_round(self, data: bytearray, count: int) -> list[tuple[float, float]]:
        """Seconds of the log and of os.write in turns, each so short that few of them are disturbed by other work.

        So a median leaves out what few turns have: setting blocks aside, under 1 % of all.
        """
        log = self.fresh("append-0")
        log.append(data)  # a leader's first makes its epoch durable, with two fsyncs: that is once, no batch's cost
        path = self.directory / "append.plain"
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(file, data)
        pairs = []
        for _ in range(APPEND_TURNS):
            begin = perf_counter()
            for _ in range(count):
                log.append(data)
            between = perf_counter()
            for _ in range(count):
                os.write(file, data)
            pairs.append((between - begin, perf_counter() - between))
        log.close()
        os.fdatasync(file)
        os.close(file)
        return pairs

    # Reading.

    def read(self) -> None:
        """From the first batch to the last, as a consumer does, beside os.pread of the same file."""
        log = self.fresh("read-0")
        batch = make_batch(16 << 10, BATCH_RECORDS)
        while log.size_bytes < 256 * MIB:
            log.append(batch)
        log.flush()
        for fetch in (64 << 10, MIB):
            self._read(f"read in fetches of {fetch >> 10} KiB", log, fetch, bar=0.8 if fetch == MIB else None)
        log.close()
        self._first_read()

    def _read(self, what: str, log: PartitionLog, fetch: int, bar: float | None) -> None:
        path = Path(log.directory) / "00000000000000000000.log"
        pairs = alternate(lambda: _read_ours(log, fetch), lambda: _read_plain(path, fetch))
        ratio = median(plain / ours for ours, plain in pairs)
        self.results.add(
            Row(
                what,
                _rate(log.size_bytes, median(a for a, _ in pairs)),
                f"os.pread {_rate(log.size_bytes, median(b for _, b in pairs))}",
                f"{ratio:.2f}",
                f">= {bar}" if bar else "",
                ratio >= bar if bar else None,
            )
        )

    def _first_read(self) -> None:
        """What a start left unchecked is checked, CRC and all, when it is read for the first time."""
        path = self.directory / "read-0" / "00000000000000000000.log"

        def ours() -> float:
            log = self.log("read-0")
            seconds = _read_ours(log, MIB)
            log.close()
            return seconds

        pairs = alternate(ours, lambda: _read_plain(path, MIB), 5)
        size = path.stat().st_size
        self.results.add(
            Row(
                "first read after a start, CRCs checked",
                _rate(size, median(a for a, _ in pairs)),
                f"os.pread {_rate(size, median(b for _, b in pairs))}",
                f"{median(b / a for a, b in pairs):.2f}",
                "",
                None,
            )
        )

    # Flushing.

    def flush(self) -> None:
        """Sixty-four writers who wait for their acknowledgement, beside an fdatasync for each batch."""
        batch = make_batch(1 << 10, 10)
        pairs = alternate(lambda: self._group(batch), lambda: self._sync_each(batch), 7)
        threads = [self._sync_each_in_threads(batch) for _ in range(3)]
        ratio = median(ours / each for ours, each in pairs)
        self.results.add(
            Row(
                f"group flush, {WRITERS} writers, 1 KiB batches",
                f"{median(a for a, _ in pairs):,.0f} acks/s",
                f"an fdatasync each {median(b for _, b in pairs):,.0f}/s",
                f"{ratio:.1f}",
                ">= 5",
                ratio >= 5,
            )
        )
        ours = median(a for a, _ in pairs)
        self.results.add(
            Row(
                "the same, beside 64 threads that sync for themselves",
                f"{ours:,.0f} acks/s",
                f"{median(threads):,.0f}/s",
                f"{ours / median(threads):.1f}",
                "",
                None,
            )
        )

    def _group(self, batch: bytearray, seconds: float = 1.0) -> float:
        """Acknowledged batches a second."""
        log = self.fresh("flush-0")

        async def write(flusher: GroupFlusher, until: float) -> int:
            count = 0
            while perf_counter() < until:
                await flusher.flushed(log, log.append(batch).last_offset + 1)
                count += 1
            return count

        async def run() -> float:
            flusher = GroupFlusher(default_settings().store_config().log_flush_threads)
            begin = perf_counter()
            counts = await asyncio.gather(*(write(flusher, begin + seconds) for _ in range(WRITERS)))
            rate = sum(counts) / (perf_counter() - begin)
            await flusher.close()
            return rate

        rate = asyncio.run(run())
        stats = log.flush_stats
        print(
            f"    {stats.batches_per_flush:.1f} batches a flush, {stats.seconds / stats.flushes * 1e6:.0f} us a flush",
            file=sys.stderr,
        )
        log.close()
        return rate

    def _sync_each(self, batch: bytearray, seconds: float = 1.0) -> float:
        log = self.fresh("flush-0")
        begin = perf_counter()
        count = 0
        while perf_counter() < begin + seconds:
            log.append(batch)
            log.flush()
            count += 1
        rate = count / (perf_counter() - begin)
        log.close()
        return rate

    def _sync_each_in_threads(self, batch: bytearray, seconds: float = 1.0) -> float:
        path = self.directory / "flush.plain"
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        counts = [0] * WRITERS
        until = perf_counter() + seconds

        def work(number: int) -> None:
            while perf_counter() < until:
                os.write(file, batch)
                os.fdatasync(file)
                counts[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.close(file)
        return sum(counts) / seconds

    # Finding.

    def look_up(self) -> None:
        """Any offset in a log of ten million records."""
        log = self.fresh("lookup-0", segment_bytes="256MiB")
        many = make_batch(4 << 10, BATCH_RECORDS) * 50
        while log.next_offset < 10_000_000:
            log.append(many)
        log.flush()
        offsets = random.Random(1).choices(range(log.next_offset), k=20_000)
        pairs = []
        for offset in offsets:
            begin = perf_counter()
            log.read(offset, 1)
            pairs.append(perf_counter() - begin)
        file = os.open(Path(log.directory) / "00000000000000000000.log", os.O_RDONLY)
        positions = random.Random(1).choices(range(100 * MIB), k=20_000)
        plain = []
        for position in positions:
            begin = perf_counter()
            os.pread(file, 8 << 10, position)
            plain.append(perf_counter() - begin)
        os.close(file)
        log.close()
        ours = median(pairs) * 1e6
        self.results.add(
            Row(
                f"look-up by offset, {log.next_offset / 1e6:.0f} million records",
                f"{ours:.1f} us",
                f"os.pread of 8 KiB {median(plain) * 1e6:.1f} us",
                f"{median(plain) * 1e6 / ours:.2f}",
                "< 50 us",
                ours < 50,
            )
        )

    # Starting after a crash.

    def recover(self) -> None:
        """One GiB of which nothing is known to be flushed, beside a plain read with the same CRCs."""
        log = self.fresh("recover-0", segment_bytes="2147483647")
        batch = make_batch(16 << 10, BATCH_RECORDS)
        size = len(batch)
        while log.size_bytes < 1024 * MIB:
            log.append(batch)
        log.flush()
        total = log.size_bytes
        path = Path(log.directory) / "00000000000000000000.log"
        log.close()

        def ours() -> float:
            (Path(log.directory) / "recovery-point").unlink()
            begin = perf_counter()
            opened = self.log("recover-0", segment_bytes="2147483647")
            seconds = perf_counter() - begin
            opened.close()
            return seconds

        pairs = alternate(ours, lambda: _read_with_crc(path, size), 5)
        ratio = median(a / b for a, b in pairs)
        self.results.add(
            Row(
                "recovery of 1 GiB after a crash",
                f"{median(a for a, _ in pairs):.2f} s, {_rate(total, median(a for a, _ in pairs))}",
                f"read + CRC {median(b for _, b in pairs):.2f} s",
                f"{ratio:.2f}",
                "<= 2",
                ratio <= 2,
            )
        )


def _read_ours(log: PartitionLog, fetch: int) -> float:
    begin = perf_counter()
    offset = 0
    while offset < log.next_offset:
        chunk = log.read(offset, fetch)
        assert chunk is not None
        offset = chunk.next_offset
    return perf_counter() - begin


def _read_plain(path: Path, fetch: int) -> float:
    file = os.open(path, os.O_RDONLY)
    begin = perf_counter()
    position = 0
    while data := os.pread(file, fetch, position):
        position += len(data)
    seconds = perf_counter() - begin
    os.close(file)
    return seconds


def _read_with_crc(path: Path, batch_bytes: int) -> float:
    file = os.open(path, os.O_RDONLY)
    begin = perf_counter()
    position = 0
    while data := os.pread(file, MIB // batch_bytes * batch_bytes, position):
        view = memoryview(data)
        for at in range(0, len(data), batch_bytes):
            crc32c(view[at + 21 : at + batch_bytes])
        position += len(data)
    seconds = perf_counter() - begin
    os.close(file)
    return seconds


def _rate(size_bytes: int, seconds: float) -> str:
    return f"{size_bytes / seconds / MIB:,.0f} MiB/s"


def main() -> int:
    """Run all of it, or the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("append", "read", "flush", "look_up", "recover")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(parts)}; all by default")
    parser.add_argument("--dir", type=Path, help="where to write (3 GiB); a temporary directory by default")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(parts)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=arguments.dir) as directory:
        bench = Bench(Path(directory))
        for part in arguments.parts or parts:
            run: Callable[[], None] = getattr(bench, part)
            run()
        return bench.results.show()


if __name__ == "__main__":
    sys.exit(main())
