"""What anybody with sqlite3 sees of a segment, while the broker runs and after it."""

from __future__ import annotations

import ast
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.disk.real import RealDisk
from odradek.log.backends.sqlite import database_path
from odradek.log.backends.sqlite_places import places_of
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.header import CONTROL, reseal
from odradek.records.record import Header, NewRecord
from tests.log.support import START_MS, LogOnDisk, batch, read_all

QUERY = "SELECT offset, timestamp, key, value FROM records ORDER BY offset"


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[LogOnDisk]:
    """An open log in sqlite."""
    log = LogOnDisk(RealDisk(), f"{tmp_path}/orders-0", segment_backend="sqlite")
    yield log
    log.log.close()


def _see(directory: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What another process sees, by Python's sqlite3."""
    program = f"""
import sqlite3, sys
found = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True).execute({QUERY!r}).fetchall()
print(repr(found))
"""
    path = database_path(directory, 0)
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60, check=True)
    found: list[tuple[int, int, bytes | None, bytes | None]] = ast.literal_eval(done.stdout)
    return found


def _write(log: LogOnDisk) -> None:
    for number, codec in enumerate(Codec):
        records = [
            NewRecord(b"value %d" % number, key=b"key", timestamp=START_MS + number),
            NewRecord(None, key=b"tombstone", timestamp=START_MS - 5),
            NewRecord(b"", key=b"", timestamp=START_MS + 10_000, headers=(Header("name", b"header"),)),
            NewRecord(b"x" * 20_000, key=None, timestamp=START_MS),
        ]
        log.log.append(build_batch(records, codec=codec))


def test_another_process_sees_what_a_consumer_reads_while_the_log_is_written(on_disk: LogOnDisk) -> None:
    _write(on_disk)
    on_disk.log.flush()
    wanted = [(record.offset, record.timestamp, record.key, record.value) for record in read_all(on_disk.log)]
    assert len(wanted) == 4 * len(Codec)
    assert _see(on_disk.directory) == wanted
    on_disk.log.append(batch(b"one more"))
    on_disk.log.flush()
    assert _see(on_disk.directory)[-1][3] == b"one more"
    on_disk.log.truncate(5)
    assert _see(on_disk.directory) == wanted[:4]
    on_disk.log.roll()
    on_disk.log.flush()
    assert _see(on_disk.directory) == wanted[:4], "a sealed segment is seen as well"


def test_the_brokers_own_time_is_shown_where_the_topic_uses_it(tmp_path: Path) -> None:
    on_disk = LogOnDisk(
        RealDisk(), f"{tmp_path}/orders-0", segment_backend="sqlite", message_timestamp_type="LogAppendTime"
    )
    on_disk.log.append(batch(b"a", b"b", timestamp=7))
    on_disk.log.close()
    assert [row[1] for row in _see(on_disk.directory)] == [START_MS, START_MS]


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3 on this machine")
def test_the_sqlite3_program_can_query_it(on_disk: LogOnDisk) -> None:
    on_disk.log.append(batch(b"hello", b"world", key=b"k"))
    on_disk.log.flush()
    command = ["sqlite3", "-readonly", database_path(on_disk.directory, 0), "SELECT offset, key, value FROM records"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0|k|hello\n1|k|world\n"


def test_what_has_no_records_to_show_is_stored_and_not_shown(on_disk: LogOnDisk) -> None:
    data = batch(b"marker")
    data[22] |= CONTROL
    reseal(data)
    assert places_of(bytes(data)) is None
    garbage = bytearray(batch(b"records that are none"))
    garbage[61:] = b"\xff" * (len(garbage) - 61)
    reseal(garbage)
    assert places_of(bytes(garbage)) is None
    on_disk.log.append(bytes(garbage))
    on_disk.log.append(batch(b"shown"))
    on_disk.log.flush()
    assert [row[3] for row in _see(on_disk.directory)] == [b"shown"]
    chunk = on_disk.log.read(0, 1)
    assert chunk is not None and chunk.data[61:] == garbage[61:], "what it holds is served as it came"


def test_a_batch_that_would_take_too_much_room_is_not_decompressed_for_the_view(on_disk: LogOnDisk) -> None:
    bomb = build_batch([NewRecord(bytes(20 << 20), timestamp=START_MS)], codec=Codec.ZSTD)
    assert places_of(bytes(bomb)) is None
    on_disk.log.append(bomb)
    on_disk.log.flush()
    assert Path(database_path(on_disk.directory, 0)).stat().st_size < 1 << 20
    assert len(read_all(on_disk.log)) == 1


@pytest.mark.parametrize("cut", range(1, 12))
def test_records_that_are_cut_off_have_no_places(cut: int) -> None:
    data = bytearray(batch(b"abc", b"def", key=b"k"))[:-cut]
    assert places_of(bytes(data)) is None


def test_the_view_needs_nothing_but_what_sqlite_brings(on_disk: LogOnDisk) -> None:
    on_disk.log.append(batch(b"a"))
    on_disk.log.flush()
    connection = sqlite3.connect(f"file:{database_path(on_disk.directory, 0)}?mode=ro", uri=True)
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    columns = [column[0] for column in connection.execute("SELECT * FROM records").description]
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert names >= {"batches", "contents", "records"}
    assert columns == ["offset", "timestamp", "key", "value"]
