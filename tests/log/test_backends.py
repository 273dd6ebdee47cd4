"""What every place for segments must do alike: the same bytes, the same searches, the same life after an end."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Thread

import pytest

from odradek.clock import ManualClock
from odradek.disk.real import RealDisk
from odradek.log.backends.choice import found_kind
from odradek.log.errors import LogClosedError, LogError, LogStoppedError
from odradek.log.log import PartitionLog
from odradek.log.reader import LogReader, ReadJob, begin_read
from odradek.log.recovery import RecoveryReport
from odradek.log.state import RECOVERY_POINT_NAME, STATE_NAME
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.records.header import iter_headers
from tests.log.support import (
    START_MS,
    LogOnDisk,
    batch,
    compact,
    keyed,
    log_config,
    read_all,
    records_of,
    store_config,
    values_of,
)

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)


def _store(directory: Path, backend: str, **settings: object) -> LogStore:
    config = log_config(segment_backend=backend, **settings)
    return LogStore(RealDisk(), str(directory), store_config(), ManualClock(START_MS), lambda _: config)


@pytest.fixture
def store(tmp_path: Path, backend: str) -> Iterator[LogStore]:
    """An empty store whose new logs are of this kind."""
    with _store(tmp_path / "data", backend) as store:
        yield store


def _fill(log: PartitionLog, chance: random.Random, count: int) -> list[tuple[int, int, bytes]]:
    """Append batches of all kinds; give the (first, last offset, bytes) of each as they must stand in the log."""
    found = []
    for number in range(count):
        values = [bytes(chance.randrange(300)) for _ in range(chance.randint(1, 4))]
        codec = chance.choice((Codec.NONE, Codec.GZIP, Codec.ZSTD))
        data = batch(*values, timestamp=START_MS + number * 10 + chance.randint(-40, 40), codec=codec)
        done = log.append(data)
        found.append((done.base_offset, done.last_offset, bytes(data)))
        if chance.random() < 0.1:
            log.roll()
        if chance.random() < 0.2:
            log.flush()
    return found


def _batches(log: PartitionLog) -> list[tuple[int, int, bytes]]:
    found, offset = [], log.log_start
    while (chunk := log.read(offset, 700)) is not None and chunk.data:
        for at, header in iter_headers(chunk.data):
            found.append((header.base_offset, header.last_offset, bytes(chunk.data[at : at + header.size_bytes])))
        offset = chunk.next_offset
    return found


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_is_what_was_sent_byte_for_byte_before_and_after_every_end(backend: str, seed: int) -> None:
    chance = random.Random(seed)
    on_disk = LogOnDisk(segment_bytes=2000)
    written = _fill(on_disk.log, chance, 60)
    assert _batches(on_disk.log) == written
    for first, last, data in written:
        chunk = on_disk.log.read(chance.randint(first, last), 1)
        assert chunk is not None
        assert (bytes(chunk.data), chunk.base_offset, chunk.next_offset) == (data, first, last + 1)
    on_disk.reopen()
    assert _batches(on_disk.log) == written
    assert on_disk.log.size_bytes == sum(len(data) for _, _, data in written)
    more = _fill(on_disk.log, chance, 10)
    assert _batches(on_disk.log) == written + more


@pytest.mark.parametrize("seed", range(2))
def test_a_time_is_found_where_looking_at_every_record_finds_it(backend: str, seed: int) -> None:
    chance = random.Random(seed)
    on_disk = LogOnDisk(segment_bytes=2000)
    _fill(on_disk.log, chance, 80)
    on_disk.log.delete_records(chance.randint(1, 30)).run()
    for reopened in (False, True):
        log = on_disk.reopen() if reopened else on_disk.log
        records = read_all(log)
        for timestamp in range(START_MS - 50, START_MS + 900, 7):
            wanted = next((record for record in records if record.timestamp >= timestamp), None)
            found = log.offset_for_timestamp(timestamp)
            assert (found and (found.timestamp, found.offset)) == (wanted and (wanted.timestamp, wanted.offset))
        newest = log.newest_timestamp()
        assert newest is not None and newest.timestamp == max(record.timestamp for record in records)


def test_a_log_is_cut_and_goes_on_in_the_same_place(backend: str) -> None:
    chance = random.Random(1)
    on_disk = LogOnDisk(segment_bytes=1500)
    written = _fill(on_disk.log, chance, 40)
    for _ in range(6):
        offset = chance.randint(0, on_disk.log.next_offset - 1)
        on_disk.log.truncate(offset)
        written = [one for one in written if one[1] < offset]
        assert on_disk.log.next_offset == (written[-1][1] + 1 if written else 0)
        if chance.random() < 0.5:
            on_disk.reopen()
        written += _fill(on_disk.log, chance, 10)
        assert _batches(on_disk.log) == written
    on_disk.reopen()
    assert _batches(on_disk.log) == written


def test_a_log_that_starts_over_has_nothing_of_the_old_one(backend: str) -> None:
    on_disk = LogOnDisk(segment_bytes=1024)
    for number in range(20):
        on_disk.log.append(batch(b"%d" % number, bytes(200)))
    on_disk.log.flush()
    with LogReader(on_disk.log, 0):  # holds the segment whose place is taken
        on_disk.log.start_over(0)
        on_disk.log.append(batch(b"new"))
        on_disk.log.flush()
    assert values_of(on_disk.log) == [b"new"]
    on_disk.reopen()
    assert (values_of(on_disk.log), on_disk.log.next_offset) == ([b"new"], 1)


@pytest.mark.parametrize("flush", ["group", "os", "replicated"])
def test_the_end_of_the_process_takes_nothing_that_was_acknowledged(tmp_path: Path, backend: str, flush: str) -> None:
    """What is on the disk at any moment is what a kill leaves."""
    store = _store(tmp_path / "data", backend, flush=flush, segment_bytes=1024)
    log = store.create(ORDERS)
    for number in range(40):
        log.append(batch(b"%d" % number, bytes(90)))
        if number % 7 == 3:
            log.flush()
    safe = log.safe_offset
    assert (safe == log.next_offset) == (flush != "group")
    shutil.copytree(tmp_path / "data", tmp_path / "after")
    store.close()
    with _store(tmp_path / "after", backend, flush=flush) as after:
        assert not after.offline
        values = values_of(after.logs[ORDERS])
        assert len(values) >= safe
        assert values[::2] == [b"%d" % number for number in range(len(values) // 2)]
        assert after.logs[ORDERS].append(batch(b"goes on")).base_offset == len(values)


def test_a_sealed_segment_is_known_after_a_kill_and_its_successor_goes_on(tmp_path: Path, backend: str) -> None:
    store = _store(tmp_path / "data", backend)
    log = store.create(ORDERS)
    log.append(batch(b"0"))
    log.flush()
    log.append(batch(b"1"))
    log.roll()  # made, never flushed
    shutil.copytree(tmp_path / "data", tmp_path / "after")
    store.close()
    with _store(tmp_path / "after", backend) as after:
        log = after.logs[ORDERS]
        values = values_of(log)
        assert values in ([b"0"], [b"0", b"1"])
        log.append(batch(b"next"))
        assert values_of(log) == [*values, b"next"]


def test_a_deleted_partition_is_made_again_and_is_empty(store: LogStore, backend: str) -> None:
    for life in range(3):
        log = store.create(ORDERS)
        assert values_of(log) == []
        log.append(batch(b"%d" % life))
        log.flush()
        job = begin_read(log, 0, 100)
        free = store.delete(ORDERS)
        with nullcontext() if backend == "file" else pytest.raises(LogError):
            job.run()  # a file that is open can be read, a database cannot
        job.finish()
        with pytest.raises(LogStoppedError):
            log.append(batch(b"late"))
        if life % 2:
            free()
    assert not store.offline


def test_a_log_stays_what_it_is_although_the_setting_changes(tmp_path: Path, backend: str) -> None:
    with _store(tmp_path / "data", backend) as store:
        store.create(ORDERS).append(batch(b"a"))
    directory = str(tmp_path / "data" / "orders-0")
    assert found_kind(RealDisk(), directory) == backend
    for other in ("file", "sqlite", "rocksdb"):
        with _store(tmp_path / "data", other) as store:
            assert values_of(store.logs[ORDERS]) == [b"a"]
            store.logs[ORDERS].roll()
            assert found_kind(RealDisk(), directory) == backend


def test_a_directory_with_segments_of_two_kinds_is_offline_and_the_others_serve(tmp_path: Path, backend: str) -> None:
    with _store(tmp_path / "data", backend) as store:
        store.create(ORDERS).append(batch(b"a"))
        store.create(OTHERS).append(batch(b"b"))
    other = "sqlite" if backend == "file" else "log"
    (tmp_path / "data" / "orders-0" / f"{7:020d}.{other}").touch()
    with _store(tmp_path / "data", backend) as store:
        assert list(store.offline) == [ORDERS]
        assert "several kinds" in str(store.offline[ORDERS])
        assert values_of(store.logs[OTHERS]) == [b"b"]


def test_a_directory_without_segments_is_no_partition(tmp_path: Path, backend: str) -> None:
    directory = tmp_path / "data" / "orders-0"
    directory.mkdir(parents=True)
    (directory / "notes.txt").touch()
    with _store(tmp_path / "data", backend) as store:
        assert (dict(store.logs), store.offline) == ({}, {})
    for name in (RECOVERY_POINT_NAME, STATE_NAME):
        (directory / name).touch()
        with _store(tmp_path / "data", backend) as store:
            assert list(store.logs) == [ORDERS]


def test_a_compaction_that_a_kill_interrupts_is_finished_or_forgotten(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step on the disk a copy is taken, as a kill would leave it."""
    store = _store(tmp_path / "data", backend, cleanup_policy="compact", segment_bytes=1024)
    log = store.create(ORDERS)
    for number in range(40):
        log.append(keyed((b"k%d" % (number % 5), b"%d" % number + bytes(100))))
    log.roll()
    log.flush()
    copies: list[Path] = []

    def watched(name: str) -> None:
        real = getattr(RealDisk, name)

        def step(self: RealDisk, *arguments: object, **more: object) -> object:
            result = real(self, *arguments, **more)
            if not arguments or "tmp" not in str(arguments[0]).rpartition("/")[2]:
                copies.append(tmp_path / f"copy{len(copies)}")
                shutil.copytree(tmp_path / "data", copies[-1])
            return result

        monkeypatch.setattr(RealDisk, name, step)

    for name in ("rename", "remove", "write_atomic"):
        watched(name)
    assert compact(log)
    monkeypatch.undo()
    newest = {f"k{number}".encode(): b"%d" % (35 + number) + bytes(100) for number in range(5)}
    assert {record.key: record.value for record in read_all(log)} == newest
    store.close()
    assert copies
    for copy in copies:
        with _store(copy, backend, cleanup_policy="compact") as after:
            assert not after.offline
            records = read_all(after.logs[ORDERS])
            assert {record.key: record.value for record in records} == newest
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets)), "old segments or new ones in each place, not both"


def test_readers_in_threads_see_a_growing_log_without_holes(backend: str) -> None:
    log, read = LogOnDisk(segment_bytes=4000).log, list[tuple[int, list[bytes | None]]]()

    def run(job: ReadJob) -> None:
        read.append((job.offset, [record.value for record in records_of(job.run().data)]))

    for number in range(300):
        log.append(batch(b"%d" % number))
        if number % 10 == 0:
            flush, job = log.begin_flush(), begin_read(log, max(0, number - 25), 3000)
            assert flush is not None
            threads = [Thread(target=flush.run), Thread(target=run, args=(job,))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            log.finish_flush(flush, flush.failure)
            job.finish()
    assert len(read) == 30
    for first, values in read:
        assert values, "a read gives something"
        assert values == [b"%d" % number for number in range(first, first + len(values))]
    assert len(values_of(log)) == 300


def test_what_is_closed_is_refused(backend: str) -> None:
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    segment = on_disk.log.segments[0]
    on_disk.log.close()
    assert on_disk.report == RecoveryReport()
    if backend == "sqlite":
        with pytest.raises(LogClosedError):
            segment.read(0, 1, 1)


def test_a_store_of_files_has_no_database_library_in_memory(tmp_path: Path) -> None:
    with _store(tmp_path, "file") as store:
        store.create(ORDERS)
    program = f"""
import sys
from odradek.clock import SystemClock
from odradek.config import default_settings
from odradek.log.store import open_store
settings = default_settings()
topic = settings.log_config({{}})
with open_store({str(tmp_path)!r}, settings.store_config(), SystemClock(), lambda _: topic) as store:
    assert len(store.logs) == 1
    print(sorted({{"sqlite3", "rocksdict"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
