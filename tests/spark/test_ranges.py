"""Tests of odradek.spark.read.ranges: what was asked for is read, through restarts, and losses are named."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from odradek.spark.connection import ConnectionOptions
from odradek.spark.errors import DataLossError, MissingTopicError, SparkError
from odradek.spark.offsets import OffsetRange
from odradek.spark.read import fetching as fetching_module
from odradek.spark.read import ranges as ranges_module
from odradek.spark.read.decode import ALL_COLUMNS
from odradek.spark.read.fetching import Answer, OutOfRange, PartitionFetcher
from odradek.spark.read.ranges import read_range
from odradek.testing import broker
from tests.process import BrokerProcess, wait_until
from tests.spark.conftest import Produce

NewName = Callable[[], str]
COLUMNS = ("offset", "value")


def batches(
    bootstrap: str,
    topic: str,
    start: int,
    end: int,
    columns: tuple[str, ...] = COLUMNS,
    *,
    fail_on_data_loss: bool = True,
    timeout_ms: int = 60_000,
) -> Iterator[pa.RecordBatch]:
    return read_range(
        ConnectionOptions(bootstrap, timeout_ms=timeout_ms),
        OffsetRange(topic, 0, start, end),
        columns,
        read_committed=True,
        fail_on_data_loss=fail_on_data_loss,
    )


def rows(*arguments: Any, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches(*arguments, **options) for row in batch.to_pylist()]


def numbered(first: int, last: int) -> list[tuple[int, bytes]]:
    """What `produce(topic, (b"%d" % number ...))` makes of a new topic."""
    return [(number, b"%d" % number) for number in range(first, last)]


@pytest.fixture
def topic(new_name: NewName, produce: Produce) -> str:
    """A topic with offsets 0 to 4,999, in many batches."""
    name = new_name()
    for first in range(0, 5_000, 500):
        produce(name, [b"%d" % number for number in range(first, first + 500)], codec=Codec(first // 500 % 5))
    return name


@pytest.fixture
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_module, "FETCH_BYTES_MAX", 4_000)


@pytest.mark.parametrize(("start", "end"), [(0, 5_000), (0, 1), (4_999, 5_000), (499, 501), (1_234, 4_321), (7, 7)])
def test_a_range_is_read_from_its_start_to_its_end(bootstrap: str, topic: str, start: int, end: int) -> None:
    assert rows(bootstrap, topic, start, end) == numbered(start, end)


@pytest.mark.usefixtures("small_fetches")
@pytest.mark.parametrize(("start", "end"), [(0, 5_000), (499, 501), (1_234, 4_321)])
def test_a_range_of_many_fetches_is_read_as_well(bootstrap: str, topic: str, start: int, end: int) -> None:
    assert rows(bootstrap, topic, start, end) == numbered(start, end)


def test_all_columns_of_a_record_arrive(bootstrap: str, new_name: NewName, produce: Produce) -> None:
    name = new_name()
    produce(name, [NewRecord(None, b"k", 1_000, (("h", b"1"), ("h", None)))])  # type: ignore[arg-type]
    (batch,) = batches(bootstrap, name, 0, 1, ALL_COLUMNS)
    (row,) = batch.to_pylist()
    assert row.pop("timestamp").timestamp() == 1
    assert row == {
        "key": b"k",
        "value": None,
        "topic": name,
        "partition": 0,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


def test_no_more_is_fetched_than_the_range_needs(
    bootstrap: str, new_name: NewName, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name()
    for _ in range(40):
        produce(name, [bytes(1_000)] * 200)
    asked: list[int] = []
    wanted = PartitionFetcher.fetch

    async def fetch(self: PartitionFetcher, offset: int, bytes_max: int) -> Answer | OutOfRange:
        asked.append(bytes_max)
        return await wanted(self, offset, bytes_max)

    monkeypatch.setattr(PartitionFetcher, "fetch", fetch)
    assert len(rows(bootstrap, name, 0, 100, ("offset",))) == 100
    assert len(asked) == 1 and asked[0] < 300_000


def test_reading_may_end_early(bootstrap: str, topic: str, small_fetches: None) -> None:
    reading = batches(bootstrap, topic, 0, 5_000)
    assert next(reading).num_rows > 0
    reading.close()  # type: ignore[attr-defined]
    assert rows(bootstrap, topic, 0, 5_000) == numbered(0, 5_000)


def test_offsets_that_compaction_removed_are_passed_over_up_to_the_end() -> None:
    with broker({"log.cleaner.backoff.ms": "50"}) as embedded, Client(embedded.bootstrap_servers) as client:
        client.admin.create_topic(
            "latest", 1, {"cleanup.policy": "compact", "segment.bytes": "2048", "min.cleanable.dirty.ratio": "0.01"}
        )
        with client.producer() as producer:
            for number in range(600):
                producer.send("latest", b"%d" % number, key=b"k%d" % (number % 3))
        bootstrap = embedded.bootstrap_servers
        wait_until(lambda: len(rows(bootstrap, "latest", 0, 600)) < 100, 30, "compaction")
        for start, end in [(0, 5), (1, 300), (290, 310), (100, 599), (0, 600)]:  # ends within a gap, and none
            before = rows(bootstrap, "latest", 0, 600)
            found = rows(bootstrap, "latest", start, end)
            after = rows(bootstrap, "latest", 0, 600)  # compaction goes on meanwhile
            assert {row for row in after if start <= row[0] < end} <= set(found) <= set(before)
            assert found == [(offset, b"%d" % offset) for offset, _ in found if start <= offset < end]
        assert [offset for offset, _ in found][-3:] == [597, 598, 599]


def test_a_broker_that_is_killed_in_the_middle_and_comes_back_is_waited_for(
    tmp_path: Path, small_fetches: None
) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with Client(process.bootstrap) as client:
            client.admin.create_topic("t")
            with client.producer(batch_bytes=2_000) as producer:
                producer.send_many("t", [NewRecord(b"%d" % number) for number in range(20_000)])
        reading = batches(process.bootstrap, "t", 0, 20_000)
        found: list[Any] = []
        for times in range(3):
            while len(found) < 5_000 * (times + 1):
                found += next(reading).to_pylist()
            process.kill()
            back = threading.Thread(target=process.start)
            back.start()
            found += next(reading).to_pylist()  # one that had come, or one from the broker that is back
            found += next(reading).to_pylist()
            back.join()
        found += [row for batch in reading for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in found] == numbered(0, 20_000)


def test_a_broker_that_does_not_come_back_is_an_error_that_says_so(tmp_path: Path, small_fetches: None) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with Client(process.bootstrap) as client:
            client.admin.create_topic("t")
            with client.producer(batch_bytes=2_000) as producer:
                producer.send_many("t", [NewRecord(b"%d" % number) for number in range(5_000)])
        reading = batches(process.bootstrap, "t", 0, 5_000, timeout_ms=1_500)
        next(reading)
        process.kill()
        with pytest.raises(SparkError, match=r"of partition t-0 cannot be read for 1\.5 s: .*cannot be reached"):
            list(reading)


# Losses.


def test_offsets_that_were_removed_are_named(bootstrap: str, topic: str, client: Client) -> None:
    client.call(client.admin.inner.delete_records({TopicPartition(topic, 0): 3_000}))
    with pytest.raises(DataLossError, match=rf"offsets 10 to 3999 of partition {topic}-0 .* has offsets 3000 to 4999"):
        rows(bootstrap, topic, 10, 4_000)
    client.call(client.admin.inner.delete_records({TopicPartition(topic, 0): 5_000}))
    with pytest.raises(DataLossError, match=r"the log is empty, its next offset is 5000.*failOnDataLoss"):
        rows(bootstrap, topic, 10, 4_000)


@pytest.mark.parametrize(("start", "end", "first"), [(10, 4_000, 3_000), (2_999, 5_000, 3_000), (10, 3_000, 3_000)])
def test_without_fail_on_data_loss_reading_goes_on_at_what_is_there(
    bootstrap: str, topic: str, client: Client, caplog: pytest.LogCaptureFixture, start: int, end: int, first: int
) -> None:
    client.call(client.admin.inner.delete_records({TopicPartition(topic, 0): 3_000}))
    with caplog.at_level(logging.WARNING):
        assert rows(bootstrap, topic, start, end, fail_on_data_loss=False) == numbered(first, end)
    assert f"offsets {start} to {end - 1} of partition {topic}-0 cannot be read" in caplog.text


def test_a_range_beyond_the_end_of_the_log_is_a_loss(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges_module, "SHORT_LOG_WAIT_S", 0.6)
    with pytest.raises(DataLossError, match=r"offsets 6000 to 6009 .* has offsets 0 to 4999"):
        rows(bootstrap, topic, 6_000, 6_010)
    assert rows(bootstrap, topic, 6_000, 6_010, fail_on_data_loss=False) == []
    with pytest.raises(DataLossError, match=r"offsets 5000 to 5009 .* the log ends at offset 5000"):
        rows(bootstrap, topic, 4_990, 5_010)
    assert rows(bootstrap, topic, 4_990, 5_010, fail_on_data_loss=False) == numbered(4_990, 5_000)


def test_records_that_come_a_little_later_are_waited_for(bootstrap: str, topic: str, produce: Produce) -> None:
    later = threading.Timer(0.3, produce, (topic, [b"%d" % number for number in range(5_000, 5_010)]))
    later.start()
    assert rows(bootstrap, topic, 4_990, 5_010) == numbered(4_990, 5_010)
    later.join()


def test_a_topic_that_is_deleted_meanwhile_is_named(
    bootstrap: str, topic: str, client: Client, small_fetches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching_module, "UNKNOWN_TOPIC_GRACE_S", 0.3)
    reading = batches(bootstrap, topic, 0, 5_000)
    next(reading)
    client.admin.delete_topic(topic)
    with pytest.raises(MissingTopicError, match=rf"partition {topic}-0 .* it was deleted"):
        list(reading)
    assert rows(bootstrap, topic, 0, 5_000, fail_on_data_loss=False) == []


def test_a_topic_of_the_same_name_is_not_taken_for_the_one_that_was_deleted(
    bootstrap: str, topic: str, client: Client, produce: Produce, small_fetches: None
) -> None:
    reading = batches(bootstrap, topic, 0, 5_000)
    next(reading)
    client.admin.delete_topic(topic)
    produce(topic, [b"another"] * 5_000)
    with pytest.raises(DataLossError, match=rf"partition {topic}-0 .* another one was created by its name"):
        list(reading)


def test_a_topic_that_was_replaced_before_the_read_began_is_read(
    bootstrap: str, topic: str, client: Client, produce: Produce
) -> None:
    assert rows(bootstrap, topic, 0, 10) == numbered(0, 10)  # so that this process knows the old one
    client.admin.delete_topic(topic)
    produce(topic, [b"another"] * 20)
    assert rows(bootstrap, topic, 0, 2) == [(0, b"another"), (1, b"another")]
