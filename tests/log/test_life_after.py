"""What a closed log, a closed store and files that were changed behind its back are worth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.clock import ManualClock
from odradek.disk.errors import DiskError
from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk
from odradek.log.errors import DamagedLogError, LogError, LogStoppedError
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from tests.log.support import LogOnDisk, batch, log_config, store_config, values_of

ORDERS = TopicPartition("orders", 0)


def _store(disk: RealDisk | MemoryDisk, directory: str) -> LogStore:
    return LogStore(disk, directory, store_config(), ManualClock(), lambda _: log_config())


def test_a_closed_log_neither_writes_nor_reads() -> None:
    log = LogOnDisk().log
    log.append(batch(b"a"))
    log.close()
    for use in (
        lambda: log.append(batch(b"b")),
        lambda: log.append_replicated(batch(b"b")),
        log.flush,
        lambda: log.read(0, 1),
        lambda: log.segment_at(0),
        lambda: log.delete_records(1),
    ):
        with pytest.raises(LogStoppedError, match="it is closed"):
            use()
    log.close()


def test_a_store_can_be_closed_twice_and_then_makes_nothing(tmp_path: Path) -> None:
    with _store(RealDisk(), str(tmp_path)) as store:
        store.create(ORDERS)
    mine = (tmp_path / "mine").open("wb")  # gets the number that the lock had
    store.close()
    mine.write(b"still open")
    mine.close()
    with pytest.raises(LogError, match="is closed"):
        store.create(TopicPartition("payments", 0))
    assert _store(RealDisk(), str(tmp_path)).was_clean


@pytest.mark.parametrize("batches", [0, 0.4, 1.5])
def test_offsets_of_flushed_records_that_are_lost_are_not_given_to_others(
    tmp_path: Path, batches: float, caplog: pytest.LogCaptureFixture
) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    for number in range(10):
        on_disk.log.append(batch(b"record %d" % number))
    on_disk.log.close()
    file = tmp_path / "orders-0" / f"{0:020d}.log"
    size = file.stat().st_size // 10
    kept, whole = int(size * batches), int(batches)
    os.truncate(file, kept)
    on_disk.disk = RealDisk()
    log = on_disk.open()
    assert on_disk.report.lost_records == 10 - whole
    assert f"has lost the flushed records from {whole} on; it goes on at 10" in caplog.text
    assert log.append(batch(b"new")).base_offset == 10
    with pytest.raises(DamagedLogError, match=f"from offset {whole} on are missing"):
        log.read(whole, 1)
    log = on_disk.reopen()
    assert on_disk.report.lost_records == 0
    found = log.read(10, 1)
    assert found is not None
    assert found.base_offset == 10
    if kept % size:
        assert Path(f"{file}.cut-{whole * size}").stat().st_size == kept % size, "what was there is kept"


def test_a_partition_that_cannot_be_opened_is_offline_and_the_others_serve(tmp_path: Path) -> None:
    with _store(RealDisk(), str(tmp_path)) as store:
        store.create(ORDERS).append(batch(b"a"))
        store.create(TopicPartition("payments", 0)).append(batch(b"b"))
    for name in ("recovery-point", "leader-epoch-checkpoint"):
        (tmp_path / "orders-0" / name).unlink()
    (tmp_path / "orders-0" / "leader-epoch-checkpoint.tmp").mkdir()  # nothing can be written there
    with _store(RealDisk(), str(tmp_path)) as store:
        assert isinstance(store.offline[ORDERS], DiskError)
        assert values_of(store.logs[TopicPartition("payments", 0)]) == [b"b"]
        with pytest.raises(LogError, match="exists already and is offline"):
            store.create(ORDERS)
    assert not (tmp_path / "clean-stop").exists()


def test_a_foreign_directory_that_is_called_like_a_partition_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes-1").mkdir()
    (tmp_path / "notes-1" / "shopping").write_text("thread")
    with _store(RealDisk(), str(tmp_path)) as store:
        assert not store.logs
    assert [path.name for path in (tmp_path / "notes-1").iterdir()] == ["shopping"]
