"""The partition log as its owner uses it: what it takes, what it refuses, and what it says about itself."""

from __future__ import annotations

import pytest

from odradek.log.config import Flush
from odradek.log.errors import (
    LogError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    StaleLeaderEpochError,
    StaleProducerEpochError,
)
from odradek.records.crc import crc32c
from odradek.records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from odradek.records.header import check_batch, read_header, reseal
from tests.log.support import DIRECTORY, START_MS, LogOnDisk, at_most_two, batch, log_config, read_all, values_of


def _changed(data: bytearray, at: int, value: bytes) -> bytearray:
    """A batch with some bytes of its head replaced and a right CRC."""
    data[at : at + len(value)] = value
    reseal(data)
    return data


def _forced(data: bytearray, *changes: tuple[int, bytes]) -> bytearray:
    """A batch whose head makes no sense, and a right CRC all the same."""
    for at, value in changes:
        data[at : at + len(value)] = value
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data


def test_bytes_that_can_be_changed_are_stamped_in_place_and_others_are_copied() -> None:
    log = LogOnDisk().log
    log.append(batch(b"first"))
    own, borrowed, fixed = batch(b"a"), batch(b"b"), bytes(batch(b"c"))
    log.append(own, leader_epoch=3)
    log.append(memoryview(borrowed), leader_epoch=3)
    log.append(fixed, leader_epoch=3)
    assert (read_header(own).base_offset, read_header(own).leader_epoch) == (1, 3)
    assert read_header(borrowed).base_offset == 2
    assert read_header(fixed).base_offset == 0, "a producer's own bytes stay as they are"
    assert values_of(log) == [b"first", b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"", CorruptBatchError, "61"),
        (bytes(batch(b"x"))[:60], CorruptBatchError, "60 bytes are left, its head takes 61"),
        (_forced(batch(b"x"), (16, b"\x01")), CorruptBatchError, "magic 1"),
        (_forced(batch(b"x"), (57, b"\xff\xff\xff\xff")), CorruptBatchError, "holds -1 records"),
        (
            _forced(batch(b"x"), (23, b"\xff\xff\xff\xff"), (57, b"\x00\x00\x00\x00")),
            CorruptBatchError,
            "ends 1 offsets before it begins",
        ),
        (bytes(batch(b"x"))[:-1], CorruptBatchError, "cut off"),
        (bytes(batch(b"x"))[:-1] + b"?", CorruptBatchError, "CRC"),
        (batch(bytes(2000)), BatchTooLargeError, "max.message.bytes = 1000"),
        (batch(bytes(500)) + batch(bytes(2000)), BatchTooLargeError, "max.message.bytes = 1000"),
        (batch(b"x") + b"?", CorruptBatchError, "1 bytes are left"),
        (_changed(batch(b"x"), 21, b"\x00\x05"), UnsupportedCodecError, "codec 5"),
        (_changed(batch(b"x"), 23, b"\x00\x00\x00\x07"), InvalidRecordError, "1 records for 8 offsets"),
        (_changed(batch(b"x"), 57, b"\x00\x00\x00\x00"), InvalidRecordError, "0 records for 1 offsets"),
        (batch(b"x", producer=(7, 0, -1)), InvalidRecordError, "sequence -1"),
        (batch(b"x", producer=(7, -1, 0)), InvalidRecordError, "epoch -1"),
        (batch(b"x", producer=(-2, 0, 0)), InvalidRecordError, "producer id -2"),
    ],
)
def test_what_is_not_a_good_batch_is_refused_and_nothing_is_written(
    data: bytes, error: type[Exception], says: str
) -> None:
    log = LogOnDisk(max_message_bytes=1000).log
    with pytest.raises(error, match=says):
        log.append(data)
    assert (log.next_offset, log.size_bytes, log.stopped) == (0, 0, None)
    log.append(batch(b"goes on"))


def test_an_idempotent_producers_gap_repetition_and_old_epoch_are_told_apart() -> None:
    log = LogOnDisk().log
    first = log.append(batch(b"a", b"b", producer=(7, 1, 0)))
    with pytest.raises(OutOfOrderSequenceError, match="sent sequence 5, 2 was expected"):
        log.append(batch(b"later", producer=(7, 1, 5)))
    again = log.append(batch(b"a", b"b", producer=(7, 1, 0)))
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, first.base_offset, first.last_offset)
    with pytest.raises(StaleProducerEpochError, match="fenced"):
        log.append(batch(b"old", producer=(7, 0, 2)))
    both = log.append(batch(b"c", producer=(7, 1, 2)) + batch(b"d", producer=(7, 1, 3)))
    assert (both.base_offset, both.last_offset, both.duplicate) == (2, 3, False)
    assert values_of(log) == [b"a", b"b", b"c", b"d"]


def test_a_topic_can_stamp_records_with_the_brokers_time() -> None:
    on_disk = LogOnDisk(message_timestamp_type="LogAppendTime")
    on_disk.clock.advance(5)
    done = on_disk.log.append(batch(b"a", timestamp=1) + batch(b"b", timestamp=2))
    assert done.append_time_ms == START_MS + 5
    assert [record.timestamp for record in read_all(on_disk.log)] == [START_MS + 5] * 2
    chunk = on_disk.log.read(0, 1)
    assert chunk is not None
    assert check_batch(chunk.data).uses_log_append_time


def test_replicated_batches_keep_offsets_epochs_and_gaps() -> None:
    leader, follower = LogOnDisk(), LogOnDisk()
    for epoch, value in enumerate((b"a", b"b", b"c")):
        leader.log.append(batch(value), leader_epoch=epoch)
    first, last = leader.log.read(0, 1), leader.log.read(2, 1)
    assert first is not None
    assert last is not None
    follower.log.append_replicated(first.data)
    follower.log.append_replicated(last.data)
    with pytest.raises(LogError, match="continues at 3; the leader sent 2"):
        follower.log.append_replicated(last.data)
    reopened = follower.reopen()
    assert [(record.offset, record.value) for record in read_all(reopened)] == [(0, b"a"), (2, b"c")]
    assert reopened.epochs.items() == [(0, 0), (2, 2)]


def test_a_leader_whose_epoch_is_over_cannot_append() -> None:
    log = LogOnDisk().log
    log.append(batch(b"a"), leader_epoch=5)
    with pytest.raises(StaleLeaderEpochError, match="epoch 4 is over, 5 has begun"):
        log.append(batch(b"b"), leader_epoch=4)
    assert log.next_offset == 1


def test_offsets_that_are_not_there_are_named_with_those_that_are() -> None:
    log = LogOnDisk().log
    log.append(batch(b"a", b"b", b"c"))
    log.delete_records(1).run()
    for offset in (0, 4):
        with pytest.raises(OffsetOutOfRangeError, match=f"has the offsets 1 to 2, not {offset}"):
            log.read(offset, 100)
        with pytest.raises(OffsetOutOfRangeError):
            log.delete_records(offset)
    end = log.read(3, 100)
    assert end is not None
    assert not end.data


@pytest.mark.parametrize(("flush", "safe"), [("group", 0), ("replicated", 1), ("os", 1)])
def test_what_may_be_acknowledged_follows_the_flush_setting(flush: str, safe: int) -> None:
    log = LogOnDisk(flush=flush).log
    assert log.config.flush is Flush(flush)
    log.append(batch(b"a"))
    assert (log.safe_offset, log.flushed_offset) == (safe, 0)
    log.flush()
    assert (log.safe_offset, log.flushed_offset) == (1, 1)


def test_flushes_are_counted() -> None:
    log = LogOnDisk().log
    for count in (3, 1):
        for _ in range(count):
            log.append(batch(b"a"))
        log.flush()
    log.flush()
    assert (log.flush_stats.flushes, log.flush_stats.batches, log.flush_stats.batches_per_flush) == (2, 4, 2.0)
    assert log.flush_stats.size_bytes == log.size_bytes


@pytest.mark.parametrize(
    ("settings", "bases"),
    [
        ({"segment_bytes": 1024}, [0, 3, 6, 9]),
        ({"segment_ms": 1000}, [0, 4, 8]),
        ({}, [0, 2, 4, 6, 8, 10]),  # two batches: by the index of a file, by the records of a database
    ],
    ids=["size", "age", "index"],
)
def test_a_segment_is_rolled_by_size_age_and_index_size(settings: dict[str, object], bases: list[int]) -> None:
    log = LogOnDisk(None, DIRECTORY, **(settings or at_most_two())).log
    for number in range(12):
        log.append(batch(bytes(230), timestamp=START_MS + 300 * number))
    assert [segment.base_offset for segment in log.segments] == bases
    assert len(read_all(log)) == 12


def test_an_old_active_segment_is_rolled_although_nothing_comes() -> None:
    log = LogOnDisk(segment_ms=1000).log
    log.append(batch(b"a", timestamp=START_MS))
    log.roll_if_older(START_MS + 1000)
    assert len(log.segments) == 1
    log.roll_if_older(START_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_settings_can_change_while_the_log_is_open() -> None:
    log = LogOnDisk(segment_bytes=1 << 20, max_message_bytes=1000).log
    with pytest.raises(BatchTooLargeError):
        log.append(batch(bytes(2000)))
    log.configure(log_config(segment_bytes=1024, max_message_bytes=5000, message_timestamp_type="LogAppendTime"))
    assert log.append(batch(bytes(2000), timestamp=1)).append_time_ms == START_MS
    log.append(batch(bytes(2000)))
    assert len(log.segments) == 2


def test_a_smaller_segment_size_counts_for_a_segment_that_was_to_grow_further() -> None:
    log = LogOnDisk(segment_bytes=1 << 20).log
    log.append(batch(bytes(500)))
    log.configure(log_config(segment_bytes=1024))
    log.append(batch(bytes(500)))
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.configure(log_config(segment_bytes=1 << 20))
    log.append(batch(bytes(2000)))
    assert [segment.base_offset for segment in log.segments] == [0, 1], "and a larger one, too"


def test_the_newest_timestamp_is_found_wherever_it_stands() -> None:
    log = LogOnDisk(segment_bytes=1024, index_interval_bytes=100).log
    assert log.newest_timestamp() is None
    for number in range(20):
        log.append(batch(bytes(100), timestamp=START_MS + (1000 if number == 7 else number)))
    found = log.newest_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp) == (7, START_MS + 1000)
    assert log.offset_for_timestamp(START_MS + 1001) is None


def test_a_log_that_starts_over_goes_on_where_it_is_told_to() -> None:
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"old", producer=(7, 0, 0)), leader_epoch=9)
    on_disk.log.start_over(500)
    assert (on_disk.log.log_start, on_disk.log.next_offset, on_disk.log.flushed_offset) == (500, 500, 500)
    on_disk.log.append(batch(b"new", producer=(7, 0, 3)), leader_epoch=2)
    log = on_disk.reopen()
    assert [(record.offset, record.value) for record in read_all(log)] == [(500, b"new")]
    assert log.epochs.items() == [(2, 500)]
