"""Topics are kept in a lake, and come back from it in the order of their times."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.client.fetched import ConsumerRecord
from odradek.client.sync import Client
from odradek.records.record import Header, NewRecord
from odradek.spark.lake import read_table
from odradek.spark.pipelines import PipelineError, PipelineFileError
from tests.spark.conftest import Produce
from tests.spark.lake.lake_tools import KINDS, file_count
from tests.spark.ready.conftest import RunPipeline

Records = Callable[[str], list[ConsumerRecord]]
DAY_MS = 86_400_000
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def event(number: int, timestamp: int, **fields: object) -> NewRecord:
    value = json.dumps({"number": number, **fields}).encode()
    return NewRecord(value, f"key {number}".encode(), timestamp, (Header("trace", str(number).encode()),))


def archive(name: str, kind: str, more: str = "") -> str:
    return f"""
        [pipeline]
        name = "{name}"
        use = "archive"

        [archive]
        topics = ["{name}"]
        {kind} = "lake/events"
        {more}
    """


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_has_every_record_once_by_the_day_of_its_event(
    run_pipeline: RunPipeline,
    spark: SparkSession,
    produce: Produce,
    new_name: Callable[[], str],
    tmp_path: Path,
    kind: str,
) -> None:
    name = new_name()
    lake = tmp_path / "lake" / "events"
    toml = archive(name, kind, 'event_time = "at"\ncompact_every = 2')
    produce(name, [event(0, START_MS), event(1, START_MS, at="2026-02-03T23:30:00-01:00")], partitions=2, partition=0)
    run_pipeline(toml)
    produce(name, [event(2, START_MS, at="nonsense"), NewRecord(None, None, START_MS)], partition=1)
    run_pipeline(toml)
    run_pipeline(toml)
    rows = {(row.partition, row.offset): row for row in read_table(spark, kind, lake).collect()}
    assert sorted(rows) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {place: str(row.date) for place, row in rows.items()} == {
        (0, 0): "2026-01-01", (0, 1): "2026-02-04", (1, 0): "2026-01-01", (1, 1): "2026-01-01",
    }  # fmt: skip
    row = rows[0, 1]
    assert (row.topic, bytes(row.key), json.loads(row.value)["number"]) == (name, b"key 1", 1)
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("trace", b"1")]
    assert row.timestamp.timestamp() * 1000 == START_MS
    assert (rows[1, 1].key, rows[1, 1].value) == (None, None)
    assert file_count(kind, lake) == 2, "the second batch was followed by a compaction"


def test_the_time_of_an_event_may_be_a_number(
    run_pipeline: RunPipeline, spark: SparkSession, produce: Produce, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = new_name()
    produce(name, [event(0, START_MS, when={"s": 1.5, "ms": DAY_MS + 5}), event(1, START_MS)])
    for number, (field, unit) in enumerate([("s", "seconds"), ("ms", "milliseconds")]):
        more = f'event_time = "when.{field}"\nevent_time_unit = "{unit}"\nby_topic = true'
        toml = (
            archive(name, "parquet", more)
            .replace("lake/events", f"lake/{field}")
            .replace(f'name = "{name}"', f'name = "{name}-{number}"')
        )
        run_pipeline(toml)
    dates = {
        field: {row.offset: str(row.date) for row in spark.read.parquet(str(tmp_path / "lake" / field)).collect()}
        for field in ("s", "ms")
    }
    assert dates == {"s": {0: "1970-01-01", 1: "2026-01-01"}, "ms": {0: "1970-01-02", 1: "2026-01-01"}}
    assert (tmp_path / "lake" / "s" / f"topic={name}" / "date=1970-01-01").is_dir()


def replay(name: str, target: str, more: str = "", kind: str = "parquet") -> str:
    return f"""
        [pipeline]
        name = "{name}-back"
        use = "replay"
        checkpoint = "checkpoints/{target}"

        [replay]
        {kind} = "lake/events"
        to_topic = "{target}"
        {more}
    """


@pytest.fixture
def archived(run_pipeline: RunPipeline, produce: Produce, new_name: Callable[[], str]) -> str:
    """A topic of six records over 50 ms a day apart, out of order, and its archive in lake/events."""
    name = new_name()
    order = [3, 0, 5, 1, 4, 2]
    for partition in range(2):
        numbers = order[3 * partition : 3 * partition + 3]
        produce(name, [event(n, START_MS + 200 * n) for n in numbers], partitions=2, partition=partition)
    run_pipeline(archive(name, "parquet"))
    return name


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return [json.loads(record.value or b"{}")["number"] for record in records]


def test_a_replay_sends_records_in_the_order_of_their_times_and_once(
    run_pipeline: RunPipeline, records: Records, client: Client, archived: str
) -> None:
    target = f"{archived}.again"
    client.admin.create_topic(target)
    toml = replay(archived, target, "batch_rows = 4")
    run_pipeline(toml)
    run_pipeline(toml)
    found = records(target)
    assert numbers(found) == [0, 1, 2, 3, 4, 5]
    assert [record.timestamp for record in found] == [START_MS + 200 * n for n in range(6)]
    assert [record.key for record in found] == [f"key {n}".encode() for n in range(6)]
    assert found[3].headers == (Header("trace", b"3"),)


def test_a_replay_can_be_of_a_time_and_keep_partitions_but_not_times(
    run_pipeline: RunPipeline, records: Records, client: Client, archived: str
) -> None:
    target = f"{archived}.part"
    client.admin.create_topic(target, 2)
    before = int(time.time() * 1000)
    more = """
        since = "2026-01-01T00:00:00.200Z"
        until = "2026-01-01T00:00:01Z"
        keep_partitions = true
        keep_timestamps = false
    """
    run_pipeline(replay(archived, target, more))
    found = records(target)
    assert [(record.partition, number) for record, number in zip(found, numbers(found), strict=True)] == [
        (0, 3), (1, 1), (1, 2), (1, 4),
    ]  # fmt: skip
    assert all(record.timestamp >= before for record in found)


def test_a_replay_has_the_speed_that_it_is_told(
    run_pipeline: RunPipeline, records: Records, client: Client, archived: str
) -> None:
    target = f"{archived}.slow"
    client.admin.create_topic(target)
    outcome = run_pipeline(replay(archived, target, "speed = 0.5"))
    assert numbers(records(target)) == [0, 1, 2, 3, 4, 5]
    assert outcome.seconds >= 2, "one second of events at half the speed"


def test_a_replay_of_something_else_under_the_same_name_is_refused(
    run_pipeline: RunPipeline, client: Client, archived: str
) -> None:
    target = f"{archived}.other"
    client.admin.create_topic(target)
    run_pipeline(replay(archived, target, 'until = "2026-01-01T00:00:00.1Z"'))
    with pytest.raises((PipelineError, PipelineFileError), match="another replay"):
        run_pipeline(replay(archived, target))


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        (
            archive("x", "parquet").replace('parquet = "lake/events"', ""),
            "name one of parquet, delta, iceberg: none is",
        ),
        (archive("x", "parquet", 'delta = "lake/d"'), "parquet and delta are given"),
        (archive("x", "parquet", "table_options = { merge_schemas = true }"), "did you mean 'merge_schema'"),
        (archive("x", "parquet", 'event_time_unit = "hours"'), "'hours' is not one of text, seconds, milliseconds"),
        (replay("x", "y", "batch_rows = 0"), "at least one record"),
        (replay("x", "y", "speed = -1"), "above 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_with_their_place(
    run_pipeline: RunPipeline, toml: str, complaint: str
) -> None:
    with pytest.raises(PipelineFileError, match=complaint) as raised:
        run_pipeline(toml)
    assert all(problem.line for problem in raised.value.problems)
