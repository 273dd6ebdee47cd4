"""Compaction against Kafka's rules: a naive model first, then each rule by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.compaction import plan_compaction
from odradek.log.keymap import ENTRY_BYTES
from odradek.log.log import PartitionLog
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.header import check_batch
from odradek.records.record import NewRecord, Record
from tests.log.support import (
    START_MS,
    LogOnDisk,
    compact,
    headers_of,
    keyed,
    next_record,
    read_all,
    records_of,
    values_of,
)
from tests.records.oracles import aiokafka_records, kafka_python_records

RETENTION_MS = 1_000
INDEX_INTERVALS = [0, 60, 4096]
COMPACT: dict[str, Any] = {"cleanup_policy": "compact", "delete_retention_ms": RETENTION_MS}


def compacted(**settings: object) -> LogOnDisk:
    return LogOnDisk(**{**COMPACT, **settings})


def write(log: PartitionLog, *batches: bytearray, roll: bool = True) -> None:
    """Append batches, and put what follows into another segment."""
    for one in batches:
        log.append(one)
    if roll:
        log.roll()


def offsets_of(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_all(log)]


# The model: batches in a list, cleaned by looking at all of them.


@dataclass
class ModelBatch:
    base: int
    last: int
    codec: int
    records: list[Record]
    horizon: int | None = None

    def clean(self, newest: dict[bytes, int], now_ms: int) -> None:
        gone = self.horizon is not None and self.horizon <= now_ms
        self.records = [
            record
            for record in self.records
            if record.key is not None and newest[record.key] == record.offset and not (record.value is None and gone)
        ]
        if self.horizon is None and any(record.value is None for record in self.records):
            self.horizon = now_ms + RETENTION_MS


class Model:
    def __init__(self) -> None:
        self.batches: list[ModelBatch] = []

    @property
    def records(self) -> list[Record]:
        return [record for one in self.batches for record in one.records]

    def compact(self, upto: int, now_ms: int) -> None:
        old = [one for one in self.batches if one.base < upto]
        newest = {record.key: record.offset for one in old for record in one.records if record.key is not None}
        for one in old:
            one.clean(newest, now_ms)
        self.batches = [one for one in self.batches if one.base >= upto or one.records]


keys = st.sampled_from([b"a", b"b", b"c", b"", None])
values = st.one_of(st.none(), st.just(b""), st.binary(min_size=1, max_size=8), st.binary(min_size=300, max_size=400))
appends = st.tuples(
    st.just("append"), st.lists(st.tuples(keys, values), min_size=1, max_size=4), st.sampled_from(list(Codec))
)
steps = st.lists(
    st.one_of(
        appends,
        appends,
        st.just(("roll",)),
        st.just(("compact",)),
        st.just(("reopen",)),
        st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS])),
    ),
    max_size=25,
)


def run_step(subject: LogOnDisk, model: Model, step: tuple[Any, ...]) -> None:
    now = subject.clock.now_ms()
    if step[0] == "append":
        data = keyed(*step[1], timestamp=now - len(step[1]), codec=step[2])
        base = subject.log.append(data).base_offset
        records = [Record(base + n, now - len(step[1]), key, value) for n, (key, value) in enumerate(step[1])]
        model.batches.append(ModelBatch(base, records[-1].offset, step[2], records))
    elif step[0] == "roll":
        subject.log.roll()
    elif step[0] == "reopen":
        subject.reopen()
    elif step[0] == "wait":
        subject.clock.advance(step[1])
    else:
        upto = subject.log.segments[-1].base_offset
        active = subject.log.segments[-1]
        if compact(subject.log, now):
            model.compact(upto, now)
        assert subject.log.segments[-1] is active


@given(steps, st.sampled_from(INDEX_INTERVALS))
def test_compaction_keeps_what_a_naive_model_keeps(todo: list[tuple[Any, ...]], index_interval: int) -> None:
    subject, model = compacted(segment_bytes=1024, index_interval_bytes=index_interval), Model()
    for step in (*todo, ("roll",), ("compact",)):
        run_step(subject, model, step)
        assert read_all(subject.log) == model.records
    heads = [(head.base_offset, head.last_offset, head.codec) for head in headers_of(subject.log)]
    assert heads == [(one.base, one.last, one.codec) for one in model.batches]
    horizons = [head.base_timestamp if head.has_delete_horizon else None for head in headers_of(subject.log)]
    assert horizons == [one.horizon for one in model.batches]
    for _ in range(2):  # the second time with indexes read from the files
        for offset in range(subject.log.next_offset + 1):
            expected = next((record for record in model.records if record.offset >= offset), None)
            assert next_record(subject.log, offset) == expected
        subject.reopen()


@given(st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=4), min_size=1, max_size=12), st.integers(1, 4))
def test_a_tiny_key_map_needs_several_passes_and_is_never_wrong(
    batches: list[list[tuple[bytes | None, bytes | None]]], entries: int
) -> None:
    subject = compacted(segment_bytes=1024)
    newest: dict[bytes, Record] = {}
    for pairs in batches:
        base = subject.log.append(keyed(*pairs)).base_offset
        newest |= {k: Record(base + n, START_MS, k, v) for n, (k, v) in enumerate(pairs) if k is not None}
    subject.log.roll()
    before, passes = read_all(subject.log), 0
    while compact(subject.log, key_map_bytes=entries * ENTRY_BYTES):
        passes += 1
        after = read_all(subject.log)
        assert set(newest.values()) <= set(after) <= set(before)
        assert after == sorted(after)
        before = after
        assert passes <= len(batches), "every pass covers one batch at least"
    assert read_all(subject.log) == sorted(newest.values())


def test_of_two_passes_the_second_begins_where_the_key_map_got_full() -> None:
    subject = compacted()
    for value in (b"1", b"2"):
        write(subject.log, keyed((b"a", value)), keyed((b"b", value)), keyed((b"c", value)))
    compact(subject.log, key_map_bytes=2 * ENTRY_BYTES)
    assert subject.log.state.cleaned_to == 2
    assert offsets_of(subject.log) == [0, 1, 2, 3, 4, 5]
    compact(subject.log, key_map_bytes=2 * ENTRY_BYTES)
    assert subject.log.state.cleaned_to == 4
    assert offsets_of(subject.log) == [1, 2, 3, 4, 5]
    compact(subject.log, key_map_bytes=2 * ENTRY_BYTES)
    assert offsets_of(subject.log) == [3, 4, 5]
    assert not compact(subject.log)


def test_what_a_full_key_map_does_not_reach_is_not_touched() -> None:
    """A tombstone whose older values are not cleaned yet must not begin to go."""
    subject = compacted()
    write(subject.log, keyed((b"a", b"1")), keyed((b"b", b"1")), keyed((b"b", None)), keyed((None, b"x")))
    compact(subject.log, key_map_bytes=ENTRY_BYTES)
    assert offsets_of(subject.log) == [0, 1, 2, 3]
    assert not any(head.has_delete_horizon for head in headers_of(subject.log))


def test_a_tombstone_stays_for_its_retention_after_the_first_cleaning_and_goes_at_the_next() -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", b"1"), (b"b", b"1"), timestamp=START_MS - 10 * RETENTION_MS))
    write(subject.log, keyed((b"a", None), timestamp=START_MS - 10 * RETENTION_MS))
    compact(subject.log, START_MS)
    assert offsets_of(subject.log) == [1, 2]
    write(subject.log, keyed((b"c", b"1")))
    compact(subject.log, START_MS + RETENTION_MS - 1)
    assert offsets_of(subject.log) == [1, 2, 3]
    write(subject.log, keyed((b"d", b"1")))
    compact(subject.log, START_MS + RETENTION_MS)
    assert offsets_of(subject.log) == [1, 3, 4]


def test_a_newer_value_after_a_tombstone_is_not_harmed_by_it() -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", b"1")))
    write(subject.log, keyed((b"a", None)))
    compact(subject.log, START_MS)
    write(subject.log, keyed((b"a", b"2")))
    compact(subject.log, START_MS + 5 * RETENTION_MS)
    assert values_of(subject.log) == [b"2"]


def test_the_active_segment_is_neither_cleaned_nor_asked() -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", b"1")))
    write(subject.log, keyed((b"a", b"2"), (b"a", b"3")), roll=False)
    assert compact(subject.log)
    assert values_of(subject.log) == [b"1", b"2", b"3"]


def test_a_log_without_compaction_or_without_closed_segments_has_no_plan() -> None:
    subject = LogOnDisk(cleanup_policy="delete")
    write(subject.log, keyed((b"a", b"1")))
    subject.log.flush()
    assert plan_compaction(subject.log, START_MS, 1 << 20, force=True) is None
    subject = compacted()
    write(subject.log, keyed((b"a", b"1")), roll=False)
    subject.log.flush()
    assert plan_compaction(subject.log, START_MS, 1 << 20, force=True) is None


def test_only_segments_before_the_one_that_was_flushed_last_are_cleaned() -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", b"1"), (b"a", b"2")), roll=False)
    subject.log.flush()
    subject.log.roll()
    assert plan_compaction(subject.log, START_MS, 1 << 20, force=True) is None
    subject.log.flush()
    write(subject.log, keyed((b"a", b"3")))
    plan = plan_compaction(subject.log, START_MS, 1 << 20, force=True)
    assert plan is not None
    assert plan.dirty_to == 2
    plan.build()
    assert plan.install(subject.log)
    assert values_of(subject.log) == [b"2", b"3"]


def test_there_is_one_plan_at_a_time() -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", b"1"), (b"a", b"2")))
    subject.log.flush()
    plan = plan_compaction(subject.log, START_MS, 1 << 20, force=True)
    assert plan is not None
    assert plan_compaction(subject.log, START_MS, 1 << 20, force=True) is None
    plan.drop(subject.log)
    assert compact(subject.log)


def test_records_without_a_key_are_removed() -> None:
    subject = compacted()
    write(subject.log, keyed((None, b"x"), (b"a", b"1")), keyed((None, None)))
    compact(subject.log)
    assert read_all(subject.log) == [Record(1, START_MS, b"a", b"1")]


def test_the_dirty_ratio_decides_when_it_is_worth_it() -> None:
    subject = compacted(min_cleanable_dirty_ratio=0.5)
    write(subject.log, *(keyed((b"%d" % n, bytes(100))) for n in range(4)))
    assert compact(subject.log, force=False)  # all of it is dirty
    write(subject.log, keyed((b"5", bytes(100))))
    assert not compact(subject.log, force=False)  # a fifth
    write(subject.log, *(keyed((b"%d" % n, bytes(100))) for n in range(6, 10)))
    assert compact(subject.log, force=False)  # five of nine


def test_young_records_wait_for_the_minimum_lag() -> None:
    subject = compacted(min_compaction_lag_ms=100)
    write(subject.log, keyed((b"a", b"1"), timestamp=START_MS))
    write(subject.log, keyed((b"a", b"2"), timestamp=START_MS + 50))
    write(subject.log, keyed((b"a", b"3"), timestamp=START_MS + 80))
    assert not compact(subject.log, START_MS + 99)
    assert compact(subject.log, START_MS + 150)  # the first two segments
    assert values_of(subject.log) == [b"2", b"3"]
    assert compact(subject.log, START_MS + 180)
    assert values_of(subject.log) == [b"3"]


def test_a_young_segment_keeps_all_behind_it_from_being_cleaned() -> None:
    subject = compacted(min_compaction_lag_ms=100)
    write(subject.log, keyed((b"a", b"1"), timestamp=START_MS + 90))
    write(subject.log, keyed((b"a", b"2"), timestamp=START_MS))
    assert not compact(subject.log, START_MS + 120)


def test_what_has_been_dirty_for_too_long_is_cleaned_whatever_the_ratio() -> None:
    subject = compacted(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=500)
    write(subject.log, *(keyed((b"%d" % n, bytes(100))) for n in range(4)))
    compact(subject.log)
    write(subject.log, keyed((b"1", b"new"), timestamp=START_MS + 100))
    assert not compact(subject.log, START_MS + 600, force=False)
    assert compact(subject.log, START_MS + 601, force=False)


def test_the_maximum_lag_closes_the_active_segment_in_time() -> None:
    subject = compacted(max_compaction_lag_ms=500)
    write(subject.log, keyed((b"a", b"1"), (b"a", b"2")), roll=False)
    subject.log.roll_if_older(START_MS + 501)
    assert compact(subject.log, START_MS + 501, force=False)


def test_nothing_beyond_the_high_watermark_is_cleaned() -> None:
    subject = compacted()
    write(subject.log, keyed((b"a", b"1")))
    write(subject.log, keyed((b"a", b"2")))
    subject.log.flush()
    plan = plan_compaction(subject.log, START_MS, 1 << 20, upto=1, force=True)
    assert plan is not None
    assert plan.dirty_to == 1
    plan.drop(subject.log)
    assert plan_compaction(subject.log, START_MS, 1 << 20, upto=0, force=True) is None


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_stays_in_its_codec_and_its_offsets_and_epoch_stay(codec: Codec) -> None:
    subject = compacted()
    first = [(b"k%d" % n, bytes(200)) for n in range(6)]
    subject.log.append(keyed(*first, codec=codec), leader_epoch=3)
    subject.log.append(keyed((b"k5", b"new"), codec=codec), leader_epoch=4)
    subject.log.roll()
    compact(subject.log)
    heads = headers_of(subject.log)
    assert [(head.base_offset, head.last_offset, head.record_count) for head in heads] == [(0, 5, 5), (6, 6, 1)]
    assert [(head.codec, head.leader_epoch) for head in heads] == [(codec, 3), (codec, 4)]
    subject.reopen()
    assert [record.offset for record in read_all(subject.log)] == [0, 1, 2, 3, 4, 6]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("append_time", [False, True])
def test_others_read_a_batch_with_a_delete_horizon_with_the_right_times(codec: Codec, append_time: bool) -> None:
    subject = compacted(message_timestamp_type="LogAppendTime" if append_time else "CreateTime")
    records = [
        NewRecord(b"gone", b"b", START_MS),
        NewRecord(None, b"a", START_MS + 7),
        NewRecord(bytes(300), b"b", START_MS - 3),
    ]
    subject.log.append(build_batch(records, codec=codec))
    subject.log.roll()
    compact(subject.log, START_MS + 123_456)
    chunk = subject.log.read(0, 1 << 20)
    assert chunk is not None
    data = bytes(chunk.data)
    header = check_batch(data)
    assert header.attributes & 0x40
    assert header.base_timestamp == START_MS + 123_456 + RETENTION_MS
    times = [START_MS, START_MS] if append_time else [START_MS + 7, START_MS - 3]
    expected = [Record(1, times[0], b"a", None), Record(2, times[1], b"b", bytes(300))]
    assert records_of(data) == expected
    readers: list[Any] = [
        kafka_python_records.DefaultRecordBatch,
        aiokafka_records.DefaultRecordBatch,
        aiokafka_records._DefaultRecordBatchPy,
    ]
    for reader in readers:
        theirs = reader(data)
        assert theirs.validate_crc()
        assert [Record(one.offset, one.timestamp, one.key, one.value) for one in theirs] == expected
    found = subject.log.offset_for_timestamp(START_MS - 3)
    assert found is not None
    assert found.offset == 1
