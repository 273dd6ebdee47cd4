"""RocksDB when things go wrong around it: syncs that fail, heads that are lost, work that nobody should wait for."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from odradek.clock import ManualClock
from odradek.disk.errors import DiskError
from odradek.disk.real import RealDisk
from odradek.log.backends.open_tables import OpenTables
from odradek.log.errors import DamagedLogError
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from tests.log.support import START_MS, LogOnDisk, batch, log_config, store_config, values_of
from tests.process import wait_until

pytest.importorskip("rocksdict")

from odradek.log.backends.rocksdb_database import Database
from odradek.log.backends.rocksdb_keys import Range, Run, catalog_key
from odradek.log.backends.rocksdb_sweeper import Sweeper
from odradek.log.backends.rocksdb_table import RocksTable

ORDERS = TopicPartition("orders", 0)


class Watched:
    """A database that counts the syncs of its write-ahead log and can fail at them."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self.syncs = 0
        self.fails = False

    def flush_wal(self, sync: bool) -> None:
        """Sync, or do not."""
        self.syncs += 1
        if self.fails:
            raise Exception("IO error: While fdatasync: Input/output error")
        self._db.flush_wal(sync)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def watched(tmp_path: Path) -> tuple[Database, Watched]:
    """A database with one entry that is safe already."""
    tmp_path.mkdir(exist_ok=True)
    database = Database(str(tmp_path / "db"), OpenTables())
    database.put(b"a", b"1")
    database.sync()
    inside: Any = database
    inside._db = Watched(inside._db)
    return database, inside._db


def test_what_is_shut_was_synced_first_and_only_if_there_is_something(tmp_path: Path) -> None:
    database, db = watched(tmp_path / "safe")
    assert database.shut()
    assert not db.syncs
    database, db = watched(tmp_path / "unsafe")
    database.put(b"b", b"2")
    assert database.shut()
    assert db.syncs == 1
    database.end()


def test_a_sync_that_failed_is_never_tried_again(tmp_path: Path) -> None:
    database, db = watched(tmp_path)
    database.put(b"b", b"2")
    db.fails = True
    with pytest.raises(DiskError, match="fdatasync"):
        database.sync()
    db.fails = False
    for action in (database.sync, lambda: database.put(b"c", b"3"), lambda: database.delete_range(Range(b"a", b"b"))):
        with pytest.raises(DiskError, match="fdatasync"):
            action()
    assert db.syncs == 1
    assert not database.shut()  # the next opening would take what the system may have dropped for what is there
    database.end()


def test_a_sync_that_fails_while_it_is_shut_is_heard_by_the_next_who_writes(tmp_path: Path) -> None:
    database, db = watched(tmp_path)
    database.put(b"b", b"2")
    db.fails = True
    assert not database.shut()
    db.fails = False
    with pytest.raises(DiskError, match="fdatasync"):
        database.put(b"c", b"3")
    with pytest.raises(DiskError, match="fdatasync"):
        database.sync()
    database.end()


def test_a_database_that_has_lost_its_head_is_not_made_anew_over_its_batches(tmp_path: Path) -> None:
    settings = log_config(segment_backend="rocksdb")
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        store.create(ORDERS).append(batch(os.urandom(1000)))
    database = tmp_path / "orders-0" / "segments.rocksdb"
    head = (database / "CURRENT").read_bytes()
    (database / "CURRENT").unlink()
    for log in database.glob("*.log"):
        log.unlink()  # it is empty
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        assert "CURRENT" in str(store.offline[ORDERS])
    assert list(database.glob("*.sst"))
    (database / "CURRENT").write_bytes(head)
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        assert len(values_of(store.logs[ORDERS])) == 1


def test_a_database_that_a_crash_met_while_it_was_made_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.mkdir()
    (path / "MANIFEST-000001").write_bytes(b"torn")
    database = Database(str(path), OpenTables())
    database.put(b"a", b"1")
    database.end()


def test_an_entry_that_nobody_here_wrote_is_damage_and_no_bug(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), segment_backend="rocksdb")
    on_disk.log.append(batch(b"value"))
    on_disk.log.close()
    database = Database(f"{on_disk.directory}/segments.rocksdb", OpenTables())
    database.put(Run(0, 1).keys.begin + bytes(7) + b"\x05", b"short")
    with pytest.raises(DamagedLogError):
        RocksTable(database, Run(0, 1)).last()
    database.put(catalog_key(0), b"x")
    database.end()
    settings = log_config()
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        assert "segments.rocksdb" in str(store.offline[ORDERS])


# Freeing room.


def test_one_thread_frees_the_room_of_all_databases(tmp_path: Path) -> None:
    gate, done, seen = threading.Event(), [], set[int]()
    sweeper = Sweeper()

    def work(number: int) -> None:
        gate.wait(30)
        seen.add(threading.get_ident())
        done.append(number)

    for number in range(50):
        sweeper.add(lambda number=number: work(number))  # type: ignore[misc]
    assert [thread.name for thread in threading.enumerate()].count("rocksdb-sweep") == 1
    gate.set()
    wait_until(lambda: len(done) == 50, 30, "the work")
    assert done == [*range(50)]
    assert len(seen) == 1
    wait_until(lambda: "rocksdb-sweep" not in [thread.name for thread in threading.enumerate()], 30, "its end")


def test_the_end_of_a_log_does_not_wait_for_room_that_is_being_freed(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "db"), OpenTables())
    database.put(b"a", b"1")
    begun, cancelled, inside = threading.Event(), threading.Event(), database
    held: Any = inside

    class Slow(Watched):
        """Compacts until it is told not to."""

        def compact_range(self, begin: bytes, end: bytes) -> None:
            """For ever, nearly."""
            begun.set()
            assert cancelled.wait(30), "nobody cancelled it"
            raise Exception("Result incomplete: Manual compaction paused")

        def cancel_all_background(self, wait: bool) -> None:
            """It is told."""
            self._db.cancel_all_background(wait)
            cancelled.set()

    held._db = Slow(held._db)
    database.sweep(Range(b"a", b"b"))
    assert begun.wait(30)
    database.end()
    again = Database(str(tmp_path / "db"), OpenTables())
    with again.use("read") as db:
        assert db.get(b"a") == b"1"
        del db
    again.end()
