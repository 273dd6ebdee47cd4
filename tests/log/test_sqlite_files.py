"""Segments in sqlite among others: programs that look at them, files that are left behind, and bounds."""

from __future__ import annotations

import gc
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk
from odradek.log.backends import sqlite_files, sqlite_table
from odradek.log.backends.open_tables import OPEN_MAX, OPEN_MIN, OPEN_USUAL, OpenTables
from odradek.log.backends.sqlite import database_path
from odradek.log.backends.table_segment import TAIL_BYTES_MAX
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.reader import begin_read
from odradek.log.recovery import RecoveryReport
from tests.log.sqlite_support import (
    fill,
    log_in_sqlite,
    row_count,
    table_of,
)
from tests.log.support import START_MS, LogOnDisk, batch, compact, keyed, log_config, values_of

# Other programs.


@pytest.mark.parametrize("replaced", [False, True])
def test_a_write_ahead_log_that_another_program_removed_is_noticed_before_anything_is_promised(
    tmp_path: Path, replaced: bool
) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 1)
    on_disk.log.flush()
    log_of_writes = Path(f"{database_path(on_disk.directory, 0)}-wal")
    log_of_writes.unlink()
    if replaced:
        log_of_writes.touch()
    fill(on_disk.log, 1)
    with pytest.raises(LogStoppedError, match="-wal"):
        on_disk.log.flush()
    assert on_disk.log.flushed_offset == 1
    on_disk.log.close()


def test_a_program_that_reads_when_a_segment_is_sealed_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_table, "connect", _quick_connect)
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 3)
    on_disk.log.flush()
    other = sqlite3.connect(f"file:{database_path(on_disk.directory, 0)}?mode=ro", uri=True)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM records").fetchone() == (3,)
    fill(on_disk.log, 2)
    on_disk.log.roll()
    on_disk.log.flush()
    assert other.execute("SELECT count(*) FROM records").fetchone() == (3,), "it sees what it saw"
    assert len(values_of(on_disk.log)) == 5
    other.close()
    on_disk.reopen()
    assert len(values_of(on_disk.log)) == 5
    on_disk.log.close()


def _quick_connect(path: str) -> sqlite3.Connection:
    """As the backend does, but without patience for others."""
    connection = sqlite_files.connect(path)
    connection.execute("PRAGMA busy_timeout = 50")
    return connection


# What is left behind.


def _names(directory: str) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir() if ".sqlite" in path.name)


def test_a_log_that_is_closed_leaves_one_file_a_segment(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path, segment_records_max=4)
    fill(on_disk.log, 10)
    values_of(on_disk.log)
    on_disk.log.close()
    assert _names(on_disk.directory) == [f"{base:020d}.sqlite" for base in (0, 4, 8)]
    values_of(on_disk.open())
    on_disk.log.close()
    assert _names(on_disk.directory) == [f"{base:020d}.sqlite" for base in (0, 4, 8)]


def test_a_segment_that_is_read_while_it_is_removed_goes_when_the_reader_does(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path, segment_records_max=4, retention_bytes=0)
    fill(on_disk.log, 10)
    on_disk.log.flush()
    job = begin_read(on_disk.log, 1, 1 << 20)
    removal = on_disk.log.expire(START_MS)
    assert removal is not None
    removal.run()
    assert job.run().next_offset == 4
    assert any(name.endswith(".gone") for name in _names(on_disk.directory))
    job.finish()
    assert not any(".gone" in name for name in _names(on_disk.directory))
    on_disk.log.close()


def test_leftovers_of_a_crash_are_cleared_and_never_taken_for_a_segments_own(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 3)
    on_disk.log.flush()
    stale = Path(f"{database_path(on_disk.directory, 0)}-wal").read_bytes()
    on_disk.log.roll()
    on_disk.log.close()
    directory = Path(on_disk.directory)
    leftovers = [f"{7:020d}.sqlite-wal", f"{0:020d}.sqlite.{'a' * 32}.gone", f"{0:020d}.sqlite.{'b' * 32}.cleaned"]
    for name in leftovers:
        (directory / name).write_bytes(stale)
    log = on_disk.open()
    assert not set(leftovers) & set(_names(on_disk.directory))
    (directory / f"{4:020d}.sqlite-wal").write_bytes(stale)  # of a segment of the same name that is no more
    log.append(batch(b"3"))
    log.roll()
    log.append(batch(b"4"))
    log.flush()
    assert values_of(log) == [b"value 0", b"value 1", b"value 2", b"3", b"4"]
    log.close()
    assert row_count(on_disk.directory, 4) == 1


def test_compaction_under_a_reader_leaves_one_file_and_the_reader_its_records(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path, cleanup_policy="compact", segment_records_max=4)
    for number in range(9):
        on_disk.log.append(keyed((b"k", b"%d" % number)))
    on_disk.log.flush()
    job = begin_read(on_disk.log, 0, 1 << 20)
    assert compact(on_disk.log)
    assert values_of(on_disk.log) == [b"7", b"8"]
    assert job.run().next_offset == 4
    job.finish()
    on_disk.reopen()
    assert values_of(on_disk.log) == [b"7", b"8"]
    on_disk.log.close()
    assert _names(on_disk.directory) == [f"{0:020d}.sqlite", f"{8:020d}.sqlite"]


# Bounds.


def test_no_more_databases_are_open_than_there_may_be(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path, segment_records_max=1)
    fill(on_disk.log, 3 * OPEN_MIN)
    on_disk.log.flush()
    tables: Any = table_of(on_disk.log)._tables
    tables.count_max = OPEN_MIN
    gc.collect()
    for _ in range(2):
        assert len(values_of(on_disk.log)) == 3 * OPEN_MIN
        assert len(tables) <= OPEN_MIN
        open_files = [name for name in _open_files() if name.startswith(on_disk.directory)]
        assert len({name.removesuffix("-wal").removesuffix("-shm") for name in open_files}) <= OPEN_MIN
    on_disk.log.close()
    assert not [name for name in _open_files() if name.startswith(on_disk.directory)], "no descriptor is left behind"


def _open_files() -> list[str]:
    return [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists()]


def test_a_table_is_shut_only_when_what_it_has_is_safe(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 3)
    table = table_of(on_disk.log)
    table.sync(sealed=False)
    fill(on_disk.log, 2)
    assert table.shut()
    assert len(values_of(on_disk.log)) == 5
    shutil.copytree(tmp_path / "orders-0", tmp_path / "copy")
    assert row_count(str(tmp_path / "copy"), 0) == 5
    on_disk.log.flush()
    on_disk.log.close()


def test_what_waits_in_memory_is_bounded_without_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_table, "WAITING_BYTES_MAX", 50_000)
    on_disk = log_in_sqlite(tmp_path)
    table: Any = table_of(on_disk.log)
    for _ in range(100):
        on_disk.log.append(batch(bytes(3000)))
        assert table._waiting_bytes <= 50_000
    assert len(values_of(on_disk.log)) == 100
    segment: Any = on_disk.log.segments[0]
    assert sum(len(row.data) for row in segment._tail) <= 2 * TAIL_BYTES_MAX + 4000
    on_disk.log.close()


def test_the_newest_records_are_read_without_waiting_and_older_ones_by_a_thread(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    for number in range(200):
        on_disk.log.append(batch(b"%d" % number + bytes(3000)))
    on_disk.log.flush()
    newest = on_disk.log.read(199, 1 << 20, nowait=True)
    assert newest is not None and (newest.base_offset, newest.next_offset) == (199, 200)
    end = on_disk.log.read(200, 1 << 20, nowait=True)
    assert end is not None and not end.data
    assert on_disk.log.read(0, 1 << 20, nowait=True) is None
    on_disk.log.close()


def test_a_write_ahead_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_table, "WAL_BYTES_MAX", 100_000)
    on_disk = log_in_sqlite(tmp_path)
    for _ in range(60):
        on_disk.log.append(batch(bytes(10_000)))
        on_disk.log.flush()
        assert Path(f"{database_path(on_disk.directory, 0)}-wal").stat().st_size < 300_000
    on_disk.log.close()


class _Many:
    """Something that is always willing to be shut."""

    def __init__(self, descriptors: int) -> None:
        self.descriptors = descriptors

    def shut(self) -> bool:
        """Nothing is open."""
        return True


@pytest.mark.parametrize(
    ("descriptors_max", "each", "open_at_most"),
    [(40, 8, OPEN_MIN), (3_200, 8, 100), (3_200, 16, 50), (1 << 20, 8, OPEN_MAX), (0, 8, OPEN_USUAL)],
)
def test_the_bound_follows_what_the_process_may_open(descriptors_max: int, each: int, open_at_most: int) -> None:
    tables = OpenTables(descriptors_max)
    for _ in range(2 * OPEN_MAX):
        tables.use(_Many(each))
    assert len(tables) == open_at_most


def test_a_disk_in_memory_is_refused_by_name() -> None:
    with pytest.raises(LogError, match="sqlite has files of its own"):
        LogOnDisk(MemoryDisk(), segment_backend="sqlite")


def test_a_change_of_flush_is_followed_at_once(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path / "one")
    fill(on_disk.log, 3)
    on_disk.log.configure(log_config(segment_backend="sqlite", flush="os"))
    fill(on_disk.log, 1)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    on_disk.log.configure(log_config(segment_backend="sqlite"))
    on_disk.log.flush()
    assert on_disk.log.flushed_offset == 4
    on_disk.log.close()
    after = LogOnDisk(RealDisk(), f"{tmp_path}/two/orders-0", segment_backend="sqlite")
    assert len(values_of(after.log)) == 4
    assert after.report != RecoveryReport()
    after.log.close()
