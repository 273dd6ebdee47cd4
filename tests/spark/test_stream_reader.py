"""The driver's side of a streaming read, with a real broker and without Spark: which offsets, and what is lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from odradek.client.sync import Client
from odradek.clock import ManualClock
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.spark.batch_reader import OdradekBatchReader, RangePartition
from odradek.spark.errors import DataLossError, MissingTopicError, NoMatchingOffsetError, OptionError
from odradek.spark.offsets import OffsetRange
from odradek.spark.options import Mode, ReadOptions
from odradek.spark.stream_reader import OdradekStreamReader
from tests.spark.conftest import Produce

ALL = ReadAllAvailable()
MakeReader = Callable[..., OdradekStreamReader]


@pytest.fixture
def reader(bootstrap: str) -> MakeReader:
    """A reader as Spark makes it, anew in each process."""

    def make(clock: ManualClock | None = None, **options: str) -> OdradekStreamReader:
        given = {"kafka.bootstrap.servers": bootstrap, "fetchOffset.retryIntervalMs": "1"}
        return OdradekStreamReader(ReadOptions.parse(given | dotted(options), Mode.STREAM), clock)

    return make


class MakeTopic(Protocol):
    """Make a topic, with some records in its first partition."""

    def __call__(self, records: int = 0, *, name: str | None = None, partitions: int = 1) -> str: ...


@pytest.fixture
def make_topic(client: Client, produce: Produce, new_name: Callable[[], str]) -> MakeTopic:
    def make(records: int = 0, *, name: str | None = None, partitions: int = 1) -> str:
        topic = new_name() if name is None else name
        client.admin.create_topic(topic, partitions)
        if records:
            produce(topic, ["x"] * records, partition=0)
        return topic

    return make


@pytest.fixture
def batch(bootstrap: str) -> Callable[..., list[OffsetRange]]:
    """What a batch read plans."""

    def plan(**options: str) -> list[OffsetRange]:
        given = {"kafka.bootstrap.servers": bootstrap} | dotted(options)
        return wanted(OdradekBatchReader(ReadOptions.parse(given, Mode.BATCH)).partitions())

    return plan


def dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in options.items()}


def wanted(partitions: Any) -> list[OffsetRange]:
    assert all(isinstance(partition, RangePartition) for partition in partitions)
    return [partition.wanted for partition in partitions]


def topics(document: dict[str, Any]) -> dict[str, Any]:
    """An offset without what we add to it."""
    return {name: value for name, value in document.items() if not name.startswith("$")}


def step(reader: OdradekStreamReader, start: dict[str, Any], limit: ReadLimit = ALL) -> tuple[Any, list[OffsetRange]]:
    """A batch as Spark plans it, with offsets that have been through the checkpoint."""
    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
    return end, wanted(reader.partitions(start, end))


# Where a query starts.


def test_a_replay_of_the_first_batch_starts_where_it_did_though_latest_has_moved(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(5)
    first = reader(subscribe=topic)
    start = first.initialOffset()
    produce(topic, ["seen"] * 3)
    assert first.initialOffset() == start
    end, ranges = step(first, start)
    assert ranges == [OffsetRange(topic, 0, 5, 8)]
    produce(topic, ["later"] * 4)
    again = reader(subscribe=topic)
    assert topics(again.initialOffset()) == {topic: {"0": 12}}
    assert wanted(again.partitions(again.initialOffset(), end)) == ranges
    assert step(again, end)[1] == [OffsetRange(topic, 0, 8, 12)]


def test_a_first_batch_without_records_loses_nothing(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(1)
    one = reader(subscribe=topic)
    start = one.initialOffset()
    end, ranges = step(one, start)
    assert (end, ranges) == (start, [])
    produce(topic, ["new"])
    another = reader(subscribe=topic)
    end, ranges = step(another, start)
    assert ranges == [OffsetRange(topic, 0, 1, 2)]
    assert wanted(reader(subscribe=topic).partitions(start, end)) == ranges


def test_a_query_may_start_anywhere(reader: MakeReader, make_topic: MakeTopic, produce: Produce) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        produce(topic, ["x"] * 10, partition=partition)
    given = json.dumps({topic: {"0": 4, "1": -1, "2": -2}})
    assert topics(reader(subscribe=topic, startingOffsets=given).initialOffset()) == {topic: {"0": 4, "1": 10, "2": 0}}
    assert topics(reader(assign=f'{{"{topic}": [2]}}', startingOffsets="earliest").initialOffset()) == {topic: {"2": 0}}


def test_a_start_has_to_name_every_partition(reader: MakeReader, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    with pytest.raises(OptionError, match=f"startingOffsets.*Named: {topic}-0. Read: {topic}-0, {topic}-1"):
        reader(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 4}})).initialOffset()
    with pytest.raises(OptionError, match=r"startingOffsetsByTimestamp.*Named: none"):
        reader(subscribe=topic, startingOffsetsByTimestamp="{}").initialOffset()


def test_what_does_not_exist_is_named(reader: MakeReader, make_topic: MakeTopic, new_name: Callable[[], str]) -> None:
    topic, missing = make_topic(1), new_name()
    with pytest.raises(MissingTopicError, match=f"not found.*{missing}.*UNKNOWN_TOPIC_OR_PARTITION"):
        reader(subscribe=f"{topic},{missing}").initialOffset()
    with pytest.raises(MissingTopicError, match=f"{topic}-7"):
        reader(assign=json.dumps({topic: [0, 7]})).initialOffset()
    start = reader(subscribe=topic).initialOffset()
    with pytest.raises(MissingTopicError, match=missing):  # somebody has added it to a query that runs already
        reader(subscribe=f"{topic},{missing}").latestOffset(start, ALL)


# Times.


def test_a_start_by_time_is_the_first_record_of_that_time_or_after(
    reader: MakeReader, batch: Callable[..., list[OffsetRange]], make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    for partition in range(2):
        produce(topic, [NewRecord(b"x", timestamp=1000 + 10 * n) for n in range(5)], partition=partition)
    at = {"subscribe": topic, "startingTimestamp": "1015"}
    assert topics(reader(**at).initialOffset()) == {topic: {"0": 2, "1": 2}}
    both = json.dumps({topic: {"0": 1001, "1": 1030}})
    given = reader(subscribe=topic, startingOffsetsByTimestamp=both).initialOffset()
    assert topics(given) == {topic: {"0": 1, "1": 3}}
    assert batch(**at, endingTimestamp="1040") == [OffsetRange(topic, n, 2, 4) for n in range(2)]
    assert batch(**at, endingTimestamp="9999") == [OffsetRange(topic, n, 2, 5) for n in range(2)]
    late = {"subscribe": topic, "startingTimestamp": "9999"}
    with pytest.raises(NoMatchingOffsetError, match=f"startingTimestamp: {topic}-0 has no record at or after 9999"):
        reader(**late).initialOffset()
    lenient = reader(**late, startingOffsetsByTimestampStrategy="latest").initialOffset()
    assert topics(lenient) == {topic: {"0": 5, "1": 5}}


def test_a_batch_reads_between_two_offsets_and_not_backwards(
    batch: Callable[..., list[OffsetRange]], make_topic: MakeTopic
) -> None:
    topic = make_topic(10)
    ends = {"startingOffsets": json.dumps({topic: {"0": 6}}), "endingOffsets": json.dumps({topic: {"0": 2}})}
    with pytest.raises(OptionError, match=f"{topic}-0 is to be read from offset 6 to 2"):
        batch(subscribe=topic, **ends)
    assert batch(subscribe=topic, failOnDataLoss="false", **ends) == []
    assert batch(subscribe=topic, startingOffsets=ends["startingOffsets"]) == [OffsetRange(topic, 0, 6, 10)]
    assert batch(subscribe=topic, minPartitions="2") == [OffsetRange(topic, 0, 0, 5), OffsetRange(topic, 0, 5, 10)]
    assert len(batch(subscribe=topic, maxRecordsPerPartition="3")) == 4


# Limits.


def test_a_batch_takes_no_more_than_it_may(reader: MakeReader, make_topic: MakeTopic, produce: Produce) -> None:
    topic = make_topic(partitions=2)
    produce(topic, ["x"] * 30, partition=0)
    produce(topic, ["x"] * 10, partition=1)
    one = reader(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    end, ranges = step(one, one.initialOffset(), limit)
    assert ranges == [OffsetRange(topic, 0, 0, 15), OffsetRange(topic, 1, 0, 5)]
    assert topics(one.reportLatestOffset() or {}) == {topic: {"0": 30, "1": 10}}
    assert step(one, end, ReadAllAvailable())[1] == [OffsetRange(topic, 0, 15, 30), OffsetRange(topic, 1, 5, 10)]


def test_a_batch_waits_for_enough_but_not_for_ever(
    reader: MakeReader, batch: Callable[..., list[OffsetRange]], make_topic: MakeTopic, produce: Produce
) -> None:
    topic, clock = make_topic(1), ManualClock()
    one = reader(clock, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    limit = one.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    end, ranges = step(one, one.initialOffset(), limit)
    assert ranges == [OffsetRange(topic, 0, 0, 1)]  # the first batch does not wait
    produce(topic, ["x"] * 9)
    clock.advance(59_999)
    assert one.latestOffset(end, limit) == end
    clock.advance(1)
    end, ranges = step(one, end, limit)
    assert ranges == [OffsetRange(topic, 0, 1, 10)]
    produce(topic, ["x"] * 10)
    end, ranges = step(one, end, limit)
    assert ranges == [OffsetRange(topic, 0, 10, 20)]
    produce(topic, ["x"])
    assert one.latestOffset(end, limit) == end
    assert step(one, end, ALL)[1] == [OffsetRange(topic, 0, 20, 21)]  # Trigger.Once takes what there is


def test_a_query_that_ends_reads_what_was_there_and_waits_for_no_more(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(5)
    limits = {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "4"}
    one = reader(subscribe=topic, startingOffsets="earliest", **limits)
    one.prepareForTriggerAvailableNow()
    end, ranges = step(one, one.initialOffset(), ReadMaxRows(4))
    assert ranges == [OffsetRange(topic, 0, 0, 4)]
    produce(topic, ["late"] * 10)
    end, ranges = step(one, end, ReadMaxRows(4))
    assert ranges == [OffsetRange(topic, 0, 4, 5)]
    assert one.latestOffset(end, ReadMaxRows(4)) == end


# What changes under a query.


def test_new_partitions_and_new_topics_are_read_from_their_first_record(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    prefix = new_name()
    make_topic(1, name=f"{prefix}-a")
    one = reader(subscribePattern=f"{prefix}-.")
    start = one.initialOffset()
    client.call(client.admin.inner.add_partitions(f"{prefix}-a", 2))
    produce(f"{prefix}-a", ["x"] * 3, partition=1)
    make_topic(2, name=f"{prefix}-b")
    make_topic(1, name=f"{prefix}-other")  # the pattern does not match all of the name
    end, ranges = step(one, start)
    assert ranges == [OffsetRange(f"{prefix}-a", 1, 0, 3), OffsetRange(f"{prefix}-b", 0, 0, 2)]
    assert step(one, end) == (end, [])


def test_a_new_partition_that_has_lost_its_first_records_is_a_loss(
    reader: MakeReader, make_topic: MakeTopic, client: Client, new_name: Callable[[], str]
) -> None:
    prefix = new_name()
    make_topic(1, name=f"{prefix}-a")
    start = reader(subscribePattern=f"{prefix}-.").initialOffset()
    make_topic(5, name=f"{prefix}-b")
    client.call(client.admin.inner.delete_records({TopicPartition(f"{prefix}-b", 0): 2}))
    with pytest.raises(DataLossError, match=f"{prefix}-b-0 is new to the query, and its first record has offset 2"):
        reader(subscribePattern=f"{prefix}-.").latestOffset(start, ALL)
    lenient = reader(subscribePattern=f"{prefix}-.", failOnDataLoss="false")
    assert step(lenient, start)[1] == [OffsetRange(f"{prefix}-b", 0, 2, 5)]


def test_a_deleted_topic_is_named_and_the_others_are_read_on_if_that_may_happen(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    kept, gone = make_topic(1), make_topic(1)
    both = {"subscribe": f"{kept},{gone}"}
    one, lenient = reader(**both), reader(**both, failOnDataLoss="false")
    start = one.initialOffset()
    client.admin.delete_topic(gone)
    produce(kept, ["y"])
    with pytest.raises(DataLossError, match=f"topic {gone} is gone.*failOnDataLoss"):
        one.latestOffset(start, ALL)
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        end, ranges = step(lenient, start)
    assert ranges == [OffsetRange(kept, 0, 1, 2)]
    assert topics(end) == {kept: {"0": 2}}
    assert f"topic {gone} is gone" in caplog.text
    make_topic(1, name=gone)
    assert step(lenient, end)[1] == [OffsetRange(gone, 0, 0, 1)]


def test_a_topic_that_was_created_again_is_recognised_though_it_has_as_many_records(
    reader: MakeReader, make_topic: MakeTopic, client: Client
) -> None:
    topic = make_topic(3)
    one, lenient = reader(subscribe=topic), reader(subscribe=topic, failOnDataLoss="false")
    start = one.initialOffset()
    client.admin.delete_topic(topic)
    make_topic(7, name=topic)
    with pytest.raises(DataLossError, match=f"topic {topic} was deleted and created again; .* offset 3 of {topic}-0"):
        one.latestOffset(start, ALL)
    end, ranges = step(lenient, start)
    assert ranges == [OffsetRange(topic, 0, 0, 7)]
    assert step(one, end) == (end, [])


def test_a_partition_that_ends_before_the_position_is_a_loss_and_is_asked_again_first(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(3)
    given = json.dumps({topic: {"0": 9}})
    one = reader(subscribe=topic, startingOffsets=given)
    start = one.initialOffset()
    with pytest.raises(DataLossError, match=f"{topic}-0 ends at offset 3, and the query was to go on at 9"):
        one.latestOffset(start, ALL)
    lenient = reader(subscribe=topic, startingOffsets=given, failOnDataLoss="false")
    end, ranges = step(lenient, start)
    assert (topics(end), ranges) == ({topic: {"0": 3}}, [])
    pauses: list[float] = []

    def meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        produce(topic, ["y"] * 10)

    monkeypatch.setattr("odradek.spark.stream_reader.time.sleep", meanwhile)
    end, ranges = step(one, start)
    assert (ranges, pauses) == ([OffsetRange(topic, 0, 9, 13)], [0.001])


# For those who look on.


def test_what_is_done_is_committed_to_the_group(
    reader: MakeReader, make_topic: MakeTopic, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    topic, group = make_topic(4), new_name()
    one = reader(subscribe=topic, startingOffsets="earliest", kafka_group_id=group)
    end, _ = step(one, one.initialOffset())
    assert client.admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 0
    one.latestOffset(end, ALL)
    assert client.admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 4
    produce(topic, ["x"])
    later, _ = step(one, end)
    one.commit(later)
    assert client.admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 5


def test_a_group_that_takes_no_commits_does_not_hold_the_query_up(
    reader: MakeReader,
    make_topic: MakeTopic,
    client: Client,
    new_name: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group = make_topic(4), new_name()
    with client.consumer(topic, group=group) as member:
        assert member.poll()
        one = reader(subscribe=topic, startingOffsets="earliest", kafka_group_id=group)
        with caplog.at_level(logging.WARNING, "odradek.spark"):
            assert step(one, one.initialOffset())[1] == [OffsetRange(topic, 0, 0, 4)]
    assert f"could not be committed to group {group}" in caplog.text
