"""Compaction and segments: how they are merged, what is read from them meanwhile, what their indexes say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.disk.memory import MemoryDisk, MemoryFile
from odradek.disk.real import RealDisk
from odradek.log.compaction import plan_compaction
from odradek.log.errors import DamagedLogError
from odradek.log.reader import LogReader
from odradek.records.record import Record
from tests.log.support import (
    DIRECTORY,
    START_MS,
    LogOnDisk,
    at_most_two,
    compact,
    file_only,
    keyed,
    log_config,
    next_record,
    read_all,
    records_of,
)
from tests.log.test_compaction import COMPACT, compacted, offsets_of, write


def test_small_segments_are_merged_up_to_the_segment_size() -> None:
    subject = compacted(segment_bytes=1024)
    for number in range(12):
        write(subject.log, keyed((b"%d" % number, bytes(230))))
    assert len(subject.log.segments) == 13
    compact(subject.log)
    assert all(segment.size_bytes <= 1024 for segment in subject.log.segments)
    assert [segment.base_offset for segment in subject.log.segments] == [0, 3, 6, 9, 12]
    assert offsets_of(subject.log) == list(range(12))
    subject.reopen()
    assert offsets_of(subject.log) == list(range(12))
    assert len(subject.log.segments) == 5


REFUSED: list[tuple[dict[str, Any], list[int]]] = [  # what a segment must not hold together; the timestamps
    ({"segment_ms": 1_000}, [START_MS, START_MS + 5_000, START_MS + 10_000]),
    ({"max_compaction_lag_ms": 1_000}, [START_MS, START_MS + 5_000, START_MS + 10_000]),
    ({}, [START_MS] * 8),  # the index of a file, the records of a database
    ({"segment_ms": 1}, [0, 2**63 - 1]),
]


@pytest.mark.parametrize(("settings", "timestamps"), REFUSED)
def test_what_was_rolled_for_its_age_or_its_index_is_merged_whole(
    settings: dict[str, Any], timestamps: list[int]
) -> None:
    subject = compacted(**(settings or at_most_two()))
    for number, timestamp in enumerate(timestamps):
        write(subject.log, keyed((b"%d" % number, b"v"), timestamp=timestamp), roll=False)
    subject.log.roll()
    assert len(subject.log.segments) > 2
    assert compact(subject.log)
    assert len(subject.log.segments) == 2
    for _ in range(2):
        assert offsets_of(subject.log) == list(range(len(timestamps)))
        subject.reopen()


def test_a_segment_larger_than_segments_may_be_today_is_cleaned_whole() -> None:
    subject = compacted()
    write(subject.log, *(keyed((b"%d" % number, bytes(1_000))) for number in range(6)))
    subject.log.configure(log_config(**COMPACT, segment_bytes=2_048))
    assert compact(subject.log)
    assert offsets_of(subject.log) == list(range(6))


def test_a_batch_that_grows_by_its_delete_horizon_pushes_nothing_out() -> None:
    subject = compacted()
    write(subject.log, *(keyed((b"%d" % number, None)) for number in range(20)), keyed((b"a", b"last")))
    size = subject.log.size_bytes
    subject.log.configure(log_config(**COMPACT, segment_bytes=size))
    assert compact(subject.log)
    assert subject.log.size_bytes > size
    assert offsets_of(subject.log) == list(range(21))


def test_the_statistics_say_what_was_cleaned() -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", bytes(100)), (b"b", bytes(100))), keyed((b"a", bytes(100))))
    size = subject.log.size_bytes
    subject.log.flush()
    plan = plan_compaction(subject.log, START_MS, 1 << 20, force=True)
    assert plan is not None
    plan.build()
    assert plan.install(subject.log)
    assert (plan.stats.records_before, plan.stats.records_after) == (3, 2)
    assert (plan.stats.bytes_before, plan.stats.bytes_after) == (size, subject.log.size_bytes)


def test_a_segment_that_is_cleaned_to_nothing_is_read_over() -> None:
    subject = compacted(segment_bytes=1024)
    write(subject.log, keyed((b"a", bytes(900))))
    write(subject.log, keyed((b"a", bytes(901))))
    compact(subject.log)
    for _ in range(2):
        assert offsets_of(subject.log) == [1]
        assert next_record(subject.log, 0) == Record(1, START_MS, b"a", bytes(901))
        subject.reopen()


def test_an_emptied_segment_does_not_keep_retention_from_what_follows() -> None:
    subject = compacted(cleanup_policy="compact,delete", segment_bytes=1024, retention_ms=10_000)
    write(subject.log, keyed((b"a", bytes(900))))
    write(subject.log, keyed((b"a", bytes(901))))
    compact(subject.log)
    removal = subject.log.expire(START_MS + 10_001)
    assert removal is not None
    assert subject.log.log_start == 2


def test_compaction_and_retention_work_on_the_same_log() -> None:
    subject = compacted(cleanup_policy="compact,delete", segment_bytes=1024, retention_ms=10_000)
    write(subject.log, keyed((b"a", bytes(900))))
    write(subject.log, keyed((b"b", bytes(900)), timestamp=START_MS + 5_000))
    write(subject.log, keyed((b"b", bytes(901)), (b"c", b"1"), timestamp=START_MS + 9_000))
    compact(subject.log, START_MS + 9_000)
    assert offsets_of(subject.log) == [0, 2, 3]
    removal = subject.log.expire(START_MS + 10_001)
    assert removal is not None
    removal.run()
    assert subject.log.log_start == 2  # the first segment is too old, the second is empty
    write(subject.log, keyed((b"c", b"2"), timestamp=START_MS + 10_000))
    assert compact(subject.log, START_MS + 10_001)
    subject.reopen()
    assert [(record.key, record.offset) for record in read_all(subject.log)] == [(b"b", 2), (b"c", 4)]


def test_a_reader_in_the_middle_of_merged_segments_misses_nothing() -> None:
    subject = compacted()
    for number in range(5):
        write(subject.log, keyed((b"%d" % number, b"v")))
    with LogReader(subject.log, 1) as reader:
        seen = [record.offset for record in records_of(reader.read(1 << 20).data)]
        compact(subject.log)
        for chunk in reader:
            seen += [record.offset for record in records_of(chunk.data)]
    assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize("real", [False, True])
def test_a_reader_reads_on_in_a_segment_that_was_replaced(real: bool, tmp_path: Path) -> None:
    disk = RealDisk() if real else MemoryDisk()
    directory = str(tmp_path / "orders-0") if real else DIRECTORY
    subject = LogOnDisk(disk, directory, **COMPACT, index_interval_bytes=100)
    write(subject.log, *(keyed((b"a", b"%d" % number)) for number in range(20)))
    write(subject.log, keyed((b"a", b"last")), roll=False)
    with LogReader(subject.log, 0) as reader:
        seen = [record.offset for record in records_of(reader.read(200).data)]
        compact(subject.log)
        while chunk := reader.read(200).data:
            seen += [record.offset for record in records_of(chunk)]
    assert seen == list(range(21))
    assert offsets_of(subject.log) == [19, 20]
    subject.log.close()


def test_an_index_that_became_smaller_does_not_make_the_log_look_damaged() -> None:
    """The batch that stays is so large that the index entries of before would point into it."""
    subject = compacted(index_interval_bytes=100)
    write(subject.log, *(keyed((b"a", b"%d" % number)) for number in range(50)), keyed((b"a", bytes(20_000))))
    compact(subject.log)
    assert next_record(subject.log, 50) == Record(50, START_MS, b"a", bytes(20_000))


def test_an_old_index_entry_near_the_end_does_not_hang_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = compacted(index_interval_bytes=100)
    write(subject.log, *(keyed((b"a", b"%d" % number)) for number in range(3)), keyed((b"a", bytes(100))))
    compact(subject.log)
    assert offsets_of(subject.log) == [3]  # all of it is known to be good from here on
    read, calls = MemoryFile.read, 0

    def counted(self: MemoryFile, length: int, at: int) -> bytes:
        nonlocal calls
        calls += 1
        assert calls < 1_000
        return read(self, length, at)

    monkeypatch.setattr(MemoryFile, "read", counted)
    assert next_record(subject.log, 3) == Record(3, START_MS, b"a", bytes(100))


@file_only
@pytest.mark.parametrize("reopened", [True, False])
def test_a_damaged_batch_is_not_cleaned_into_one_that_looks_whole(reopened: bool) -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", b"old"), (b"b", b"good value")), keyed((b"a", b"new")))
    log_file = subject.log.segments[0].file  # type: ignore[attr-defined]
    subject.log.flush()
    content = bytearray(log_file.read(log_file.size(), 0))
    content[content.index(b"good value")] ^= 0x20
    log_file.truncate(0)
    log_file.append(content)
    log_file.sync()
    if reopened:
        subject.open()
    with pytest.raises(DamagedLogError, match=f"{DIRECTORY}.* is damaged at byte 0: the batch .* has the CRC"):
        compact(subject.log)
    subject.open()
    with pytest.raises(DamagedLogError):
        next_record(subject.log, 0)
    assert next_record(subject.log, 2) == Record(2, START_MS, b"a", b"new")
