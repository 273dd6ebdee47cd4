"""RocksDB's own side of a log: its lock, its memory and files, crashes, damage, and names that are used again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.clock import ManualClock
from odradek.disk.errors import DiskError, DiskFullError, LockedError
from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk
from odradek.log.backends import library
from odradek.log.backends.library import library_problem
from odradek.log.backends.open_tables import OPEN_MIN, OpenTables
from odradek.log.errors import DamagedLogError, LogClosedError, LogError
from odradek.log.index import IndexCache
from odradek.log.recovery import Shared, open_log
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from odradek.records.header import iter_headers
from tests.log.support import START_MS, LogOnDisk, batch, compact, keyed, log_config, store_config, values_of
from tests.process import wait_until

rocksdict = pytest.importorskip("rocksdict")

from odradek.log.backends.rocksdb_catalog import catalog, replacements, stored_runs  # noqa: E402
from odradek.log.backends.rocksdb_database import Database  # noqa: E402
from odradek.log.backends.rocksdb_keys import NUMBER, Run, catalog_key  # noqa: E402
from odradek.log.backends.rocksdb_table import RocksTable  # noqa: E402
from odradek.log.backends.table import Row  # noqa: E402

KIND = {"segment_backend": "rocksdb"}
ORDERS = TopicPartition("orders", 0)


def made(tmp_path: Path, **settings: object) -> LogOnDisk:
    """A log in RocksDB."""
    return LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), **KIND, **settings)


def database_files(on_disk: LogOnDisk) -> list[Path]:
    return sorted(Path(on_disk.directory, "segments.rocksdb").iterdir())


def size_on_disk(on_disk: LogOnDisk) -> int:
    size = 0
    for file in database_files(on_disk):
        with suppress(FileNotFoundError):  # RocksDB removes files while we look
            size += file.stat().st_size
    return size


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x40
    file.write_bytes(content)


# Opening and closing.


def test_a_closed_log_gives_back_its_descriptors_and_its_lock(tmp_path: Path) -> None:
    made(tmp_path).log.close()  # what the library opens once for the process is open now
    before = descriptors()
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-1"), **KIND)
    on_disk.log.append(batch(b"one"))
    assert descriptors() > before
    on_disk.log.close()
    assert descriptors() == before
    other = Database(f"{on_disk.directory}/segments.rocksdb", OpenTables())
    assert [*catalog(other)] == [0]
    other.end()


def test_a_database_that_another_has_open_is_named_as_locked(tmp_path: Path) -> None:
    on_disk = made(tmp_path)
    with pytest.raises(LockedError, match=r"segments\.rocksdb"):
        catalog(Database(f"{on_disk.directory}/segments.rocksdb", OpenTables()))
    on_disk.log.close()


def test_a_log_in_memory_is_refused_with_the_reason() -> None:
    with pytest.raises(LogError, match="machine's disk"):
        LogOnDisk(MemoryDisk(), "data/orders-0", **KIND)


def test_no_more_databases_are_open_than_the_store_may_have(tmp_path: Path) -> None:
    tables = OpenTables(1)
    shared = Shared(RealDisk(), ManualClock(START_MS), store_config(), IndexCache(1 << 20), tables)
    logs = [open_log(shared, str(tmp_path / f"orders-{n}"), log_config(**KIND))[0] for n in range(OPEN_MIN + 4)]
    for turn in range(3):
        for number, log in enumerate(logs):
            log.append(batch(b"%d of %d" % (turn, number)))
            assert len(tables) <= OPEN_MIN
    for number, log in enumerate(logs):
        log.flush()
        assert values_of(log) == [b"%d of %d" % (turn, number) for turn in range(3)]
        log.close()
    assert not len(tables)


def test_a_database_in_use_is_not_shut(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "db"), OpenTables())
    with database.use("read"):
        assert not database.shut()
    assert database.shut()
    database.end()


def test_the_end_waits_for_a_reader_and_refuses_the_next(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "db"), OpenTables())
    table = RocksTable(database, Run(0, 1))
    table.append([Row(0, 0, START_MS, 0, START_MS, b"bytes")])
    ended = threading.Event()

    def end() -> None:
        database.end()
        ended.set()

    with database.iterator() as iterator:
        ending = threading.Thread(target=end)
        ending.start()
        iterator.seek(b"")
        assert iterator.valid()
        assert not ended.is_set()
    assert ended.wait(30)
    ending.join()
    with pytest.raises(LogClosedError):
        table.read(0, 100, 1)
    table.discard()  # whoever held it lets it go: no error, the next start clears it away


def test_a_partition_made_anew_under_the_same_name_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    settings = log_config(**KIND)
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        old = store.create(ORDERS)
        old.append(batch(b"old"))
        held = old.segment_at(0)
        held.hold()  # a consumer is in the middle of a read
        free = store.delete(ORDERS)
        new = store.create(ORDERS)
        new.append(batch(b"new"))
        with pytest.raises(LogClosedError):
            held.read(0, 1 << 20, 1)
        held.release()
        free()
        new.flush()
        assert values_of(new) == [b"new"]
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        assert not store.offline
        assert values_of(store.logs[ORDERS]) == [b"new"]


# Crashes.

_WRITER = """
import sys
from odradek.disk.real import RealDisk
from tests.log.support import LogOnDisk, batch
on_disk = LogOnDisk(RealDisk(), sys.argv[1], segment_backend="rocksdb", segment_bytes=4096, flush="os")
for number in range(10**9):
    on_disk.log.append(batch(b"%d" % number + bytes(100)))
    print(number, flush=True)
"""


def test_what_was_acknowledged_survives_a_sigkill_without_a_flush(tmp_path: Path) -> None:
    directory = str(tmp_path / "orders-0")
    with subprocess.Popen([sys.executable, "-c", _WRITER, directory], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(300)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
    on_disk = LogOnDisk(RealDisk(), directory, **KIND)
    values = values_of(on_disk.log)
    assert len(values) >= len(acknowledged)
    assert values == [b"%d" % number + bytes(100) for number in range(len(values))]
    assert len(on_disk.log.segments) > 1
    on_disk.log.close()


def test_a_torn_write_ahead_log_is_cut_at_the_last_whole_batch(tmp_path: Path) -> None:
    on_disk = made(tmp_path)
    for number in range(20):
        on_disk.log.append(batch(b"%d" % number + bytes(100)))
    crashed = LogOnDisk.__new__(LogOnDisk)
    crashed.__dict__ = {**on_disk.__dict__, "directory": str(tmp_path / "crashed-0")}
    shutil.copytree(on_disk.directory, crashed.directory)
    (log,) = (file for file in database_files(crashed) if file.suffix == ".log")
    os.truncate(log, log.stat().st_size - 50)
    crashed.open()
    assert values_of(crashed.log) == [b"%d" % number + bytes(100) for number in range(19)]
    crashed.log.append(batch(b"after"))
    crashed.reopen()
    assert values_of(crashed.log)[-1] == b"after"
    crashed.log.close()
    on_disk.log.close()


def test_runs_that_no_catalogue_names_are_removed_by_the_next_start(tmp_path: Path) -> None:
    on_disk = made(tmp_path)
    on_disk.log.append(batch(b"kept"))
    on_disk.log.close()
    database = Database(f"{on_disk.directory}/segments.rocksdb", OpenTables())
    RocksTable(database, Run(0, 77)).append([Row(0, 0, START_MS, 0, START_MS, b"left by a crash")])
    database.end()
    on_disk.open()
    assert values_of(on_disk.log) == [b"kept"]
    on_disk.log.roll()
    on_disk.log.close()
    database = Database(f"{on_disk.directory}/segments.rocksdb", OpenTables())
    assert [run.base_offset for run in stored_runs(database)] == [0]
    assert {run.number for run in catalog(database).values()}.isdisjoint({77})
    assert max(run.number for run in catalog(database).values()) > 77  # never used twice
    database.end()


def test_a_replacement_that_was_installed_before_a_crash_is_not_installed_twice(tmp_path: Path) -> None:
    on_disk = made(tmp_path, segment_bytes=1024, cleanup_policy="compact")
    for number in range(40):
        on_disk.log.append(keyed((b"key-%d" % (number % 3), b"%d" % number)))
    held = on_disk.log.segments[0]
    held.hold()
    before = held.read(0, 1 << 20, held.next_offset)
    assert compact(on_disk.log)
    again = held.read(0, 1 << 20, held.next_offset)
    assert before is not None
    assert again is not None
    assert again.data == before.data  # who holds it reads on
    backend = on_disk.log.backend
    values, bases = values_of(on_disk.log), [segment.base_offset for segment in on_disk.log.segments]
    backend.install_replacement(0, [0], backend.replacement_suffix)  # as a start after a crash does
    held.release()
    on_disk.reopen()
    assert values_of(on_disk.log) == values
    assert [segment.base_offset for segment in on_disk.log.segments] == bases
    on_disk.log.close()
    database = Database(f"{on_disk.directory}/segments.rocksdb", OpenTables())
    assert not replacements(database)
    assert set(stored_runs(database)) <= set(catalog(database).values())
    database.end()


# Room on the disk.


def test_retention_gives_the_room_back_to_the_disk(tmp_path: Path) -> None:
    on_disk = made(tmp_path, segment_bytes=1 << 20)
    for _ in range(24):
        on_disk.log.append(batch(os.urandom(512 << 10)))
    on_disk.log.flush()
    full = size_on_disk(on_disk)
    on_disk.log.delete_records(20).run()
    wait_until(lambda: size_on_disk(on_disk) < full // 2, 60, "that the room comes back")
    assert len(values_of(on_disk.log)) == 4
    on_disk.log.close()


# Damage.


def filled_on_disk(tmp_path: Path) -> LogOnDisk:
    """A closed log of which most batches stand in one sorted file."""
    on_disk = made(tmp_path)
    for number in range(200):
        on_disk.log.append(batch(b"%03d" % number + os.urandom(2000)))
    on_disk.log.close()
    return on_disk


def test_damage_in_a_sorted_file_is_never_served_and_the_rest_is(tmp_path: Path) -> None:
    on_disk = filled_on_disk(tmp_path)
    (sorted_file,) = (file for file in database_files(on_disk) if file.suffix == ".sst")
    flip(sorted_file, sorted_file.stat().st_size // 2)
    on_disk.open()
    served, damaged = 0, 0
    for offset in range(200):
        try:
            chunk = on_disk.log.read(offset, 1)
        except DamagedLogError as error:
            assert "segments.rocksdb" in str(error)
            damaged += 1
            continue
        assert chunk is not None
        assert [header.base_offset for _, header in iter_headers(chunk.data)] == [offset]
        served += 1
    assert 0 < damaged < 50
    assert served == 200 - damaged
    first = on_disk.log.read(0, 1 << 30)  # a long read ends before the damage
    assert first is not None
    assert 0 < first.next_offset < 200
    on_disk.log.close()


def test_a_database_that_cannot_be_opened_takes_its_partition_offline_and_no_other(tmp_path: Path) -> None:
    settings, broken = log_config(**KIND), TopicPartition("broken", 0)
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        for partition in (ORDERS, broken):
            store.create(partition).append(batch(b"value"))
    (manifest,) = (tmp_path / "broken-0" / "segments.rocksdb").glob("MANIFEST-*")
    manifest.write_bytes(b"garbage!" * 10)
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        assert [*store.offline] == [broken]
        assert "broken-0/segments.rocksdb" in str(store.offline[broken])
        assert values_of(store.logs[ORDERS]) == [b"value"]
        store.delete(broken)()
        assert values_of(store.create(broken)) == []


def test_a_partition_that_could_not_be_recovered_can_be_deleted_and_made_anew(tmp_path: Path) -> None:
    directory, settings = filled_on_disk(tmp_path).directory, log_config(**KIND)
    (sorted_file,) = Path(directory, "segments.rocksdb").glob("*.sst")
    content = bytearray(sorted_file.read_bytes())
    for at in range(0, len(content) * 9 // 10, 1000):
        content[at] ^= 0x40
    sorted_file.write_bytes(content)
    Path(directory, "recovery-point").unlink()  # so that all of it is read
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        assert "segments.rocksdb" in str(store.offline[ORDERS])
        store.delete(ORDERS)()
        log = store.create(ORDERS)
        log.append(batch(b"new"))
        log.flush()
        assert values_of(log) == [b"new"]


def test_errors_of_the_library_become_ours(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "db"), OpenTables())
    with pytest.raises(DiskFullError), database.use("append to"):
        raise Exception("IO error: No space left on device: While appending to file")
    with pytest.raises(DiskError, match="cannot flush") as failure, database.use("flush"):
        raise Exception("Corruption: x")
    assert not isinstance(failure.value, DiskFullError)
    with pytest.raises(DamagedLogError), database.use("read"):
        raise Exception("Corruption: x")
    database.end()


def test_a_failed_write_stops_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = made(tmp_path)

    def fail(*_: object) -> None:
        raise DiskError("append to", "segments.rocksdb", "the cable is out")

    monkeypatch.setattr(Database, "put", fail)
    with pytest.raises(LogError, match="the cable is out"):
        on_disk.log.append(batch(b"lost"))
    monkeypatch.undo()
    with pytest.raises(LogError, match="the cable is out"):
        on_disk.log.append(batch(b"refused"))
    on_disk.log.close()
    on_disk.open()
    assert values_of(on_disk.log) == []
    on_disk.log.close()


# The table by itself.


def test_rows_are_found_by_offset_over_gaps_and_between_runs(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "db"), OpenTables())
    before, table, behind = (RocksTable(database, run) for run in (Run(0, 9), Run(10, 1), Run(10, 2)))
    before.append([Row(5, 99, 1, 0, 1, b"of another segment")])
    behind.append([Row(11, 12, 1, 0, 1, b"of another run")])
    assert table.last() is None
    assert table.find(0) is None
    rows = [Row(10, 12, 1, 0, 1, b"a"), Row(13, 13, 2, 1, 2, b"bb"), Row(20, 29, 1, 3, 2, b"ccc")]
    table.append(rows[:1])
    table.append(rows[1:])
    found = {10: 0, 12: 0, 13: 1, 14: 2, 19: 2, 25: 2, 29: 2}
    assert {offset: table.find(offset) for offset in found} == {offset: rows[at] for offset, at in found.items()}
    assert table.find(30) is None
    assert table.last() == rows[-1]
    assert [*table.rows(0)] == rows
    assert table.read(11, 3, 100) == rows[:2]
    assert table.read(11, 0, 100) == rows[:1]
    assert table.read(10, 100, 20) == rows[:2]
    table.truncate(21)
    assert [*table.rows(0)] == rows[:2]
    table.reset()
    assert [*table.rows(0)] == []
    assert [*before.rows(0)] != []
    assert [*behind.rows(0)] != []
    database.end()


def test_what_is_set_aside_is_out_of_the_catalogue_and_readable(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "db"), OpenTables())
    old, new = Run(0, 1), Run(0, 2)
    row = Row(0, 0, 1, 0, 1, b"row")
    for run in (old, new):
        database.put(catalog_key(0), NUMBER.pack(run.number))
        RocksTable(database, run).append([row])
    RocksTable(database, old).set_aside()  # the name is the new one's already
    assert catalog(database) == {0: new}
    RocksTable(database, new).set_aside()
    assert catalog(database) == {}
    assert RocksTable(database, new).last() == row
    RocksTable(database, new).discard()
    assert stored_runs(database) == [old]
    database.end()


# Without the library.


def test_without_the_library_a_topic_is_refused_and_told_what_to_install(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["rocksdict"] = None
from odradek.disk.real import RealDisk
from odradek.log.errors import LogError
from tests.log.support import LogOnDisk
try:
    LogOnDisk(RealDisk(), {str(tmp_path / "orders-0")!r}, segment_backend="rocksdb")
except LogError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'odradek[rocksdb]'" in done.stdout


def test_only_rocksdb_needs_a_library_and_its_absence_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("file", "sqlite", "rocksdb")
    assert [library_problem(kind) for kind in kinds] == [None, None, None]
    monkeypatch.setattr(library, "find_spec", lambda _: None)
    assert [library_problem(kind) for kind in kinds[:2]] == [None, None]
    assert "pip install 'odradek[rocksdb]'" in str(library_problem("rocksdb"))


def test_a_log_of_files_imports_neither_library(tmp_path: Path) -> None:
    program = f"""
import sys
from odradek.disk.real import RealDisk
from tests.log.support import LogOnDisk, batch
on_disk = LogOnDisk(RealDisk(), {str(tmp_path / "orders-0")!r})
on_disk.log.append(batch(b"value"))
on_disk.reopen().close()
print([name for name in ("rocksdict", "odradek.log.backends.sqlite") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
