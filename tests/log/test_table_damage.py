"""Segments in tables that are damaged, or read while they are cut: one partition suffers, nobody is served a lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.clock import ManualClock
from odradek.disk.real import RealDisk
from odradek.log.errors import DamagedLogError
from odradek.log.reader import begin_read
from odradek.log.store import LogStore
from odradek.records.header import iter_headers
from tests.log.sqlite_support import ORDERS, OTHERS, change, log_in_sqlite, store_in_sqlite, table_of
from tests.log.support import START_MS, LogOnDisk, batch, log_config, store_config, values_of


@pytest.fixture(params=["sqlite", "rocksdb"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict")
    return str(request.param)


# Values that no batch has: sqlite keeps whatever damage has made of them.


@pytest.mark.parametrize("column", ["last_offset", "max_timestamp", "position", "newest", "data"])
@pytest.mark.parametrize("value", ["text", 1.5, b"bytes", 7])
def test_a_value_of_another_kind_is_damage_and_no_other_partition_suffers(
    tmp_path: Path, column: str, value: object
) -> None:
    with store_in_sqlite(tmp_path) as store:
        for partition in (ORDERS, OTHERS):
            log = store.create(partition)
            for number in range(5):
                log.append(batch(b"%d" % number))
    statement = f"UPDATE batches SET {column} = ? WHERE base_offset >= 3"
    change(str(tmp_path / str(ORDERS)), 0, statement, value)
    (tmp_path / str(ORDERS) / "recovery-point").unlink()  # so that all of it is looked at
    with store_in_sqlite(tmp_path) as store:
        assert len(values_of(store.logs[OTHERS])) == 5
        if ORDERS not in store.offline:
            assert values_of(store.logs[ORDERS])[:3] == [b"0", b"1", b"2"]


def test_what_stands_before_damage_is_served(tmp_path: Path) -> None:
    on_disk = log_in_sqlite(tmp_path)
    for number in range(9):
        on_disk.log.append(batch(b"%d" % number))
    on_disk.log.close()
    change(on_disk.directory, 0, "UPDATE batches SET data = 5 WHERE base_offset = 6")
    log = on_disk.open()
    chunk = log.read(0, 1 << 20)
    assert chunk is not None
    assert (chunk.base_offset, chunk.next_offset) == (0, 6)
    with pytest.raises(DamagedLogError):
        log.read(6, 1 << 20)
    log.close()


@pytest.mark.parametrize("wrong", [0, 1 << 40])
def test_a_row_that_is_wrong_about_its_end_hides_nothing_and_holds_nobody_up(tmp_path: Path, wrong: int) -> None:
    on_disk = log_in_sqlite(tmp_path)
    for number in range(9):
        on_disk.log.append(batch(b"%d" % number + bytes(2000)))
    on_disk.log.close()
    change(on_disk.directory, 0, "UPDATE batches SET last_offset = ? WHERE base_offset = 4", wrong)
    Path(on_disk.directory, "recovery-point").unlink()
    log = on_disk.open()
    assert log.next_offset == 9, "the good rows behind it are not taken for a torn tail"
    rows = [row.base_offset for row in table_of(log).rows(0)]
    assert rows == [*range(9)]
    log.close()


# Readers in a thread, while the log is cut.


def test_a_read_that_a_cut_comes_between_never_mixes_old_rows_with_new_ones(tmp_path: Path, kind: str) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), segment_backend=kind)
    log = on_disk.log
    for number in range(4):
        log.append(batch(b"old %d" % number), leader_epoch=1)
    log.flush()
    for number in range(4, 8):  # of sqlite these wait in memory
        log.append(batch(b"old %d" % number), leader_epoch=1)
    first = 2 if kind == "sqlite" else 3
    job = begin_read(log, first, 1 << 20)
    segment: Any = job.segments[0]
    table = segment.table
    is_cut = False

    def cut() -> None:
        nonlocal is_cut
        if not is_cut:
            is_cut = True
            log.truncate(3)
            for number in range(3, 8):
                log.append(batch(b"new %d" % number), leader_epoch=2)

    if kind == "sqlite":  # between the look into memory and the look into the database
        waiting_since = table._waiting_since

        def look(offset: int) -> Any:
            found = waiting_since(offset)
            cut()
            return found

        table._waiting_since = look
    else:  # between the first row and those that follow
        read_on = table._read_on

        def go_on(*arguments: Any) -> None:
            cut()
            read_on(*arguments)

        table._read_on = go_on
    chunk = job.run()
    job.finish()
    assert is_cut
    headers = [header for _, header in iter_headers(chunk.data)]
    assert [header.base_offset for header in headers] == [*range(first, first + len(headers))]
    assert len({header.leader_epoch for header in headers if header.base_offset >= 3}) <= 1
    log.close()


# Segments that are gone.


@pytest.mark.parametrize("gone", [1, 2])
def test_offsets_of_lost_segments_are_not_given_to_other_records(tmp_path: Path, gone: int) -> None:
    settings = log_config(segment_bytes=1024)
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        log = store.create(ORDERS)
        for number in range(20):
            log.append(batch(b"%d" % number + bytes(200)))
    for path in sorted((tmp_path / str(ORDERS)).glob("*.log"))[-gone:]:
        path.unlink()
    with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings) as store:
        assert store.reports[ORDERS].lost_records > 0
        assert store.logs[ORDERS].next_offset == 20
        assert store.logs[ORDERS].append(batch(b"next")).base_offset == 20
