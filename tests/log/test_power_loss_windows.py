"""Narrow windows in which a power loss, or another partition's leftovers, once cost flushed records."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from odradek.disk.memory import MemoryDisk
from odradek.log.compaction import plan_compaction
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.reader import LogReader
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from tests.log.support import START_MS, LogOnDisk, batch, keyed, log_config, read_all, store_config, values_of
from tests.log.test_power_loss import MortalDisk, PowerLossError

SEEDS = range(60)
ORDERS = TopicPartition("orders", 0)


def _filled(disk: MemoryDisk, count: int) -> LogOnDisk:
    on_disk = LogOnDisk(disk, segment_bytes=1024)
    for number in range(count):
        on_disk.log.append(batch(b"%d" % number + bytes(200)))
    return on_disk


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_never_flushed_is_not_let_go(seed: int) -> None:
    disk = MemoryDisk()
    on_disk = _filled(disk, 12)
    start = on_disk.log.segments[2].base_offset
    on_disk.log.delete_records(start)  # its removal is never run
    on_disk.log.flush()
    disk.crash(random.Random(seed))
    log = on_disk.open()
    assert log.next_offset == 12
    assert len(read_all(log)) >= 12 - start


@pytest.mark.parametrize("seed", SEEDS)
def test_removals_keep_their_order_whoever_runs_them(seed: int) -> None:
    disk = MemoryDisk()
    on_disk = _filled(disk, 24)
    on_disk.log.flush()
    bases = [segment.base_offset for segment in on_disk.log.segments]
    on_disk.log.delete_records(bases[2])
    on_disk.log.delete_records(bases[4]).run()
    on_disk.log.append(batch(b"more"))
    on_disk.log.flush()
    disk.crash(random.Random(seed))
    log = on_disk.open()
    assert log.next_offset == 25
    assert [record.offset for record in read_all(log)] == list(range(bases[4], 25))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_end_of_a_segment_is_not_taken_for_a_gap(seed: int) -> None:
    disk = MemoryDisk()
    on_disk = LogOnDisk(disk, cleanup_policy="compact", segment_bytes=1024)
    gap = build_batch([NewRecord(b"x", key=b"k")], base_offset=2, leader_epoch=0)
    on_disk.log.append_replicated(gap)
    on_disk.log.flush()
    for number in range(3, 12):
        on_disk.log.append(keyed((b"k%d" % number, bytes(200))))
    disk.crash(random.Random(seed))
    log = on_disk.open()
    assert [record.offset for record in read_all(log)] == list(range(2, log.flushed_offset))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_truncation_promises_nothing_about_what_was_not_flushed(seed: int) -> None:
    disk = MortalDisk()
    on_disk = LogOnDisk(disk, segment_bytes=1024)
    on_disk.log.append(batch(b"a"))
    on_disk.log.flush()
    for number in range(11):
        on_disk.log.append(batch(bytes([number]) * 200))
    disk.operations_left = random.Random(seed).randint(1, 25)
    with suppress(PowerLossError):
        on_disk.log.truncate(10)
    disk.operations_left = 0
    disk.crash(random.Random(seed))
    log = on_disk.open()
    assert len(read_all(log)) == log.next_offset >= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_starts_over_wholly_or_not_at_all(seed: int) -> None:
    disk = MortalDisk()
    on_disk = LogOnDisk(disk, segment_bytes=1024)
    for number in range(20):
        on_disk.log.append(batch(b"%d" % number + bytes(150), producer=(1, 0, number)), leader_epoch=number // 5)
    on_disk.log.flush()
    disk.operations_left = random.Random(seed).randint(1, 40)
    with suppress(PowerLossError):
        on_disk.log.start_over(300)
    disk.operations_left = 0
    disk.crash(random.Random(seed))
    log = on_disk.open()
    assert (log.log_start, log.next_offset) in ((0, 20), (300, 300))
    log.append(batch(b"new"), leader_epoch=4)
    log.flush()
    assert values_of(on_disk.reopen())[-1] == b"new"


def test_a_refused_copy_of_the_leaders_batches_leaves_no_epoch_behind() -> None:
    on_disk = LogOnDisk()
    copies = [
        build_batch([NewRecord(b"v")], base_offset=n, leader_epoch=e) for n, e in ((0, 0), (10, 1), (9, 1), (1, 1))
    ]
    on_disk.log.append_replicated(copies[0])
    with pytest.raises(LogError, match="the leader sent 9"):
        on_disk.log.append_replicated(copies[1] + copies[2])
    on_disk.log.append_replicated(copies[3])
    assert on_disk.log.epochs.items() == [(0, 0), (1, 1)]
    assert [record.offset for record in read_all(on_disk.reopen())] == [0, 1]


def test_a_recovered_tail_is_written_again_before_it_counts_as_flushed() -> None:
    disk = MemoryDisk()
    on_disk = LogOnDisk(disk)
    on_disk.log.append(batch(b"a"))
    on_disk.log.flush()
    on_disk.log.append(batch(b"b"))
    size = on_disk.log.size_bytes
    disk.fail_next("flush", errno.EIO, ending=".log")
    with pytest.raises(LogStoppedError):
        on_disk.log.flush()
    written: list[tuple[str, int, int]] = []
    overwrite = disk.overwrite

    def watch(path: str, data: bytes, *, at: int = 0) -> None:
        written.append((path, at, len(data)))
        overwrite(path, data, at=at)

    disk.overwrite = watch  # type: ignore[method-assign]
    on_disk.open()
    assert (f"{on_disk.directory}/{0:020d}.log", size // 2, size // 2) in written


def test_a_reader_notices_that_its_log_was_cut_or_deleted() -> None:
    on_disk = _filled(MemoryDisk(), 12)
    reader = LogReader(on_disk.log, 8)
    on_disk.log.truncate(8)
    on_disk.log.append(batch(b"new 8"))
    found = reader.read(1)
    assert [record.value for record in read_all(on_disk.log)][-1] == b"new 8"
    assert (found.base_offset, b"new 8" in bytes(found.data)) == (8, True)
    on_disk.log.abandon()
    with pytest.raises(LogStoppedError, match="it is deleted"):
        reader.read(1)


def test_what_a_deleted_partitions_compaction_still_writes_is_nothing_to_its_successor() -> None:
    disk = MemoryDisk()
    settings = log_config(cleanup_policy="compact", segment_bytes=1024)
    clock = LogOnDisk().clock
    store = LogStore(disk, "data", store_config(), clock, lambda _: settings)

    def fill(word: bytes) -> None:
        log = store.create(ORDERS)
        for number in range(12):
            log.append(keyed((b"k%d" % (number % 6), word + b" %d" % number + bytes(150))))
        log.flush()

    fill(b"old")
    old = plan_compaction(store.logs[ORDERS], START_MS, 1 << 20, force=True)
    assert old is not None
    store.delete(ORDERS)
    fill(b"new")
    new = plan_compaction(store.logs[ORDERS], START_MS, 1 << 20, force=True)
    assert new is not None
    new.build()
    old.build()
    assert new.install(store.logs[ORDERS])
    assert all((value or b"").startswith(b"new") for value in values_of(store.logs[ORDERS]))
