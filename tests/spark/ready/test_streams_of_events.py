"""Counts in windows, joins of two topics, dead letters and latest states: a few lines of TOML each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek.client.fetched import ConsumerRecord
from odradek.client.sync import Client
from odradek.records.record import Header, NewRecord
from odradek.spark.lake import read_table
from odradek.spark.pipelines import PipelineFileError
from tests.spark.conftest import Produce
from tests.spark.lake.lake_tools import KINDS, plain_read
from tests.spark.ready.conftest import RunPipeline

Records = Callable[[str], list[ConsumerRecord]]
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR_MS = 3_600_000


def event(at_seconds: float, key: str | None = None, **fields: object) -> NewRecord:
    value = json.dumps(fields).encode()
    return NewRecord(value, None if key is None else key.encode(), START_MS + int(at_seconds * 1000))


def values(records: list[ConsumerRecord]) -> list[Any]:
    return [json.loads(record.value or b"null") for record in records]


def test_windows_are_counted_when_they_are_over(
    run_pipeline: RunPipeline, produce: Produce, spark: SparkSession, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = new_name()
    cities = [(1, "Rom"), (2, "Rom"), (50, "Ulm"), (61, "Rom"), (3700, "Rom")]
    produce(name, [event(seconds, customer={"city": city}) for seconds, city in cities])
    toml = f"""
        [pipeline]
        name = "{name}"
        use = "windowed_counts"

        [windowed_counts]
        topics = ["{name}"]
        window = "1 minute"
        by = ["customer.city"]
        parquet = "counts"
    """
    run_pipeline(toml)
    rows = spark.read.parquet(str(tmp_path / "counts")).selectExpr(
        "date_format(start, 'mm:ss')", "customer_city", "count"
    )
    assert sorted(map(tuple, rows.collect())) == [("00:00", "Rom", 2), ("00:00", "Ulm", 1), ("01:00", "Rom", 1)]


def test_counts_may_be_told_whenever_they_change(
    run_pipeline: RunPipeline, produce: Produce, records: Records, client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    client.admin.create_topic(f"{name}.counts")
    toml = f"""
        [pipeline]
        name = "{name}"
        use = "windowed_counts"

        [windowed_counts]
        topics = ["{name}"]
        window = "1 minute"
        slide = "30 seconds"
        by = ["key"]
        emit = "updates"
        to_topic = "{name}.counts"
    """
    for seconds in (10, 40):
        produce(name, [event(seconds, "k")])
        run_pipeline(toml)
    counts = [(value["start"][11:19], value["key"], value["count"]) for value in values(records(f"{name}.counts"))]
    assert sorted(counts[:2]) == [("00:00:00", "k", 1), ("23:59:30", "k", 1)]
    assert sorted(counts[2:]) == [("00:00:00", "k", 2), ("00:00:30", "k", 1)]


def join(name: str, more: str) -> str:
    return f"""
        [pipeline]
        name = "{name}"
        use = "join"

        [join]
        left = "{name}.orders"
        right = "{name}.payments"
        left_schema = "id STRING, amount DOUBLE"
        right_schema = "order_id STRING, paid DOUBLE"
        on = "l.id = r.order_id"
        within = "10 minutes"
        to_topic = "{name}.joined"
        {more}
    """


def test_two_topics_are_joined_within_a_time(
    run_pipeline: RunPipeline, produce: Produce, records: Records, client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    client.admin.create_topic(f"{name}.joined")
    orders = [event(0, id="a", amount=1.5), event(0, id="b", amount=2), event(5, id="c", amount=3)]
    produce(f"{name}.orders", [*orders, "nonsense", event(2 * 3600, id="later", amount=0)])
    payments = [event(60, order_id="a", paid=1.5), event(660, order_id="b", paid=2)]
    produce(f"{name}.payments", [*payments, event(2 * 3600, order_id="x", paid=0)])
    run_pipeline(join(name, 'kind = "left"\nkey = "id"'))
    found = {record.key: json.loads(record.value or b"") for record in records(f"{name}.joined")}
    assert found == {
        b"a": {"id": "a", "amount": 1.5, "order_id": "a", "paid": 1.5},
        b"b": {"id": "b", "amount": 2.0},
        b"c": {"id": "c", "amount": 3.0},
    }, "b was paid too late, and c not at all"


def test_columns_of_both_sides_must_be_told_apart(run_pipeline: RunPipeline, new_name: Callable[[], str]) -> None:
    toml = join(new_name(), "").replace("order_id STRING", "id STRING")
    with pytest.raises(PipelineFileError, match="both sides have id"):
        run_pipeline(toml)


def dead_letters(name: str, more: str) -> str:
    return f"""
        [pipeline]
        name = "{name}"
        use = "dead_letters"

        [dead_letters]
        topic = "{name}"
        schema = "id BIGINT, amount DOUBLE, at TIMESTAMP, `odd name` ARRAY<INT>"
        required = ["id"]
        {more}
    """


BAD: list[tuple[bytes | None, str]] = [
    (None, "the value is null"),
    (b"\xff\xfe", "the value is no text in UTF-8"),
    (b"{nonsense", "the value is no JSON"),
    (b"", "the value is no JSON"),
    (b"[1]", "the value is no JSON object"),
    (b'"text"', "the value is no JSON object"),
    (b'{"id": "one", "amount": 2}', 'id is not BIGINT: "one"'),
    (b'{"id": 1, "amount": [], "at": "noon"}', 'amount is not DOUBLE: []; at is not TIMESTAMP: "noon"'),
    (b'{"id": 1, "odd name": {"x": 1}}', 'odd name is not ARRAY<INT>: {"x":1}'),
    (b'{"amount": 2}', "the column id is missing or null"),
    (b'{"id": null}', "the column id is missing or null"),
]
GOOD = [b'{"id": 1, "amount": 2.5, "at": "2026-01-01T00:00:00Z", "odd name": [1]}', b'{"id": 2, "more": true}']


def test_records_that_do_not_fit_become_dead_letters_with_the_reason(
    run_pipeline: RunPipeline, produce: Produce, records: Records, client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    for topic in (f"{name}.good", f"{name}.dlq"):
        client.admin.create_topic(topic)
    own = (Header("trace", b"1"), Header("empty", None))
    sent = [NewRecord(value, b"k", START_MS, own) for value in (*(value for value, _ in BAD), *GOOD)]
    produce(name, sent)
    toml = dead_letters(name, f'to_topic = "{name}.good"')
    run_pipeline(toml)
    run_pipeline(toml)
    assert [(record.key, record.value, record.headers) for record in records(f"{name}.good")] == [
        (b"k", value, own) for value in GOOD
    ]
    letters = records(f"{name}.dlq")
    assert [(letter.key, letter.value, letter.headers[:2]) for letter in letters] == [(b"k", v, own) for v, _ in BAD]
    reasons = [dict(letter.headers)["dlq.reason"] for letter in letters]
    assert [(reason or b"").decode() for reason in reasons] == [reason for _, reason in BAD]
    headers = dict(letters[2].headers)
    assert headers["dlq.topic"] == name.encode()
    assert (headers["dlq.partition"], headers["dlq.offset"]) == (b"0", b"2")
    assert headers["dlq.timestamp"] == b"2026-01-01 00:00:00"


def test_records_that_fit_may_go_to_a_table(
    run_pipeline: RunPipeline, produce: Produce, spark: SparkSession, client: Client, new_name: Callable[[], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    name = new_name()
    client.admin.create_topic(f"{name}.refused")
    produce(name, [GOOD[0], b"nonsense", GOOD[1]])
    run_pipeline(dead_letters(name, f'dead_letters = "{name}.refused"\ndelta = "good"'))
    rows = {row._offset: row for row in read_table(spark, "delta", tmp_path / "good").collect()}
    assert sorted(rows) == [0, 2]
    assert (rows[0].id, rows[0].amount, rows[0]["odd name"]) == (1, 2.5, [1])


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ('required = ["x"]', "no column 'x'"),
        ('dead_letters = "{name}"', "never come to an end"),
        ("", "name one of to_topic, parquet, delta, iceberg: none is given"),
    ],
)
def test_a_pipeline_of_dead_letters_that_makes_no_sense_is_refused(
    run_pipeline: RunPipeline, new_name: Callable[[], str], more: str, complaint: str
) -> None:
    name = new_name()
    toml = dead_letters(name, more.format(name=name))
    if "required" in more:
        toml = toml.replace('required = ["id"]', "").replace(more, f'{more}\nto_topic = "t"')
    elif more:
        toml += 'to_topic = "t"'
    with pytest.raises(PipelineFileError, match=complaint):
        run_pipeline(toml)


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_of_changes_becomes_a_table_of_the_latest_state(
    run_pipeline: RunPipeline, produce: Produce, new_name: Callable[[], str], tmp_path: Path, kind: str
) -> None:
    name = new_name()
    toml = f"""
        [pipeline]
        name = "{name}"
        use = "latest_state"

        [latest_state]
        topic = "{name}"
        schema = "name STRING, city STRING"
        {kind} = "lake/customers"
    """
    gone = NewRecord(None, b"b", START_MS)
    produce(
        name, [event(0, "a", name="Ada", city="Rom"), event(0, "b", name="Bob"), event(0, "a", name="Ada", city="Ulm")]
    )
    run_pipeline(toml)
    produce(name, [event(0, "c", name="Cyd"), gone, event(0, "c", name="Cyd", city="Bari"), gone])
    run_pipeline(toml)
    run_pipeline(toml)
    rows = {row["key"]: (row["name"], row["city"], row["_offset"]) for row in _rows(kind, tmp_path)}
    assert rows == {"a": ("Ada", "Ulm", 2), "c": ("Cyd", "Bari", 5)}


def _rows(kind: str, tmp_path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plain_read(kind, tmp_path / "lake" / "customers").to_pylist()
    return found


def test_changes_may_come_in_an_envelope_with_keys_of_json_and_an_order_of_their_own(
    run_pipeline: RunPipeline, produce: Produce, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = new_name()
    toml = f"""
        [pipeline]
        name = "{name}"
        use = "latest_state"

        [latest_state]
        topic = "{name}"
        key_schema = "id BIGINT"
        schema = "id BIGINT, city STRING, lsn BIGINT"
        envelope = "debezium"
        order = "lsn"
        deletes = "keep"
        parquet = "lake/customers"
    """

    def change(number: int, city: str, lsn: int, op: str = "u") -> NewRecord:
        value = {"op": op, "before": None, "after": {"id": number, "city": city, "lsn": lsn}}
        return NewRecord(json.dumps(value).encode(), json.dumps({"id": number}).encode(), START_MS)

    produce(name, [change(1, "Rom", 10, "c"), change(2, "Ulm", 11, "c"), change(1, "Bari", 14)])
    run_pipeline(toml)
    produce(name, [change(1, "too late", 12), change(2, "Ulm", 15, "d"), change(2, "too late", 13)])
    run_pipeline(toml)
    rows = {row["id"]: (row["city"], row["_deleted"]) for row in _rows("parquet", tmp_path)}
    assert rows == {1: ("Bari", False), 2: ("Ulm", True)}


def test_a_change_that_is_no_such_json_fails_the_pipeline(
    run_pipeline: RunPipeline, produce: Produce, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = new_name()
    produce(name, [NewRecord(b"{nonsense", b"a", START_MS), NewRecord(b"{}", b"b", START_MS)])
    outcome = run_pipeline(
        f"""
        [pipeline]
        name = "{name}"
        use = "latest_state"

        [latest_state]
        topic = "{name}"
        schema = "city STRING"
        parquet = "lake/customers"
    """,
        fails=True,
    )
    assert outcome.failure is not None
    assert f"the value of {name}-0 offset 0 is not as the schema says: {{nonsense" in outcome.failure
