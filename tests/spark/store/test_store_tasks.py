"""What tasks read from a store, without Spark: everything once, byte for byte, or an error that says what is wrong."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.model import TopicPartition
from odradek.objects.archive import ArchivedSegment, put_segment
from odradek.objects.errors import StoreError, StoreUnavailableError
from odradek.objects.stores import ObjectStore, open_store
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.header import stamp_offset
from odradek.records.record import NewRecord
from odradek.spark.errors import DataLossError, MissingTopicError, OptionError, SparkError, UnreachableError
from odradek.spark.options import Mode
from odradek.spark.store import objects, opening
from odradek.spark.store.archive_reader import ArchiveReader, PiecesPartition
from odradek.spark.store.channel_reader import ChannelReader, UnitsPartition
from odradek.spark.store.opening import asked, opened
from odradek.spark.store.options import StoreOptions, StoreTarget
from tests.spark.store.channels import NOON_MS, Channel, samples

EVERYTHING = "key,value,topic,partition,offset,timestamp,timestampType,headers"


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut would spoil these tests all the same."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(tmp_path.as_uri())


def rows(batches: Iterable[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [as_row(one) for batch in batches for one in batch.to_pylist()]


def as_row(one: dict[str, Any]) -> tuple[object, ...]:
    values = list(one.values())
    if "timestamp" in one:
        values[5] = one["timestamp"].replace(tzinfo=None)
        values[7] = None if one["headers"] is None else [(pair["key"], pair["value"]) for pair in one["headers"]]
    return tuple(values)


def read(channel: Channel, **options: str) -> list[tuple[object, ...]]:
    reader = ChannelReader(channel.options(Mode.BATCH, columns=EVERYTHING, **options))
    return [row for partition in reader.partitions() for row in rows(reader.read(partition))]


def by_place(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda row: (row[3], row[4]))


def test_what_was_put_is_what_is_read_by_partition_and_slice(channel: Channel) -> None:
    for number in range(3):
        channel.put(samples(NOON_MS + number * 7_000, step_ms=400), partition=number % 2)
    assert by_place(read(channel)) == by_place(channel.rows)


def test_a_writer_without_a_broker_has_a_number_that_no_partition_has(channel: Channel) -> None:
    channel.put(samples(), publisher="me")
    channel.put(samples(), publisher="you")
    channel.put(samples(), partition=17)
    numbers = {row[3] for row in read(channel)}
    assert len(numbers) == 3
    assert 17 in numbers
    assert all(isinstance(number, int) and number < 0 for number in numbers - {17})


def test_a_range_of_time_is_exact_and_touches_only_its_slices(channel: Channel) -> None:
    channel.put_at(*(second + half for second in range(0, 3600, 10) for half in (0, 0.5)))
    opened(channel.options().target).requests.__init__()  # type: ignore[misc]
    found = read(channel, startingTimestamp=str(NOON_MS + 600_500), endingTimestamp=str(NOON_MS + 660_000))
    assert [row[1] for row in found] == [
        f"at {NOON_MS + 600_000 + 500 * half}".encode() for half in range(1, 120) if half % 20 < 2
    ]
    requests = opened(channel.options().target).requests
    assert (requests.gets, requests.lists) == (1 + 6, 1)


def test_times_before_1970_and_without_end_are_found(channel: Channel) -> None:
    channel.put([NewRecord(b"none", timestamp=-1), NewRecord(b"far", timestamp=10**14)])
    assert len(read(channel)) == 2
    assert [row[1] for row in read(channel, endingTimestamp="0")] == [b"none"]
    assert [row[1] for row in read(channel, startingTimestamp="5")] == [b"far"]


def test_a_day_of_tiny_objects_is_a_few_tasks(channel: Channel) -> None:
    channel.put_at(*range(0, 4_000, 10))
    reader = ChannelReader(channel.options())
    assert len(reader.partitions()) == 2  # 400 requests
    assert len(ChannelReader(channel.options(minPartitions="40")).partitions()) == 40
    assert len(ChannelReader(channel.options(maxBytesPerPartition="1")).partitions()) == 400
    assert len(ChannelReader(channel.options(endingTimestamp=str(NOON_MS))).partitions()) == 0
    (first, *_) = reader.partitions()
    assert [batch.num_rows for batch in reader.read(first)] == [len(first.units)]  # type: ignore[attr-defined]


def test_overlapping_objects_of_a_slice_bring_each_record_once(channel: Channel) -> None:
    """It should not happen; should it happen, nothing is doubled."""
    (first,) = channel.put([NewRecord(str(number).encode(), timestamp=NOON_MS) for number in range(5)])
    (second,) = channel.put([NewRecord(b"5", timestamp=NOON_MS)])
    again = first[:-1] + "3"
    records = [NewRecord(str(number).encode(), timestamp=NOON_MS) for number in (3, 4)]
    channel.store.put(again, bytes(build_batch(records, base_offset=3)))
    assert [row[1] for row in read(channel)] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert first < again < second


# Trouble.


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: data[:-1], "hold no batch"),
        (lambda data: data + data[:-1], "it ends in the middle of a batch, behind byte 93 of 185"),
        (lambda data: b"", "it ends in the middle of a batch"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "it was damaged on its way or where it is stored"),
        (lambda data: b"not a batch, " * 20, "the batch at byte 0"),
    ],
)
def test_a_damaged_object_is_named(channel: Channel, damage: Callable[[bytes], bytes], error: str) -> None:
    (key,) = channel.put_at(1)
    channel.store.put(key, damage(channel.store.get(key)))
    with pytest.raises(SparkError, match=rf"the object {key} of file://.* cannot be read: .*{error}"):
        read(channel)


def test_an_object_that_went_meanwhile_is_an_error_or_a_warning(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    (gone,) = channel.put_at(1)
    channel.put_at(2)
    careful = ChannelReader(channel.options())
    careless = ChannelReader(channel.options(failOnDataLoss="false", columns="offset"))
    (partition,) = careful.partitions()
    channel.store.delete([gone])
    with pytest.raises(DataLossError, match=f"the object {gone} of .* is gone.*set failOnDataLoss to false"):
        rows(careful.read(partition))
    with caplog.at_level(logging.WARNING):
        assert rows(careless.read(partition)) == [(1,)]
    assert gone in caplog.text


def test_a_store_that_is_away_is_waited_for(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    channel.put_at(1)
    reader = ChannelReader(channel.options(columns="offset"))
    (partition,) = reader.partitions()
    real, failures = ObjectStore.get, iter([StoreUnavailableError("away")] * 2)

    def get(store: ObjectStore, key: str) -> bytes:
        for failure in failures:
            raise failure
        return real(store, key)

    monkeypatch.setattr(ObjectStore, "get", get)
    monkeypatch.setattr(opening, "PAUSE_S_MIN", 0.001)
    assert rows(reader.read(partition)) == [(0,)]
    failures = iter([StoreUnavailableError("away")])
    with pytest.raises(UnreachableError, match="the store cannot be read: away"):
        reader.partitions()


def test_what_a_store_says_is_shown_without_secrets(channel: Channel) -> None:
    target = StoreTarget("s3://b", (("aws_secret_access_key", "hush-hush"), ("aws_region", "here")))

    def fail() -> None:
        raise StoreError("signed with hush-hush, for here")

    with pytest.raises(SparkError, match=r"signed with \*\*\*, for here") as caught:
        asked(target, fail)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_who_has_no_credentials_is_told_where_they_go(channel: Channel) -> None:
    def fail() -> None:
        raise StoreUnavailableError("s3://b: GET x: Error performing PUT http://169.254.169.254/latest/api/token")

    with pytest.raises(UnreachableError, match=r"no credentials were found.*store\.aws_access_key_id"):
        asked(StoreTarget("s3://b"), fail)


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    options = StoreOptions.parse({"store": f"file://{tmp_path}/typo", "channel": "orders"}, Mode.BATCH)
    with pytest.raises(OptionError, match=r"there is no directory '.*/typo' on this machine"):
        ChannelReader(options).partitions()
    assert list(tmp_path.iterdir()) == []


def test_a_channel_that_is_not_there_is_named(channel: Channel) -> None:
    with pytest.raises(MissingTopicError, match=r"there is no channel ordres.*Look at the prefix in store"):
        ChannelReader(channel.options(channel="ordres")).partitions()


def test_large_objects_are_not_all_held_at_once(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    for second in range(20):
        channel.put([NewRecord(os.urandom(1000), timestamp=NOON_MS + second * 1000)])
    monkeypatch.setattr(objects, "AHEAD_BYTES_MAX", 2_500)
    reader = ChannelReader(channel.options(columns="offset"))
    (partition,) = reader.partitions()
    assert isinstance(partition, UnitsPartition)
    fetched = objects._fetched(channel.options().target, [one for unit in partition.units for one in unit.objects])
    before = opened(channel.options().target).requests.gets
    assert next(fetched) is not None
    assert opened(channel.options().target).requests.gets - before <= 3
    fetched.close()


# Archived topics.


def archive(store: ObjectStore, partition: int, *ends: int, start: int = 0) -> list[ArchivedSegment]:
    """Segments that end at these offsets, in batches of three records, a second a record."""
    made = []
    for end in ends:
        data = bytearray()
        for base in range(start, end, 3):
            records = [
                NewRecord(f"{partition}/{offset}".encode(), timestamp=NOON_MS + offset * 1000)
                for offset in range(base, min(base + 3, end))
            ]
            batch = build_batch(records, codec=Codec.ZSTD)
            stamp_offset(batch, base, 0)
            data += batch
        made.append(put_segment(store, "old", "ab" * 16, partition, start, end, bytes(data))[0])
        start = end
    return made


def read_archive(url: str, **options: str) -> list[list[tuple[object, ...]]]:
    given = {"store": url, "topic": "old", "columns": "value,partition,offset"} | options
    reader = ArchiveReader(StoreOptions.parse({name.lower(): value for name, value in given.items()}, Mode.BATCH))
    return [rows(reader.read(partition)) for partition in reader.partitions()]


def expected(partition: int, start: int, end: int) -> list[tuple[object, ...]]:
    return [(f"{partition}/{offset}".encode(), partition, offset) for offset in range(start, end)]


def test_an_archived_topic_is_read_whole_and_in_order(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    archive(store, 0, 10, 30, 31)
    archive(store, 1, 20)
    found = read_archive(tmp_path.as_uri())
    assert found == [expected(0, 0, 31) + expected(1, 0, 20)]
    cut = read_archive(tmp_path.as_uri(), minPartitions="7")
    assert len(cut) >= 7
    assert [row for rows in cut for row in rows] == found[0]


def test_segments_that_two_leaders_have_cut_differently_bring_each_offset_once(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    archive(store, 0, 10, 30)
    archive(store, 0, 40, start=12)
    assert read_archive(tmp_path.as_uri()) == [expected(0, 0, 40)]


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({"startingOffsets": '{"old": {"0": 7, "1": -2}}'}, [(0, 7, 31), (1, 5, 20)]),
        ({"endingOffsets": '{"old": {"0": 8, "1": -1}}'}, [(0, 0, 8), (1, 5, 20)]),
        ({"startingTimestamp": str(NOON_MS + 12_001)}, [(0, 13, 31), (1, 13, 20)]),
        ({"startingTimestamp": str(NOON_MS + 25_000)}, [(0, 25, 31)]),
        ({"endingTimestamp": str(NOON_MS + 12_000)}, [(0, 0, 12), (1, 5, 12)]),
        (
            {"startingOffsetsByTimestamp": f'{{"old": {{"0": {NOON_MS + 30_000}, "1": {NOON_MS}}}}}'},
            [(0, 30, 31), (1, 5, 20)],
        ),
    ],
)
def test_places_in_an_archived_topic(
    tmp_path: Path, options: dict[str, str], ranges: list[tuple[int, int, int]]
) -> None:
    store = open_store(tmp_path.as_uri())
    archive(store, 0, 10, 30, 31)
    archive(store, 1, 20, start=5)
    found = [row for rows in read_archive(tmp_path.as_uri(), **options) for row in rows]
    assert found == [row for each in ranges for row in expected(*each)]


def test_trouble_with_an_archive(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    store = open_store(url)
    with pytest.raises(MissingTopicError, match=r"no archived segment of topic old. There are: none of any topic"):
        read_archive(url)
    (segment,) = archive(store, 0, 10)
    with pytest.raises(MissingTopicError, match=r"of topic new\. There are: old\..*remote.storage.enable"):
        read_archive(url, topic="new")
    with pytest.raises(OptionError, match=r"Named: old-3\. Archived: old-0"):
        read_archive(url, startingOffsets='{"old": {"3": 1}}')
    given = StoreOptions.parse({"store": url, "topic": "old"}, Mode.BATCH)
    careless = StoreOptions.parse({"store": url, "topic": "old", "failondataloss": "false"}, Mode.BATCH)
    (partition,) = ArchiveReader(given).partitions()
    assert isinstance(partition, PiecesPartition)
    store.delete([segment.key(".log")])
    with pytest.raises(
        DataLossError, match=f"offsets 0 to 9 of {TopicPartition('old', 0)}: .*retention has removed it"
    ):
        rows(ArchiveReader(given).read(partition))
    assert rows(ArchiveReader(careless).read(partition)) == []
