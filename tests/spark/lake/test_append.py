"""Batches are added to a table once, whatever is replayed, and everyone can read what is there."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odradek.spark.lake import LakeError, open_sink, read_table
from odradek.spark.lake.errors import SchemaError
from tests.spark.lake.lake_tools import KINDS, batch, file_count, iceberg_table, ids, plain_read


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder with what file names can have in them."""
    return tmp_path / "a lake [1]" / "orders"


def test_a_batch_that_is_replayed_is_there_once(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", partition_by=["date"])
    write(batch(spark, 0, 10), 0)
    write(batch(spark, 0, 10), 0)
    write(batch(spark, 10, 20), 1)
    write(batch(spark, 0, 10), 0)
    write(batch(spark, 10, 20), 1)
    assert ids(kind, path) == list(range(20))
    assert list(path.parent.glob(".orders*")) == []


def test_everyone_reads_the_same_rows_and_types(spark: SparkSession, kind: str, path: Path) -> None:
    rows = batch(spark, 0, 4, "id % 2 = 0 AS even", "CAST(name AS BINARY) AS raw", "array(named_struct('k', 'v')) AS l")
    open_sink(kind, path, sink_id="s", partition_by=["date"])(rows, 0)
    expected = sorted(map(tuple, rows.collect()))
    table = plain_read(kind, path).select(rows.columns).to_pylist()
    assert sorted(row["id"] for row in table) == [0, 1, 2, 3]
    assert {row["raw"] for row in table} == {b"name 0", b"name 1", b"name 2", b"name 3"}
    assert {row["l"][0]["k"] for row in table} == {"v"}
    found = read_table(spark, kind, path)
    assert found.schema["time"].dataType.simpleString() == "timestamp"
    assert sorted(map(tuple, found.select(rows.columns).collect())) == expected
    if kind == "parquet":
        location = str(path).replace("[1]", r"\[1\]")  # or Spark takes it for a pattern
        assert sorted(map(tuple, spark.read.parquet(location).select(rows.columns).collect())) == expected


def test_times_are_microseconds_with_statistics(spark: SparkSession, kind: str, path: Path) -> None:
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    open_sink(kind, path, sink_id="s")(batch(spark, 0, 4), 0)
    (file,) = path.rglob("*.parquet")
    footer = pq.read_metadata(file)
    column = footer.row_group(0).column(footer.schema.names.index("time"))
    assert str(footer.schema.to_arrow_schema().field("time").type) == "timestamp[us, tz=UTC]"
    assert column.statistics.max.microsecond == 3
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before


def test_two_sinks_write_to_one_table_at_once(spark: SparkSession, kind: str, path: Path) -> None:
    failures: list[BaseException] = []

    def run(sink: int) -> None:
        write = open_sink(kind, path, sink_id=f"s{sink}", partition_by=["date"])
        try:
            for number in range(3):
                start = 100 * sink + 10 * number
                write(batch(spark, start, start + 10), number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(sink,)) for sink in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ids(kind, path) == [*range(30), *range(100, 130)]


def test_two_processes_that_take_themselves_for_one_sink_write_a_batch_once(
    spark: SparkSession, kind: str, path: Path
) -> None:
    write = open_sink(kind, path, sink_id="s")
    write(batch(spark, 0, 1), 0)
    threads = [threading.Thread(target=write, args=(batch(spark, 1, 11), 1)) for _ in range(3)]
    # One of them may find its files gone, which the other has taken for those of an attempt that died.
    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = hook
    write(batch(spark, 1, 11), 1)
    assert ids(kind, path) == list(range(11))


def test_an_empty_batch_leaves_the_table_readable(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", partition_by=["date"])
    write(batch(spark, 0, 0), 0)
    write(batch(spark, 0, 2), 1)
    write(batch(spark, 0, 0), 2)
    assert ids(kind, path) == [0, 1]
    assert file_count(kind, path) == 2


def test_columns_that_a_batch_does_not_have_are_null(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s")
    write(batch(spark, 0, 2), 0)
    write(batch(spark, 2, 4).drop("name").select("time", "date", "id"), 1)
    names = dict(zip(*(plain_read(kind, path).column(name).to_pylist() for name in ("id", "name")), strict=True))
    assert names == {0: "name 0", 1: "name 1", 2: None, 3: None}


def test_new_columns_are_refused_or_added_as_is_wished(spark: SparkSession, kind: str, path: Path) -> None:
    open_sink(kind, path, sink_id="s", partition_by=["date"])(batch(spark, 0, 2), 0)
    wider = batch(spark, 2, 4, "id * 2.5D AS price", "named_struct('a', id) AS extra")
    with pytest.raises(SchemaError, match=r"price \(double\), extra .*merge_schema = true"):
        open_sink(kind, path, sink_id="s", partition_by=["date"])(wider, 1)
    assert ids(kind, path) == [0, 1]
    write = open_sink(kind, path, sink_id="s", partition_by=["date"], options={"merge_schema": True})
    write(wider, 1)
    write(batch(spark, 4, 6), 2)
    rows = {row.id: (row.price, row.extra) for row in read_table(spark, kind, path).collect()}
    assert {number: price for number, (price, _) in rows.items()} == {
        0: None, 1: None, 2: 5.0, 3: 7.5, 4: None, 5: None,
    }  # fmt: skip
    assert rows[3][1].a == 3
    if kind != "parquet":  # whose plain readers take the columns of any one file
        assert {row["id"]: row["price"] for row in plain_read(kind, path).to_pylist()}[3] == 7.5


@pytest.mark.parametrize(
    ("more", "complaint"),
    [("CAST(id AS INT) AS name", "name is string there and int here"), ("1 AS Name", "differ only in case")],
)
def test_a_column_of_another_type_or_of_almost_the_same_name_is_refused(
    spark: SparkSession, kind: str, path: Path, more: str, complaint: str
) -> None:
    open_sink(kind, path, sink_id="s")(batch(spark, 0, 2), 0)
    frame = batch(spark, 2, 4)
    changed = frame.drop("name").selectExpr("*", more)
    with pytest.raises(SchemaError, match=complaint):
        open_sink(kind, path, sink_id="s", options={"merge_schema": "true"})(changed, 1)
    assert ids(kind, path) == [0, 1]


def test_other_partitions_than_the_table_has_are_refused(spark: SparkSession, kind: str, path: Path) -> None:
    open_sink(kind, path, sink_id="s", partition_by=["date"])(batch(spark, 0, 2), 0)
    with pytest.raises(LakeError, match="partitioned by"):
        open_sink(kind, path, sink_id="s")(batch(spark, 2, 4), 1)
    with pytest.raises(SchemaError, match="partition_by names the column 'day'"):
        open_sink(kind, path / "other", sink_id="s", partition_by=["day"])(batch(spark, 2, 4), 0)


def test_partitions_may_have_any_value(spark: SparkSession, kind: str, path: Path) -> None:
    values = ["plain", "a/b", "a=b", "50%", "#1?", "Köln", "a b:c", "x+y&z", None]
    rows = spark.createDataFrame([(number, value) for number, value in enumerate(values)], "id BIGINT, city STRING")
    open_sink(kind, path, sink_id="s", partition_by=["city"])(rows.coalesce(1), 0)
    assert {row.id: row.city for row in read_table(spark, kind, path).collect()} == dict(enumerate(values))
    found = {row["id"]: row["city"] for row in plain_read(kind, path).select(["id", "city"]).to_pylist()}
    assert found == dict(enumerate(values))
    if kind == "delta":  # as Delta's protocol wants it: a URI of the path, which has the escapes of Hive in it
        logged = [json.loads(line) for log in path.glob("_delta_log/*.json") for line in log.open(encoding="utf-8")]
        assert any(action["add"]["path"].startswith("city=50%2525/") for action in logged if "add" in action)


def test_a_folder_with_files_of_others_is_refused(spark: SparkSession, kind: str, path: Path) -> None:
    path.mkdir(parents=True)
    pq.write_table(batch(spark, 0, 2).toArrow(), path / "theirs.parquet")
    with pytest.raises(LakeError, match="folder of its own"):
        open_sink(kind, path, sink_id="s")(batch(spark, 2, 4), 0)
    assert [file.name for file in path.iterdir()] == ["theirs.parquet"]


def test_an_iceberg_snapshot_says_which_batch_it_is(spark: SparkSession, path: Path) -> None:
    open_sink("iceberg", path, sink_id="s", partition_by=["date"])(batch(spark, 0, 4), 7)
    table = iceberg_table(path)
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert snapshot.summary["odradek.sink"] == "s"
    assert snapshot.summary["odradek.batch"] == "7"
    assert table.properties["odradek.sink.s"] == "7"
    assert len(list(table.scan(row_filter="date = '2026-01-02'").plan_files())) == 1


def test_an_iceberg_table_may_be_in_another_catalog(spark: SparkSession, tmp_path: Path) -> None:
    options = {"table": "shop.orders", "catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path / 'other.db'}"}
    open_sink("iceberg", tmp_path / "lake" / "x", sink_id="s", options=options)(batch(spark, 0, 4), 0)
    assert read_table(spark, "iceberg", tmp_path / "lake" / "x", options=options).count() == 4
    assert not (tmp_path / "lake" / "catalog.db").exists()


def test_rows_that_executors_wrote_elsewhere_are_missed(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "odradek.spark.lake.staging.spark_location", lambda folder: f"file://{folder}-of-another-machine"
    )
    with pytest.raises(LakeError, match=r"executors wrote 4 rows .* but the driver finds 0"):
        open_sink("parquet", path, sink_id="s")(batch(spark, 0, 4), 0)
    assert ids("parquet", path) == []
