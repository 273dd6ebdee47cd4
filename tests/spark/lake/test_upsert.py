"""A table that keeps one row for each key: the latest, whatever the order in which changes come."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.spark.lake import LakeError, compact, open_sink, read_table, vacuum
from odradek.spark.lake.errors import SchemaError
from tests.spark.lake.lake_tools import KINDS, file_count, plain_read

SCHEMA = "key STRING, city STRING, n BIGINT, gone BOOLEAN"
OPTIONS = {"order_by": "n", "deleted": "gone", "files_max": 1}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a lake" / "customers"


def changes(spark: SparkSession, *rows: tuple[str | None, str | None, int, bool | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA).coalesce(1)


def state(kind: str, path: Path) -> dict[str, tuple[str, int]]:
    """The rows by key, as the format's own library reads them."""
    rows = plain_read(kind, path).to_pylist()
    assert len({row["key"] for row in rows}) == len(rows), f"a key is there twice: {rows}"
    assert all(set(row) == {"key", "city", "n"} for row in rows)
    return {row["key"]: (row["city"], row["n"]) for row in rows}


def test_the_latest_row_of_each_key_stays(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", mode="upsert", keys=["key"], options=OPTIONS)
    write(changes(spark, ("a", "Bonn", 1, False), ("b", "Brno", 2, None), ("a", "Bern", 3, False)), 0)
    assert state(kind, path) == {"a": ("Bern", 3), "b": ("Brno", 2)}
    second = changes(spark, ("b", None, 6, True), ("a", "too late", 2, False), ("c", "Caen", 5, False))
    write(second, 1)
    assert state(kind, path) == {"a": ("Bern", 3), "c": ("Caen", 5)}
    write(second, 1)
    write(changes(spark, ("a", "Bonn", 1, False)), 0)
    assert state(kind, path) == {"a": ("Bern", 3), "c": ("Caen", 5)}
    write(changes(spark, ("a", "Bonn", 1, True), ("c", "Cork", 7, False)), 2)
    assert state(kind, path) == {"a": ("Bern", 3), "c": ("Cork", 7)}


def test_a_table_may_become_empty_and_full_again(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", mode="upsert", keys=["key"], options=OPTIONS)
    write(changes(spark, ("a", "Bonn", 1, False)), 0)
    write(changes(spark, ("a", None, 2, True)), 1)
    assert read_table(spark, kind, path).count() == 0
    write(changes(spark, ("a", "Bern", 3, False)), 2)
    assert state(kind, path) == {"a": ("Bern", 3)}


def test_any_order_of_changes_comes_to_what_a_dictionary_says(spark: SparkSession, kind: str, path: Path) -> None:
    chance = random.Random(7)
    write = open_sink(kind, path, sink_id="s", mode="upsert", keys=["key"], options=OPTIONS)
    expected: dict[str, tuple[str, int]] = {}
    number = 0
    for batch_id in range(4):
        rows = []
        for _ in range(chance.randrange(1, 12)):
            number += 1
            key, gone = chance.choice("abcdef"), chance.random() < 0.3
            rows.append((key, f"city {number}", number, gone))
            if gone:
                expected.pop(key, None)
            else:
                expected[key] = (f"city {number}", number)
        chance.shuffle(rows)
        for _ in range(chance.choice((1, 1, 2))):
            write(changes(spark, *rows), batch_id)
        assert state(kind, path) == expected


def test_new_columns_come_to_rows_that_were_there(spark: SparkSession, kind: str, path: Path) -> None:
    options = OPTIONS | {"merge_schema": "true"}
    write = open_sink(kind, path, sink_id="s", mode="upsert", keys=["key"], options=options)
    write(changes(spark, ("a", "Bonn", 1, False), ("b", "Brno", 1, False)), 0)
    write(changes(spark, ("a", "Bern", 2, False)).selectExpr("*", "5 AS stars"), 1)
    assert {row["key"]: row["stars"] for row in plain_read(kind, path).to_pylist()} == {"a": 5, "b": None}


def test_a_row_without_a_key_fails_the_batch(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", mode="upsert", keys=["key"], options=OPTIONS)
    write(changes(spark, ("a", "Bonn", 1, False)), 0)
    with pytest.raises(Exception, match="'key' is null"):
        write(changes(spark, (None, "Brno", 2, False)), 1)
    assert state(kind, path) == {"a": ("Bonn", 1)}


def test_columns_that_are_not_there_are_named(spark: SparkSession, kind: str, path: Path) -> None:
    frame = changes(spark, ("a", "Bonn", 1, False))
    for keys, options, complaint in (
        (["id"], OPTIONS, "keys names the column 'id'"),
        (["key"], OPTIONS | {"order_by": "at"}, "order_by names the column 'at'"),
        (["key"], OPTIONS | {"deleted": "dead"}, "deleted names the column 'dead'"),
        (["key"], OPTIONS | {"deleted": "city"}, "is no boolean"),
    ):
        with pytest.raises(SchemaError, match=complaint):
            open_sink(kind, path, sink_id="s", mode="upsert", keys=keys, options=options)(frame, 0)


def test_old_versions_go_and_the_current_one_stays(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", mode="upsert", keys=["key"], options=OPTIONS)
    for number in range(3):
        write(changes(spark, ("a", f"city {number}", number, False)), number)
    vacuum(kind, path, retain_hours=0)
    assert len(list(path.rglob("*.parquet"))) == file_count(kind, path) == 1
    assert state(kind, path) == {"a": ("city 2", 2)}
    write(changes(spark, ("a", "city 3", 3, False)), 3)
    assert state(kind, path) == {"a": ("city 3", 3)}


def test_a_parquet_table_is_for_one_mode(spark: SparkSession, path: Path) -> None:
    open_sink("parquet", path, sink_id="s")(changes(spark, ("a", "Bonn", 1, False)), 0)
    with pytest.raises(LakeError, match="one table cannot be both"):
        open_sink("parquet", path, sink_id="s", mode="upsert", keys=["key"], options={"order_by": "n"})(
            changes(spark, ("a", "Bonn", 1, False)), 1
        )


def test_a_delta_table_with_what_only_deltas_engines_read_is_refused(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = open_sink("delta", path, sink_id="s", mode="upsert", keys=["key"], options=OPTIONS)
    write(changes(spark, ("a", "Bonn", 1, False)), 0)
    monkeypatch.setattr("odradek.spark.lake.delta.READABLE_FEATURES", set())
    monkeypatch.setattr("odradek.spark.lake.delta.reader_features", lambda table: {"deletionVectors"})
    with pytest.raises(LakeError, match="uses deletionVectors"):
        write(changes(spark, ("a", "Bern", 2, False)), 1)


def test_compaction_keeps_the_state(spark: SparkSession, kind: str, path: Path) -> None:
    options = {"order_by": "n", "deleted": "gone"}
    write = open_sink(kind, path, sink_id="s", mode="upsert", keys=["key"], options=options)
    rows = [(f"k{number}", f"city {number}", number, False) for number in range(20)]
    write(spark.createDataFrame(rows, SCHEMA).repartition(4), 0)
    compact(kind, path)
    assert file_count(kind, path) == 1
    assert state(kind, path) == {key: (city, number) for key, city, number, _ in rows}
    write(changes(spark, ("k1", None, 50, True)), 1)
    assert len(state(kind, path)) == 19
