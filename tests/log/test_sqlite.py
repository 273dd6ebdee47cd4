"""Segments in sqlite when something is wrong: bytes that are not what was written, disks that fail or are full."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from odradek.disk.errors import DiskError, DiskFullError
from odradek.disk.real import RealDisk
from odradek.log.backends import sqlite_table
from odradek.log.backends.sqlite import database_path
from odradek.log.backends.sqlite_places import places_of
from odradek.log.backends.sqlite_schema import empty_database
from odradek.log.errors import DamagedLogError, LogStoppedError
from tests.log.sqlite_support import (
    ORDERS,
    OTHERS,
    change,
    fill,
    flip,
    log_in_sqlite,
    row_count,
    store_in_sqlite,
    table_of,
)
from tests.log.support import LogOnDisk, batch, values_of

# Damage.


def _without_page(page: int) -> bytes:
    """An empty segment of which one page did not reach the disk."""
    content = bytearray(empty_database())
    content[page * 4096 : (page + 1) * 4096] = bytes(4096)
    assert len(content) == len(empty_database())
    return bytes(content)


def test_a_batch_that_was_changed_is_never_served_and_the_others_are(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 5)
    on_disk.log.close()
    flip(on_disk.directory, 0, 2)
    log = on_disk.open()
    with pytest.raises(DamagedLogError, match=r"0\.sqlite is damaged at byte [0-9]+: the batch .*CRC"):
        log.read(2, 100)
    chunk = log.read(0, 1 << 20)
    assert chunk is not None and chunk.next_offset == 2, "what stands before it, and no more"
    after = log.read(3, 1 << 20)
    assert after is not None and (after.base_offset, after.next_offset) == (3, 5)
    with pytest.raises(DamagedLogError):
        list(log.segments[0].batches(0))
    assert [header.base_offset for _, header in log.segments[0].batches(0, lenient=True)] == [0, 1, 3, 4]
    log.close()


@pytest.mark.parametrize(("column", "value"), [("last_offset", 9), ("max_timestamp", 5), ("data", b"short")], ids=str)
def test_a_row_that_says_something_else_than_its_batch_is_damage(tmp_path: Path, column: str, value: object) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 3)
    on_disk.log.close()
    change(on_disk.directory, 0, f"UPDATE batches SET {column} = ? WHERE base_offset = 1", value)
    log = on_disk.open()
    with pytest.raises(DamagedLogError):
        log.read(1, 100)
    log.close()


def test_a_row_that_is_missing_is_not_stepped_over(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 5)
    on_disk.log.close()
    change(on_disk.directory, 0, "DELETE FROM batches WHERE base_offset = 2")
    log = on_disk.open()
    chunk = log.read(0, 1 << 20)
    assert chunk is not None and chunk.next_offset == 2
    with pytest.raises(DamagedLogError, match="the records from offset 2 on are missing"):
        log.read(2, 100)
    log.close()


def test_an_unflushed_tail_that_is_damaged_is_cut_and_whole_batches_behind_it_are_kept_beside(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path / "one", flush="os")
    fill(on_disk.log, 2)
    on_disk.log.flush()
    fill(on_disk.log, 4)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    on_disk.log.close()
    directory = f"{tmp_path}/two/orders-0"
    flip(directory, 0, 3)
    after = LogOnDisk(RealDisk(), directory, segment_backend="sqlite")
    assert after.report.cut_bytes > 0
    assert values_of(after.log) == [b"value 0", b"value 1", b"value 0"]
    assert [entry.name for entry in after.disk.list(directory) if ".cut-" in entry.name]
    assert after.log.append(batch(b"next")).base_offset == 3
    after.reopen()
    assert values_of(after.log)[3:] == [b"next"]
    after.log.close()


def test_flushed_records_that_are_gone_are_missed_and_their_offsets_not_given_again(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 5)
    on_disk.log.close()
    change(on_disk.directory, 0, "DELETE FROM batches WHERE base_offset >= 3")
    on_disk.open()
    assert on_disk.report.lost_records == 2
    assert on_disk.log.append(batch(b"next")).base_offset == 5
    on_disk.log.close()


@pytest.mark.parametrize("fault", ["text", "empty", "half", "other database", "one page"])
def test_a_corrupt_file_takes_its_partition_offline_by_name_and_the_others_serve(tmp_path: Path, fault: str) -> None:
    with store_in_sqlite(tmp_path) as store:
        for partition in (ORDERS, OTHERS):
            fill(store.create(partition), 400)
    path = Path(database_path(str(tmp_path / "orders-0"), 0))
    content = path.read_bytes()
    if fault == "other database":
        path.unlink()
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE something (x)")
        connection.close()
    else:
        spoilt = {
            "text": b"this is not a database, and was never one" * 100,
            "empty": b"",
            "half": content[: len(content) // 2],
            "one page": content[:4096] + bytes(4096) + content[8192:],
        }
        path.write_bytes(spoilt[fault])
    with store_in_sqlite(tmp_path) as store:
        if fault in ("half", "one page") and ORDERS in store.logs:  # sqlite sees it only where it reads
            with pytest.raises(DamagedLogError, match=r"orders-0/0+\.sqlite is damaged"):
                values_of(store.logs[ORDERS])
        else:
            assert list(store.offline) == [ORDERS]
            assert "orders-0/00000000000000000000.sqlite is damaged" in str(store.offline[ORDERS])
        assert len(values_of(store.logs[OTHERS])) == 400
        store.logs[OTHERS].append(batch(b"goes on"))


@pytest.mark.parametrize(
    "content", [b"", b"torn", bytes(9000), *(_without_page(page) for page in range(3))], ids=lambda _: "torn"
)
def test_a_new_segment_that_never_reached_the_disk_whole_begins_anew(tmp_path: Path, content: bytes) -> None:
    on_disk = log_in_sqlite(tmp_path / "one")
    fill(on_disk.log, 3)
    on_disk.log.flush()
    on_disk.log.roll()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    on_disk.log.close()
    directory = f"{tmp_path}/two/orders-0"
    Path(database_path(directory, 3)).write_bytes(content)
    after = LogOnDisk(RealDisk(), directory, segment_backend="sqlite")
    assert values_of(after.log) == [b"value 0", b"value 1", b"value 2"]
    assert after.log.append(batch(b"next")).base_offset == 3
    after.reopen()
    assert values_of(after.log)[3:] == [b"next"]
    after.log.close()


# Disks that fail.


def test_a_flush_that_fails_stops_the_log_and_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 1)
    on_disk.log.flush()
    asked = []

    def fail(descriptor: int) -> None:
        asked.append(descriptor)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    fill(on_disk.log, 1)
    with pytest.raises(LogStoppedError, match="Input/output error"):
        on_disk.log.flush()
    assert (len(asked), on_disk.log.flushed_offset) == (1, 1)
    monkeypatch.undo()
    for action in (on_disk.log.flush, lambda: on_disk.log.append(batch(b"x"))):
        with pytest.raises(LogStoppedError):
            action()
    with pytest.raises(DiskError):
        table_of(on_disk.log).sync(sealed=False)
    on_disk.log.close()
    assert on_disk.open().flushed_offset >= 1
    on_disk.log.close()


def test_a_full_disk_stops_the_log_and_keeps_what_was_flushed(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 3)
    on_disk.log.flush()
    table: Any = table_of(on_disk.log)
    table._writer.execute("PRAGMA max_page_count = 1")  # sqlite says the same when the device is full
    on_disk.log.append(batch(bytes(100_000)))
    with pytest.raises(LogStoppedError, match="no space is left"):
        on_disk.log.flush()
    assert isinstance(on_disk.log.stopped, DiskFullError)
    assert len(values_of(on_disk.log)) == 4, "what is in memory is still read"
    on_disk.log.close()
    assert values_of(on_disk.open()) == [b"value 0", b"value 1", b"value 2"]
    on_disk.log.close()


def test_an_append_that_cannot_be_written_through_is_not_acknowledged(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path, flush="os")
    fill(on_disk.log, 1)
    table: Any = table_of(on_disk.log)
    table._writer.execute("PRAGMA max_page_count = 1")
    with pytest.raises(LogStoppedError, match="no space is left"):
        on_disk.log.append(batch(bytes(100_000)))
    assert on_disk.log.safe_offset == 1
    on_disk.log.close()


def test_a_flush_syncs_the_database_its_log_and_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = log_in_sqlite(tmp_path)
    on_disk.reopen()  # the name of its write-ahead log is new, and nobody else has a reason to make it durable
    synced = list[str]()

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(os, "fsync", note)
    fill(on_disk.log, 1)
    synced.clear()  # of the leader epochs
    on_disk.log.flush()
    path = database_path(on_disk.directory, 0)
    assert {path, f"{path}-wal", on_disk.directory} <= set(synced)
    synced.clear()
    fill(on_disk.log, 1)
    on_disk.log.flush()
    assert synced[:1] == [f"{path}-wal"], "and from then on its log alone"
    assert on_disk.directory not in synced
    assert on_disk.log.flushed_offset == 2
    monkeypatch.undo()
    on_disk.log.close()


def test_a_flush_that_breaks_off_halfway_is_never_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 2)

    def break_off(data: bytes) -> None:
        raise MemoryError(f"no room for {len(data)} bytes")

    monkeypatch.setattr(sqlite_table, "places_of", break_off)
    with pytest.raises(LogStoppedError, match="no room"):
        on_disk.log.flush()
    monkeypatch.undo()
    with pytest.raises(LogStoppedError):
        on_disk.log.flush()
    assert on_disk.log.flushed_offset == 0
    on_disk.log.close()
    assert row_count(on_disk.directory, 0) == 0


def test_what_is_appended_while_a_flush_writes_is_read_and_belongs_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = log_in_sqlite(tmp_path)
    fill(on_disk.log, 2)
    flush = on_disk.log.begin_flush()
    assert flush is not None

    def meanwhile(data: bytes) -> tuple[str, bytes | None] | None:
        monkeypatch.undo()
        on_disk.log.append(batch(b"meanwhile"))
        return places_of(data)

    monkeypatch.setattr(sqlite_table, "places_of", meanwhile)
    flush.run()
    on_disk.log.finish_flush(flush)
    assert (on_disk.log.flushed_offset, on_disk.log.next_offset) == (2, 3)
    assert values_of(on_disk.log) == [b"value 0", b"value 1", b"meanwhile"]
    on_disk.log.flush()
    assert values_of(on_disk.log) == [b"value 0", b"value 1", b"meanwhile"]
    on_disk.log.close()
    assert row_count(on_disk.directory, 0) == 3
