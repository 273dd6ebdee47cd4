"""Readers: in step with appends, over segments, and holding what retention and compaction take away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.disk.interface import Disk
from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk
from odradek.log.backends.file_segment import FileSegment
from odradek.log.backends.table_segment import TableSegment
from odradek.log.compaction import plan_compaction
from odradek.log.errors import DamagedLogError, OffsetOutOfRangeError
from odradek.log.log import PartitionLog
from odradek.log.reader import LogReader, ReadJob, begin_read
from odradek.log.segment import Chunk
from odradek.log.state import STATE_NAME
from tests.log.support import LogOnDisk, batch, records_of

OPEN_FILES_MAX = 8


@pytest.fixture(params=["memory", "real"])
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> LogOnDisk:
    """An empty log, on either disk; the real one may keep only a few files open."""
    disk: Disk = MemoryDisk() if request.param == "memory" else RealDisk(OPEN_FILES_MAX)
    return LogOnDisk(disk, f"{tmp_path}/orders-0", retention_ms=-1, retention_bytes=0)


def fill(log: PartitionLog, segments: int, batches: int = 3) -> None:
    """So many segments of so many batches of one record, whose values are their offsets."""
    for segment in range(segments):
        for _ in range(batches):
            log.append(batch(b"%d" % log.next_offset))
        if segment < segments - 1:
            log.roll()
        log.flush()


def offsets(*chunks: Chunk) -> list[int]:
    """The offsets of all records; each must hold its own."""
    records = [record for chunk in chunks for record in records_of(chunk.data)]
    assert all(record.value == b"%d" % record.offset for record in records)
    return [record.offset for record in records]


def test_a_reader_walks_over_all_segments_and_stops_at_the_end(on_disk: LogOnDisk) -> None:
    fill(on_disk.log, 5)
    with LogReader(on_disk.log, 4) as reader:
        assert offsets(*reader) == list(range(4, 15))
        assert reader.offset == 15 and not reader.read(100).data


def test_a_reader_goes_on_when_more_comes(on_disk: LogOnDisk) -> None:
    seen: list[int] = []
    with LogReader(on_disk.log, 0) as reader:
        for number in range(30):
            assert not reader.read(100).data
            on_disk.log.append(batch(b"%d" % number))
            if number % 7 == 0:
                on_disk.log.roll()
            seen += offsets(reader.read(100))
    assert seen == list(range(30))


@given(st.lists(st.sampled_from(("append", "roll", "read", "reopen")), max_size=40), st.integers(1, 400))
def test_whatever_happens_in_between_every_record_is_read_once(steps: list[str], max_bytes: int) -> None:
    on_disk, seen = LogOnDisk(), list[int]()
    reader = LogReader(on_disk.log, 0)
    for step in steps:
        if step == "append":
            on_disk.log.append(batch(b"%d" % on_disk.log.next_offset))
        elif step == "roll":
            on_disk.log.roll()
        elif step == "read":
            seen += offsets(reader.read(max_bytes))
        else:
            reader.close()
            reader = LogReader(on_disk.reopen(), reader.offset)
    seen += offsets(*reader)
    assert seen == list(range(on_disk.log.next_offset))


def test_nothing_from_the_limit_on_is_read(on_disk: LogOnDisk) -> None:
    fill(on_disk.log, 4)
    with LogReader(on_disk.log, 0) as reader:
        for upto in (0, 2, 3, 8, 8, 100):
            seen: list[int] = []
            while (chunk := reader.read(1 << 20, upto=upto)).data:
                seen += offsets(chunk)
            assert reader.offset == min(upto, 12)


def test_a_reader_may_begin_inside_a_batch_and_at_the_end_but_nowhere_else() -> None:
    log = LogOnDisk().log
    log.append(batch(b"0", b"1", b"2"))
    with LogReader(log, 1) as reader:
        assert offsets(*reader) == [0, 1, 2]
    with LogReader(log, 3) as reader:
        assert offsets(*reader) == []
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRangeError, match=f"has the offsets 0 to 2, not {offset}"):
            LogReader(log, offset)


def test_a_batch_larger_than_asked_for_comes_whole(on_disk: LogOnDisk) -> None:
    fill(on_disk.log, 2)
    with LogReader(on_disk.log, 0) as reader:
        assert [offsets(reader.read(0)) for _ in range(6)] == [[number] for number in range(6)]


# Holding.


def test_what_a_reader_stands_in_can_be_read_although_retention_deletes_it(on_disk: LogOnDisk) -> None:
    fill(on_disk.log, 6)
    readers = [LogReader(on_disk.log, 3 * number) for number in range(5)]
    first = [offsets(reader.read(1)) for reader in readers]
    removal = on_disk.log.expire(on_disk.clock.now_ms())
    assert removal is not None
    removal.run()
    assert on_disk.log.log_start == 15
    if isinstance(on_disk.log.segments[0], FileSegment):
        names = [entry.name for entry in on_disk.disk.list(on_disk.directory) if entry.name.endswith(".log")]
        assert names == [f"{15:020d}.log"]
    for number, reader in enumerate(readers):
        rest = offsets(reader.read(1 << 20))
        assert first[number] + rest == list(range(3 * number, 3 * number + 3))
        assert offsets(*reader) == [15, 16, 17], "then it goes on with what there is"
        reader.close()
    if isinstance(on_disk.disk, RealDisk):
        on_disk.log.close()
        assert on_disk.disk.open_files == 0, "no descriptor is left behind"


def test_holding_one_segment_does_not_keep_the_others(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(OPEN_FILES_MAX), f"{tmp_path}/orders-0", retention_bytes=0)
    fill(on_disk.log, 50)
    with LogReader(on_disk.log, 0) as reader:
        for offset in range(0, 150, 7):
            chunk = on_disk.log.read(offset, 1)
            assert chunk is not None and offsets(chunk) == [offset]
        disk = on_disk.disk
        assert isinstance(disk, RealDisk) and disk.open_files <= OPEN_FILES_MAX
        assert offsets(*reader) == list(range(150))


def test_one_flush_may_cover_more_segments_than_may_be_open(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(OPEN_FILES_MAX), f"{tmp_path}/orders-0")
    for number in range(20):
        on_disk.log.append(batch(b"%d" % number))
        on_disk.log.roll()
    on_disk.log.flush()
    assert on_disk.log.flushed_offset == 20


def test_more_readers_than_open_files_disturb_nobody(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(OPEN_FILES_MAX), f"{tmp_path}/orders-0", retention_bytes=0)
    fill(on_disk.log, 12)
    readers = [LogReader(on_disk.log, 3 * number) for number in range(10)]
    on_disk.log.append(batch(b"36"))
    on_disk.log.flush()
    for number, reader in enumerate(readers):
        assert offsets(reader.read(1)) == [3 * number]
        reader.close()


# Compaction.


def compacted_log() -> LogOnDisk:
    """Three small sealed segments and an active one, every key in it once."""
    on_disk = LogOnDisk(cleanup_policy="compact")
    for number in range(7):
        on_disk.log.append(batch(b"%d" % number, key=b"k%d" % number))
        if number in (1, 3, 5):
            on_disk.log.roll()
    on_disk.log.flush()
    return on_disk


def compact(on_disk: LogOnDisk) -> None:
    plan = plan_compaction(on_disk.log, on_disk.clock.now_ms(), 1 << 20, force=True)
    assert plan is not None
    plan.build()
    assert plan.install(on_disk.log)


@pytest.mark.parametrize("start", [0, 2, 4])
def test_a_reader_misses_nothing_when_compaction_merges_the_segment_it_stands_in(start: int) -> None:
    on_disk = compacted_log()
    with LogReader(on_disk.log, start) as reader:
        seen = offsets(reader.read(1))
        compact(on_disk)
        assert [segment.base_offset for segment in on_disk.log.segments] == [0, 6]
        assert seen + offsets(*reader) == list(range(start, 7))


def log_with_a_gap() -> LogOnDisk:
    """A compacted segment whose last records are gone, and another one behind it."""
    on_disk = LogOnDisk(cleanup_policy="compact", segment_bytes=1024)
    on_disk.log.append(batch(b"0", key=b"stays"))
    for number in range(1, 5):
        on_disk.log.append(batch(b"%d" % number, key=b"goes"))
    on_disk.log.roll()
    on_disk.log.append(batch(b"5", key=b"goes"))
    for number in range(6, 16):
        on_disk.log.append(batch(b"%d" % number, key=b"k%d" % number))
    on_disk.log.roll()
    on_disk.log.append(batch(b"16", key=b"end"))
    on_disk.log.flush()
    compact(on_disk)
    assert [segment.base_offset for segment in on_disk.log.segments] == [0, 5, 16]
    return on_disk


def test_a_reader_steps_over_what_compaction_removed() -> None:
    log = log_with_a_gap().log
    for offset in range(17):
        with LogReader(log, offset) as reader:
            assert offsets(*reader) == [number for number in (0, *range(5, 17)) if number >= offset]


# Records that are missing.


def log_that_lost_records() -> LogOnDisk:
    """Two segments of three batches, the first of which lost its last one: what is left of it is whole."""
    on_disk = LogOnDisk()
    fill(on_disk.log, 2)
    first = on_disk.log.segments[0]
    on_disk.log.flush()
    if isinstance(first, TableSegment):
        first.table.truncate(2)
    on_disk.log.close()
    if isinstance(first, FileSegment):
        on_disk.disk.open(first.path).truncate(2 * len(batch(b"0")))
    return on_disk


def test_records_that_are_missing_are_not_stepped_over_by_anybody() -> None:
    log = log_that_lost_records().open()
    missing = "orders-0, segment 0 is damaged at byte [0-9]+: the records from offset 2 on are missing"
    with pytest.raises(DamagedLogError, match=missing):
        log.read(2, 1)
    with LogReader(log, 0) as reader:
        assert offsets(reader.read(1 << 20)) == [0, 1]
        with pytest.raises(DamagedLogError, match=missing):
            reader.read(1 << 20)
    job = begin_read(log, 2, 1)
    with pytest.raises(DamagedLogError, match=missing):
        job.run()
    job.finish()
    assert offsets(run_in_thread(begin_read(log, 3, 1))) == [3], "what is there is served"


def test_a_log_that_forgot_whether_it_was_compacted_may_have_gaps() -> None:
    on_disk = log_that_lost_records()
    on_disk.disk.remove(f"{on_disk.directory}/{STATE_NAME}")
    log = on_disk.open()
    read = log.read(2, 1)
    assert read is not None and offsets(read) == [3]
    with LogReader(log, 0) as reader:
        assert offsets(*reader) == [0, 1, 3, 4, 5]
    assert offsets(run_in_thread(begin_read(log, 2, 1))) == [3]


# Jobs for other threads.


def run_in_thread(job: ReadJob) -> Chunk:
    found: list[Chunk] = []
    thread = Thread(target=lambda: found.append(job.run()))
    thread.start()
    thread.join()
    job.finish()
    return found[0]


def test_a_job_reads_in_another_thread_what_the_loop_could_not(on_disk: LogOnDisk) -> None:
    fill(on_disk.log, 4)
    log = on_disk.reopen()
    for offset in range(12):
        chunk = log.read(offset, 1, nowait=True)
        if chunk is None:
            chunk = run_in_thread(begin_read(log, offset, 1))
        assert offsets(chunk) == [offset]
    if isinstance(log.segments[0], FileSegment):
        assert log.read(0, 1, nowait=True) is not None, "what was checked once is read without waiting"


def test_a_job_ends_at_its_limit_and_where_the_log_ended_when_it_began(on_disk: LogOnDisk) -> None:
    fill(on_disk.log, 1, batches=5)
    job = begin_read(on_disk.log, 1, 1 << 20)
    limited = begin_read(on_disk.log, 1, 1 << 20, upto=3)
    at_the_end = begin_read(on_disk.log, 5, 1 << 20)
    on_disk.log.append(batch(b"5"))
    assert offsets(run_in_thread(job)) == [1, 2, 3, 4]
    assert offsets(run_in_thread(limited)) == [1, 2]
    assert offsets(run_in_thread(at_the_end)) == []


def test_a_job_reads_what_was_deleted_after_it_began(on_disk: LogOnDisk) -> None:
    fill(on_disk.log, 4)
    jobs = [begin_read(on_disk.log, 3 * number, 1 << 20) for number in range(3)]
    removal = on_disk.log.expire(on_disk.clock.now_ms())
    assert removal is not None
    removal.run()
    for number, job in enumerate(jobs):
        assert offsets(run_in_thread(job)) == list(range(3 * number, 3 * number + 3))


def test_a_job_begins_in_the_segment_that_has_something() -> None:
    log = LogOnDisk().log
    log.append(batch(b"0"))
    log.roll()
    job = begin_read(log, 1, 100)
    assert not run_in_thread(job).data, "an active segment that is empty is the end"
    with pytest.raises(OffsetOutOfRangeError):
        begin_read(log, 2, 100)


def test_a_job_steps_over_what_compaction_removed() -> None:
    log = log_with_a_gap().log
    read = log.read(3, 1)
    assert read is not None and offsets(read) == [5]
    assert offsets(run_in_thread(begin_read(log, 3, 1))) == [5]


def test_threads_read_on_while_the_owner_appends_rolls_and_deletes(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(64), f"{tmp_path}/orders-0", index_interval_bytes=200, retention_bytes=3000)
    log, wrong = on_disk.log, list[object]()

    def read_twice(job: ReadJob, wanted: int) -> None:
        for _ in range(2):
            found = offsets(job.run())
            if found[:1] != [wanted] or found != list(range(found[0], found[0] + len(found))):
                wrong.append((wanted, found))

    def some_offsets() -> Iterator[int]:
        for number in range(60):
            yield log.log_start + number * 37 % (log.next_offset - log.log_start)

    for number in range(400):
        log.append(batch(b"%d" % number))
        if number % 50 == 49:
            log.roll()
            log.flush()
            jobs = [(begin_read(log, offset, 5000), offset) for offset in some_offsets()]
            threads = [Thread(target=read_twice, args=job) for job in jobs]
            for thread in threads:
                thread.start()
            removal = log.expire(on_disk.clock.now_ms())
            if removal is not None:
                removal.run()
            for thread in threads:
                thread.join()
            for job, _ in jobs:
                job.finish()
    assert wrong == []
    assert log.log_start > 0
    log.close()
    assert isinstance(on_disk.disk, RealDisk) and on_disk.disk.open_files == 0
