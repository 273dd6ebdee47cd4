"""Compaction interrupted: by a crash, by a disk that says no, by an owner who changes the log while it is built."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.disk.errors import DiskError
from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk, RealFile
from odradek.log.compaction import CompactionPlan, plan_compaction
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.log import PartitionLog
from odradek.records.compression import Codec
from odradek.records.record import Record
from tests.conftest import PROFILE_VARIABLE
from tests.log.support import DIRECTORY, START_MS, LogOnDisk, compact, keyed, next_record, read_all

SEEDS_A_BLOCK = 400 if os.environ.get(PROFILE_VARIABLE) == "long" else 50
BLOCKS = 8
WAIT_S = 30.0
RETENTION_MS = 1_000
SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 1024,
    "delete_retention_ms": RETENTION_MS,
    "index_interval_bytes": 100,
}


class PowerLossError(Exception):
    """The process ends here; nothing in it may catch this."""


class FusedDisk(MemoryDisk):
    """Counts what is asked of it; at one of the calls, and at all that follow, the power is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.fuse = -1
        self.fails_once = False  # the call fails, and the machine goes on

    def maybe_fail(self, action: str, path: str) -> None:
        super().maybe_fail(action, path)
        self.calls += 1
        if self.fuse >= 0 and self.fails_once and self.calls == self.fuse:
            raise DiskError(action, path, "as ordered")
        if self.fuse >= 0 and not self.fails_once and self.calls >= self.fuse:
            raise PowerLossError(action, path)


class Story:
    """A log of a few keys, written and flushed by chance, and what a reader may expect of it after a crash."""

    def __init__(self, seed: int, *, settled: bool) -> None:
        """`settled`: nothing is left to be flushed, and the recovery point is on stable storage, too."""
        self.chance = random.Random(seed)
        self.disk = FusedDisk()
        self.subject = LogOnDisk(self.disk, **SETTINGS)
        self.written: dict[int, Record] = {}
        for _ in range(self.chance.randint(1, 2)):
            self.write(self.chance.randint(3, 14))
            self.subject.log.flush()
            if self.chance.random() < 0.5:
                compact(self.subject.log, self.now)
                self.subject.clock.advance(self.chance.choice([1, RETENTION_MS]))
        self.write(self.chance.randint(0, 3))  # these were promised to nobody
        if settled or self.chance.random() < 0.5:
            self.subject.log.roll()
        if settled:
            self.subject.reopen()
        self.flushed = self.subject.log.flushed_offset

    @property
    def now(self) -> int:
        return self.subject.clock.now_ms()

    def write(self, batches: int) -> None:
        for _ in range(batches):
            count = self.chance.randint(1, 3)
            pairs = [(self.chance.choice([b"a", b"b", b"c", b"d"]), self.value()) for _ in range(count)]
            codec = self.chance.choice([Codec.NONE, Codec.ZSTD])
            base = self.subject.log.append(keyed(*pairs, codec=codec, timestamp=self.now)).base_offset
            self.written |= {base + n: Record(base + n, self.now, *pair) for n, pair in enumerate(pairs)}
            if self.chance.random() < 0.3:
                self.subject.log.roll()

    def value(self) -> bytes | None:
        return None if self.chance.random() < 0.2 else self.chance.randbytes(self.chance.choice([1, 100, 400]))

    def compact(self) -> None:
        plan = plan_compaction(self.subject.log, self.now, 1 << 20, force=True)
        if plan is not None:
            plan.build()
            plan.install(self.subject.log)

    def check(self, log: PartitionLog) -> None:
        """All that survives was written, in order, once; of each key the newest that was flushed, or a newer one."""
        found = read_all(log)
        assert log.next_offset >= self.flushed
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        for record in found:
            assert self.written[record.offset] == record
        newest = {record.key: record for offset, record in self.written.items() if offset < self.flushed}
        for key, expected in newest.items():
            last = max((record.offset for record in found if record.key == key), default=None)
            if last is None:
                assert expected.value is None, f"{expected} is gone"
            else:
                assert last >= expected.offset, f"{expected} is gone, and {last} has come back"


def interrupted(seed: int, *, settled: bool = True, fails_once: bool = False) -> Story:
    """A story that meets its fuse somewhere in a compaction; it is told twice, first to count."""
    story = Story(seed, settled=settled)
    before = story.disk.calls
    story.compact()
    calls = story.disk.calls - before
    story = Story(seed, settled=settled)
    story.disk.fuse = before + story.chance.randint(1, calls + 1)
    story.disk.fails_once = fails_once
    with contextlib.suppress(PowerLossError, DiskError, LogError):
        story.compact()
    story.disk.fuse = -1
    story.disk.crash(story.chance)
    return story


def check_after_restart(story: Story) -> None:
    log = story.subject.open()
    story.check(log)
    assert not [entry.name for entry in story.disk.list(DIRECTORY) if entry.name.endswith(".cleaned")]
    log.roll()
    log.flush()
    story.compact()
    story.check(story.subject.log)
    before = read_all(story.subject.log)
    values = [record.key for record in before]
    assert len(values) == len(set(values)), "a second compaction leaves one record a key"
    after = story.subject.reopen()
    assert read_all(after) == before
    for offset in range(after.log_start, after.next_offset):
        assert next_record(after, offset) == next((record for record in before if record.offset >= offset), None)


def check_seeds(seeds: range, **how: bool) -> None:
    for seed in seeds:
        try:
            check_after_restart(interrupted(seed, **how))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_crash_at_any_call_of_a_compaction_loses_no_newest_value(block: int) -> None:
    check_seeds(range(block * SEEDS_A_BLOCK, (block + 1) * SEEDS_A_BLOCK))


def test_a_crash_in_the_compaction_of_a_log_that_is_being_written_loses_no_flushed_value() -> None:
    check_seeds(range(BLOCKS * SEEDS_A_BLOCK), settled=False)


@pytest.mark.parametrize("settled", [True, False])
def test_a_disk_that_fails_at_any_call_of_a_compaction_loses_no_newest_value(settled: bool) -> None:
    check_seeds(range(BLOCKS * SEEDS_A_BLOCK), settled=settled, fails_once=True)


def test_a_rename_that_fails_in_the_middle_of_a_swap_loses_nothing() -> None:
    subject = LogOnDisk(**SETTINGS)
    for key in (b"a", b"b", b"c"):
        subject.log.append(keyed((key, b"value")))
        subject.log.roll()
    subject.log.flush()
    assert isinstance(subject.disk, MemoryDisk)
    subject.disk.fail_next("rename", errno.EIO, ending=f".log{subject.log.backend.replacement_suffix}")
    with pytest.raises(LogStoppedError):
        compact(subject.log)
    subject.open()
    assert [record.key for record in read_all(subject.log)] == [b"a", b"b", b"c"]


def test_a_build_that_fails_leaves_the_log_as_it_was_and_can_be_tried_again() -> None:
    subject = LogOnDisk(**SETTINGS)
    subject.log.append(keyed((b"a", b"1"), (b"a", b"2")))
    subject.log.roll()
    subject.log.flush()
    assert isinstance(subject.disk, MemoryDisk)
    subject.disk.fail_next("append to", errno.ENOSPC, ending=f".log{subject.log.backend.replacement_suffix}")
    plan = plan_compaction(subject.log, START_MS, 1 << 20, force=True)
    assert plan is not None
    with pytest.raises(DiskError):
        plan.build()
    plan.drop(subject.log)
    assert not [entry.name for entry in subject.disk.list(DIRECTORY) if entry.name.endswith(".cleaned")]
    assert subject.log.stopped is None
    assert len(read_all(subject.log)) == 2
    compact(subject.log)
    assert len(read_all(subject.log)) == 1


def test_a_recovery_point_never_speaks_of_a_segment_that_was_replaced() -> None:
    subject = LogOnDisk(**SETTINGS)
    for value in (b"1", b"2"):
        subject.log.append(keyed((b"a", value)))
    subject.log.flush()
    subject.log.append(keyed((b"b", bytes(200))))
    subject.log.roll()
    compact(subject.log)
    subject.open()  # the process died, and the system has written out everything
    assert [(record.key, record.offset) for record in read_all(subject.log)] == [(b"a", 1), (b"b", 2)]


# Two phases: the owner goes on while another thread builds.


class StagedDisk(MemoryDisk):
    """Stops one thread at one of its calls until the other has done its part."""

    def __init__(self) -> None:
        super().__init__()
        self.builder: threading.Thread | None = None
        self.stop_at = 0
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def maybe_fail(self, action: str, path: str) -> None:
        super().maybe_fail(action, path)
        if threading.current_thread() is self.builder:
            self.stop_at -= 1
            if self.stop_at == 0:
                self.reached.set()
                assert self.go_on.wait(WAIT_S)


class Builder(threading.Thread):
    """Builds a plan and keeps what went wrong."""

    def __init__(self, plan: CompactionPlan) -> None:
        super().__init__(daemon=True)
        self.plan = plan
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.plan.build()
        except (LogError, DiskError) as error:
            self.error = error


def install(builder: Builder, log: PartitionLog) -> bool:
    builder.join(WAIT_S)
    assert not builder.is_alive()
    if builder.error is not None:
        builder.plan.drop(log)
        return False
    return builder.plan.install(log)


class Shared:
    """A log that its owner changes, and what should be in it."""

    def __init__(self) -> None:
        self.disk = StagedDisk()
        self.subject = LogOnDisk(self.disk, **{**SETTINGS, "cleanup_policy": "compact,delete", "retention_ms": 60_000})
        self.written: dict[int, Record] = {}
        for number in range(9):
            self.append(number, bytes(300), START_MS)  # three a segment, and the same keys in each
        self.log.flush()

    @property
    def log(self) -> PartitionLog:
        return self.subject.log

    def append(self, number: int, value: bytes, timestamp: int) -> None:
        key = b"k%d" % (number % 3)
        offset = self.log.append(keyed((key, value), timestamp=timestamp)).base_offset
        self.written[offset] = Record(offset, timestamp, key, value)

    def appends_and_rolls(self) -> None:
        for number in range(7):
            self.append(number, bytes(310), START_MS + 50_000)
        self.log.flush()
        self.log.roll()

    def expires(self) -> None:
        self.appends_and_rolls()
        removal = self.log.expire(START_MS + 60_001)
        assert removal is not None
        removal.run()

    def deletes_records(self) -> None:
        self.log.delete_records(4).run()

    def truncates(self) -> None:
        self.log.truncate(5)
        self.written = {offset: record for offset, record in self.written.items() if offset < 5}

    def truncates_and_goes_on(self) -> None:
        self.truncates()
        for number in (1, 1, 1, 1, 1):
            self.append(number, bytes(320), START_MS)
        self.log.roll()

    def starts_over(self) -> None:
        self.log.start_over(100)
        self.written = {}
        self.append(1, b"after", START_MS)

    def check(self) -> None:
        for _ in range(2):
            found = read_all(self.log)
            expected = {offset: record for offset, record in self.written.items() if offset >= self.log.log_start}
            assert all(expected.get(record.offset) == record for record in found)
            assert found == sorted(set(found))
            assert self.log.next_offset == max(self.written) + 1
            newest = {record.key: record for record in expected.values()}
            assert set(newest.values()) <= set(found)
            self.subject.reopen()


def calls_of_a_build() -> int:
    shared = Shared()
    plan = plan_compaction(shared.log, START_MS, 1 << 20, force=True)
    assert plan is not None
    shared.disk.builder, shared.disk.stop_at = threading.current_thread(), 0
    plan.build()
    return -shared.disk.stop_at


def build_while(action: Callable[[Shared], None]) -> None:
    """Let the owner act once before each call that a build makes, and after the last."""
    for call in range(1, calls_of_a_build() + 2):
        shared = Shared()
        plan = plan_compaction(shared.log, START_MS, 1 << 20, force=True)
        assert plan is not None
        builder = Builder(plan)
        shared.disk.builder, shared.disk.stop_at = builder, call
        builder.start()
        while not shared.disk.reached.wait(0.01) and builder.is_alive():
            pass
        try:
            action(shared)
        finally:
            shared.disk.go_on.set()
        install(builder, shared.log)
        shared.check()
        assert shared.log.stopped is None


@pytest.mark.parametrize(
    "action", [Shared.appends_and_rolls, Shared.expires, Shared.deletes_records, Shared.starts_over]
)
def test_what_the_owner_does_while_a_build_runs_stays_done(action: Callable[[Shared], None]) -> None:
    build_while(action)


def test_a_truncation_while_a_build_runs_brings_back_what_was_overwritten() -> None:
    build_while(Shared.truncates)


def test_a_truncated_and_rewritten_segment_is_not_replaced_by_what_it_was() -> None:
    build_while(Shared.truncates_and_goes_on)


def test_a_segment_made_after_a_compaction_begins_empty() -> None:
    subject = LogOnDisk(**SETTINGS)
    for key in (b"a", b"b"):
        subject.log.append(keyed((key, b"1")))
        subject.log.roll()
    subject.log.append(keyed((b"c", b"1")))
    compact(subject.log)
    subject.log.truncate(1)  # the segment that begins at 2 goes, and is made again
    subject.log.append(keyed((b"b", b"2")))
    subject.log.roll()
    assert subject.log.segments[-1].size_bytes == 0
    subject.log.append(keyed((b"c", b"2")))
    assert [record.value for record in read_all(subject.log)] == [b"1", b"2", b"2"]


# With real files: what a memory disk forgives.


def test_a_log_can_be_flushed_after_segments_that_were_not_are_merged(tmp_path: Path) -> None:
    subject = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), **SETTINGS)
    for key in (b"a", b"b", b"c"):
        subject.log.append(keyed((key, b"value")))
        subject.log.roll()
    compact(subject.log)
    subject.log.append(keyed((b"d", b"value")))
    subject.log.flush()
    assert subject.log.flushed_offset == 4


def test_the_files_that_a_build_writes_are_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), **SETTINGS)
    subject.log.append(keyed((b"a", b"1"), (b"a", b"2")))
    subject.log.roll()
    subject.log.flush()
    append, loose = RealFile.append, set[str]()

    def watched(self: RealFile, data: Any) -> None:
        if isinstance(threading.current_thread(), Builder) and not self.pinned:
            loose.add(Path(self.path).name)
        append(self, data)

    monkeypatch.setattr(RealFile, "append", watched)
    plan = plan_compaction(subject.log, START_MS, 1 << 20, force=True)
    assert plan is not None
    builder = Builder(plan)
    builder.start()
    assert install(builder, subject.log)
    subject.log.close()
    assert loose == set()


def test_many_compactions_beside_a_busy_owner_never_lose_a_value(tmp_path: Path) -> None:
    subject = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), **SETTINGS)
    newest: dict[bytes | None, Record] = {}
    for round_number in range(12):
        subject.log.flush()
        plan = plan_compaction(subject.log, START_MS, 1 << 20, force=True)
        builder = Builder(plan) if plan is not None else None
        if builder is not None:
            builder.start()
        for number in range(60):
            key, value = b"k%d" % (number % 7), b"%d.%d" % (round_number, number)
            offset = subject.log.append(keyed((key, value))).base_offset
            newest[key] = Record(offset, START_MS, key, value)
        if builder is not None:
            assert install(builder, subject.log)
    subject.log.flush()
    subject.log.roll()
    compact(subject.log)
    assert read_all(subject.log) == sorted(newest.values())
    subject.reopen()
    assert read_all(subject.log) == sorted(newest.values())
    subject.log.close()
