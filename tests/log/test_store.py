"""The store: all logs of a data directory, its lock, and what a crash between two steps leaves behind."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from odradek.clock import ManualClock
from odradek.disk.errors import DiskError, LockedError
from odradek.disk.interface import Disk
from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from tests.log.support import START_MS, batch, keyed, log_config, read_all, store_config, values_of

DATA = "data"
ORDERS = TopicPartition("orders", 0)
USERS = TopicPartition("users", 3)


def open_store(disk: Disk, directory: str = DATA, **settings: object) -> LogStore:
    return LogStore(disk, directory, store_config(), ManualClock(START_MS), lambda _: log_config(**settings))


def names(disk: Disk, directory: str = DATA) -> set[str]:
    return {entry.name for entry in disk.list(directory)}


# Opening.


def test_an_empty_directory_is_a_store_without_logs() -> None:
    disk = MemoryDisk()
    store = open_store(disk, "a/b/c")
    assert store.logs == {}
    assert not store.was_clean
    store.close()


def test_a_store_opens_the_logs_that_are_there() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.create(ORDERS).append(batch(b"1"))
    store.create(USERS).append(batch(b"2", b"3"))
    store.close()
    store = open_store(disk)
    assert store.was_clean
    assert {str(partition): values_of(log) for partition, log in store.logs.items()} == {
        "orders-0": [b"1"],
        "users-3": [b"2", b"3"],
    }
    assert store.reports == {}


def test_many_logs_are_made_in_another_thread_and_begin_in_their_leaders_epoch() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    creation = store.begin_create([ORDERS, USERS], leader_epoch=5)
    thread = Thread(target=creation.run)
    thread.start()
    thread.join()
    assert store.logs == {}, "they are the store's when their owner says so"
    store.finish_create(creation)
    assert set(store.logs) == {ORDERS, USERS}
    assert store.logs[USERS].epochs.items() == [(5, 0)]
    disk.crash(random.Random(0))
    assert set(open_store(disk).logs) == {ORDERS, USERS}


def test_logs_that_exist_or_come_too_late_are_not_made() -> None:
    store = open_store(MemoryDisk())
    store.create(ORDERS)
    with pytest.raises(LogError, match="exists already"):
        store.begin_create([USERS, ORDERS])
    late = store.begin_create([USERS])
    late.run()
    store.close()
    with pytest.raises(LogError, match="closed"):
        store.finish_create(late)


def test_closing_a_log_in_which_nothing_was_written_writes_nothing() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.create(ORDERS)
    store.create(USERS).append(batch(b"1"))
    before = names(disk, f"{DATA}/{ORDERS}")
    store.close()
    assert names(disk, f"{DATA}/{ORDERS}") == before
    assert any(name.endswith(".snapshot") for name in names(disk, f"{DATA}/{USERS}"))
    store = open_store(disk)
    disk.fail_next("write", errno.EIO)
    store.logs[USERS].close()
    with pytest.raises(DiskError):  # the first write since then
        disk.write_atomic(f"{DATA}/other", b"")


def test_a_topic_whose_name_ends_like_a_partition_keeps_its_name() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    wanted = {TopicPartition("a-1", 0), TopicPartition("a", 10), TopicPartition("-", 0), TopicPartition("a-delete", 1)}
    for partition in wanted:
        store.create(partition)
    store.close()
    assert set(open_store(disk).logs) == wanted


def test_foreign_files_and_directories_are_left_alone() -> None:
    disk = MemoryDisk()
    foreign = ["lost+found", "orders", "orders-x", "orders-01", "orders--", "a b-0"]
    for name in foreign:
        disk.make_directory(f"{DATA}/{name}")
    disk.write_atomic(f"{DATA}/notes-0", b"a file, no partition")
    store = open_store(disk)
    assert store.logs == {}
    store.close()
    assert {*foreign, "notes-0"} <= names(disk)


def test_a_foreign_directory_that_ends_in_delete_is_not_removed() -> None:
    disk = MemoryDisk()
    disk.make_directory(f"{DATA}/do-not-delete")
    disk.write_atomic(f"{DATA}/do-not-delete/thesis.tex", b"three years of work")
    open_store(disk)
    assert disk.exists(f"{DATA}/do-not-delete/thesis.tex")


@pytest.mark.parametrize("real", [False, True])
def test_a_second_store_on_the_same_directory_is_refused_kindly(real: bool, tmp_path: Path) -> None:
    disk, directory = (RealDisk(), str(tmp_path)) if real else (MemoryDisk(), DATA)
    store = open_store(disk, directory)
    with pytest.raises(LockedError, match=r"another Odradek process uses this directory; stop it first"):
        open_store(disk, directory)
    store.close()
    open_store(disk, directory).close()


def test_another_process_is_refused_until_this_one_ends(tmp_path: Path) -> None:
    script = (
        "import sys; from tests.log.test_store import open_store; from odradek.disk.real import RealDisk\n"
        "open_store(RealDisk(), sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(LockedError, match=f"{tmp_path}.*another Odradek process"):
            open_store(RealDisk(), str(tmp_path))
        other.kill()
        other.wait()
    open_store(RealDisk(), str(tmp_path)).close()


def test_a_crash_is_told_by_the_missing_marker_and_reported_by_partition() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.create(ORDERS).append(batch(b"1"))
    store.logs[ORDERS].flush()
    store.logs[ORDERS].append(batch(b"2"))
    store.create(USERS)
    store = open_crashed(disk)
    assert not store.was_clean
    assert values_of(store.logs[ORDERS])[:1] == [b"1"]
    store.close()
    assert open_store(disk).was_clean


def open_crashed(disk: MemoryDisk, seed: int = 1) -> LogStore:
    disk.crash(random.Random(seed))
    return open_store(disk)


def test_what_was_not_flushed_and_is_there_all_the_same_is_in_the_report(tmp_path: Path) -> None:
    store = open_store(RealDisk(), str(tmp_path))
    store.create(ORDERS).append(batch(b"1"))
    store.create(USERS)
    size = store.logs[ORDERS].size_bytes
    store._lock.release()  # as the system does for a process that dies
    store = open_store(RealDisk(), str(tmp_path))
    assert {partition: report.scanned_bytes for partition, report in store.reports.items()} == {ORDERS: size}
    assert values_of(store.logs[ORDERS]) == [b"1"]
    store.close()


def test_the_marker_is_gone_while_a_store_is_open() -> None:
    disk = MemoryDisk()
    open_store(disk).close()
    assert "clean-stop" in names(disk)
    for seed in range(5):
        store = open_store(disk)
        assert store.was_clean
        assert "clean-stop" not in names(disk)
        assert not open_crashed(disk, seed).was_clean
        disk.crash(random.Random(seed))
        open_store(disk).close()


# Making and deleting.


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0b", "a\nb", "ä", "a b", "x" * 250])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    before = names(disk)
    with pytest.raises(LogError):
        store.create(TopicPartition(name, 0))
    assert names(disk) == before


@pytest.mark.parametrize("number", [-1, 2**31])
def test_a_partition_that_kafka_cannot_count_to_is_refused(number: int) -> None:
    with pytest.raises(LogError, match=f"there is no partition {number}: they count from 0 to 2147483647"):
        open_store(MemoryDisk()).create(TopicPartition("a", number))


def test_a_partition_is_made_once() -> None:
    store = open_store(MemoryDisk())
    store.create(ORDERS)
    with pytest.raises(LogError, match="orders-0 exists already"):
        store.create(ORDERS)
    with pytest.raises(LogError, match="there is no partition users-3"):
        store.delete(USERS)


@pytest.mark.parametrize("seed", range(10))
def test_a_new_partition_survives_a_crash_at_once(seed: int) -> None:
    disk = MemoryDisk()
    log = open_store(disk).create(ORDERS)
    log.append(batch(b"1"))
    log.flush()
    assert values_of(open_crashed(disk, seed).logs[ORDERS]) == [b"1"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("freed", [False, True])
def test_a_deleted_partition_never_comes_back(seed: int, freed: bool) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.create(ORDERS).append(batch(b"1"))
    store.logs[ORDERS].flush()
    store.create(USERS)
    free = store.delete(ORDERS)
    assert list(store.logs) == [USERS]
    if freed:
        free()
    store = open_crashed(disk, seed)
    assert list(store.logs) == [USERS]
    assert names(disk) == {str(USERS)}
    assert store.create(ORDERS).next_offset == 0


def test_a_topic_that_is_called_like_a_deleted_partition_is_none() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    topic = f".deleted-{START_MS:x}"
    for number in (0, 1, 16):
        store.create(TopicPartition(topic, number)).append(batch(b"kept"))
    store.create(ORDERS)
    store.delete(ORDERS)
    store.close()
    assert {str(name): values_of(log) for name, log in open_store(disk).logs.items()} == {
        f"{topic}-{number}": [b"kept"] for number in (0, 1, 16)
    }


def test_a_partition_that_is_made_again_starts_at_0_and_the_old_bytes_go_later() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for value in (b"1", b"2"):
        log = store.create(ORDERS)
        assert log.next_offset == 0
        log.append(batch(value))
        log.flush()
        free = store.delete(ORDERS)
        assert store.create(ORDERS).append(batch(b"new")).base_offset == 0
        free()
        assert values_of(store.logs[ORDERS]) == [b"new"]
        store.delete(ORDERS)()
    assert names(disk) == set()


def test_a_deleted_log_takes_nothing_more() -> None:
    store = open_store(MemoryDisk())
    log = store.create(ORDERS)
    store.delete(ORDERS)
    with pytest.raises(LogStoppedError, match="it is deleted"):
        log.append(batch(b"1"))


def test_a_topic_with_the_longest_name_can_be_deleted(tmp_path: Path) -> None:
    store = open_store(RealDisk(), str(tmp_path))
    longest = TopicPartition("x" * 249, 0)
    store.create(longest)
    store.delete(longest)()


def test_a_plan_of_a_deleted_partition_does_not_touch_its_successor() -> None:
    disk = MemoryDisk()
    store = open_store(disk, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    old = store.create(ORDERS)
    for value in (b"1", b"2"):
        old.append(keyed((b"a", value)))
        old.roll()
    old.flush()
    plan = store.plan_compaction(ORDERS)
    assert plan is not None
    plan.build()
    store.delete(ORDERS)
    store.create(ORDERS).append(keyed((b"a", b"new")))
    before = disk.read_file(f"{DATA}/orders-0/log-state.json")
    try:
        assert not plan.install(old)
    finally:
        assert disk.read_file(f"{DATA}/orders-0/log-state.json") == before


def test_a_removal_of_a_deleted_partition_does_not_touch_its_successor() -> None:
    disk = MemoryDisk()
    store = open_store(disk, retention_ms=1)
    store.create(ORDERS).append(batch(b"1", timestamp=START_MS - 10))
    store.logs[ORDERS].roll()
    store.logs[ORDERS].flush()
    removal = store.expire(ORDERS)
    assert removal is not None
    store.delete(ORDERS)
    store.create(ORDERS).append(batch(b"new"))
    removal.run()
    assert removal.done
    store.close()
    assert values_of(open_store(disk).logs[ORDERS]) == [b"new"]


# Looking after them.


def test_expiry_closes_old_segments_and_lets_them_go() -> None:
    disk = MemoryDisk()
    store = open_store(disk, segment_ms=100, retention_ms=1_000)
    log = store.create(ORDERS)
    log.append(batch(b"1", timestamp=START_MS - 1_001))
    assert store.expire(ORDERS) is None, "it is rolled, but not flushed yet"
    log.flush()
    removal = store.expire(ORDERS)
    assert removal is not None
    removal.run()
    assert (log.log_start, log.next_offset) == (1, 1)
    assert store.expire(ORDERS) is None
    log.append(batch(b"2"))
    store.close()
    assert values_of(open_store(disk).logs[ORDERS]) == [b"2"]


def test_the_store_plans_compaction_with_its_own_clock_and_map() -> None:
    store = open_store(MemoryDisk(), cleanup_policy="compact")
    log = store.create(ORDERS)
    log.append(keyed((b"a", b"1"), (b"a", b"2")))
    assert store.plan_compaction(ORDERS) is None
    log.roll()
    log.flush()
    plan = store.plan_compaction(ORDERS)
    assert plan is not None
    assert plan.now_ms == START_MS
    assert plan.key_map_bytes == store_config().log_cleaner_key_map_bytes
    plan.build()
    assert plan.install(log)
    assert [record.value for record in read_all(log)] == [b"2"]


def test_a_checkpoint_spares_the_next_start_the_producers() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for partition in (ORDERS, USERS):
        store.create(partition).append(batch(b"1", producer=(7, 0, 0)))
    store.checkpoint()
    for partition in (ORDERS, USERS):
        assert f"{1:020d}.snapshot" in names(disk, f"{DATA}/{partition}")


def test_the_flush_counters_of_all_logs_are_added_up() -> None:
    store = open_store(MemoryDisk())
    for partition in (ORDERS, USERS):
        log = store.create(partition)
        for value in (b"1", b"2"):
            log.append(batch(value))
        log.flush()
    stats = store.flush_stats()
    assert (stats.flushes, stats.batches, stats.batches_per_flush) == (2, 4, 2.0)
    assert stats.size_bytes == sum(log.size_bytes for log in store.logs.values())


# Closing.


def test_closing_flushes_everything() -> None:
    for seed in range(10):
        disk = MemoryDisk()
        store = open_store(disk)
        store.create(ORDERS).append(batch(b"1"))
        store.create(USERS).append(batch(b"2"))
        store.close()
        store = open_crashed(disk, seed)
        assert store.was_clean
        assert [values_of(log) for log in store.logs.values()] == [[b"1"], [b"2"]]
        assert store.reports == {}


def test_a_store_with_a_stopped_log_leaves_no_marker() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = store.create(ORDERS)
    store.create(USERS).append(batch(b"2"))
    log.append(batch(b"1"))
    disk.fail_next("flush", errno.EIO, ending=".log")
    with pytest.raises(LogStoppedError):
        log.flush()
    store.close()
    store = open_crashed(disk)
    assert not store.was_clean
    assert values_of(store.logs[USERS]) == [b"2"]


def test_a_log_that_fails_while_the_store_closes_does_not_keep_the_others_from_closing() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.create(ORDERS).append(batch(b"1"))
    store.create(USERS).append(batch(b"2"))
    disk.fail_next("flush", errno.EIO, ending=".log")
    with pytest.raises(LogStoppedError, match="orders-0"):
        store.close()
    assert store.logs[USERS].flushed_offset == 1
    assert "clean-stop" not in names(disk)
    assert open_store(disk).was_clean is False


def test_a_damaged_partition_does_not_keep_the_others_from_opening() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.create(ORDERS).append(batch(b"first value"))
    store.logs[ORDERS].append(batch(b"second value"))
    store.create(USERS).append(batch(b"2"))
    store.close()
    path = f"{DATA}/orders-0/{0:020d}.log"
    content = disk.read_file(path)
    assert content is not None
    disk.overwrite(path, content.replace(b"second", b"SECOND"))
    store = open_store(disk)
    assert values_of(store.logs[USERS]) == [b"2"]
