"""What becomes of records and files before any transform sees them."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from odradek.spark.pipelines import Pipeline, PipelineError
from odradek.spark.pipelines.frames import Frames, decoded, empty, isolated, struct_of
from odradek.spark.pipelines.model import TopicSource
from odradek.spark.pipelines.runner import Runner, Watcher

VALUES = [b'{"id": "a", "n": 1}', b'{"id": "b"}', b'{"id": "c", "n": "x"}', b"{half", None, b"[]"]


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    rows = [(f"k{number}".encode(), bytes(value) if value else None) for number, value in enumerate(VALUES)]
    return spark.createDataFrame(rows, "key BINARY, value BINARY").coalesce(1)


def source(format_name: str, schema: str | None = None, **fields: object) -> TopicSource:
    given = {"name": "a", "strategy": "subscribe", "subscribed": "a", "format": format_name, "schema": schema}
    return TopicSource(**(given | fields))  # type: ignore[arg-type]


def test_json_is_parsed_and_what_is_malformed_is_null_or_dropped_or_fails(records: DataFrame) -> None:
    schema = "id STRING, n INT"
    found = decoded(source("json", schema, metadata=("key",)), records).collect()
    assert [row["_key"] for row in found] == [f"k{number}" for number in range(len(VALUES))]
    assert found[0] == Row(id="a", n=1, _key="k0")
    assert [(row["id"], row["n"]) for row in found[2:5]] == [("c", None), (None, None), (None, None)]
    kept = decoded(source("json", schema, malformed="drop", metadata=("key",)), records)
    assert kept.columns == ["id", "n", "_key"]
    assert [tuple(row) for row in kept.collect()] == [("a", 1, "k0"), ("b", None, "k1")]
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        decoded(source("json", schema, malformed="fail"), records).collect()


def test_csv_and_text_are_parsed(spark: SparkSession) -> None:
    lines = spark.createDataFrame([("a;01.02.2026",), ("b;x",)], "value STRING").coalesce(1)
    schema, parsing = "id STRING, day DATE", {"sep": ";", "dateFormat": "dd.MM.yyyy"}
    found = decoded(source("csv", schema, parsing=parsing, malformed="drop"), lines).collect()
    assert [(row["id"], str(row["day"])) for row in found] == [("a", "2026-02-01")]
    text = decoded(source("string"), lines)
    assert [row["value"] for row in text.collect()] == ["a;01.02.2026", "b;x"]
    assert decoded(source("raw"), lines) is lines


def test_json_is_parsed_once(records: DataFrame) -> None:
    plan = decoded(source("json", "id STRING, n INT", malformed="drop"), records)._jdf.queryExecution().toString()
    assert plan.split("== Physical Plan ==")[1].count("from_json") == 1


def test_an_empty_frame_has_the_schema_that_was_promised(spark: SparkSession) -> None:
    for static in (True, False):
        frame = empty(spark, "id STRING, at TIMESTAMP", static=static)
        assert frame.isStreaming is not static
        assert [field.simpleString() for field in frame.schema] == ["id:string", "at:timestamp"]
    with pytest.raises(PipelineError, match="is the type of one value: write columns"):
        struct_of("INT")


def test_each_pipeline_has_a_session_of_its_own(spark: SparkSession) -> None:
    pipeline = Pipeline("own", spark={"spark.sql.shuffle.partitions": 7, "spark.ui.port": 1})
    own = isolated(spark, pipeline)
    empty(own, "id STRING", static=True).createOrReplaceTempView("orders")
    assert own.conf.get("spark.sql.shuffle.partitions") == "7"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert not spark.catalog.tableExists("orders") and own.catalog.tableExists("orders")


def test_files_and_functions_are_sources(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    for name, rows in (("one", [{"id": "a"}, {"id": "b"}]), ("two", [{"id": "c"}])):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))
    seen: dict[str, list[str]] = {"files": [], "made": []}
    pipeline = Pipeline("files", folder=tmp_path)
    pipeline.files("files", "in/*.json", "json", schema="id STRING", options={"maxFilesPerTrigger": 1})
    pipeline.source("made", lambda own: own.readStream.schema("id STRING").json(str(tmp_path / "in")), "id STRING")
    for name, ids in seen.items():
        pipeline.write(name, lambda batch, _, ids=ids: ids.extend(row.id for row in batch.collect()), name=name)
    watcher = Watcher(lambda query, report: None, lambda text: None, lambda *rows: None)
    outcome = Runner(spark, pipeline, "files.py", follow=False, watcher=watcher).run()
    assert outcome.failure is None and not outcome.stopped
    assert {name: sorted(ids) for name, ids in seen.items()} == {"files": ["a", "b", "c"], "made": ["a", "b", "c"]}
    assert [(query.batches, query.rows, query.lag) for query in outcome.queries] == [(2, 3, None), (1, 3, None)]


def test_a_function_that_returns_something_else_is_told(spark: SparkSession) -> None:
    pipeline = Pipeline("wrong")
    pipeline.source("still", lambda own: own.range(1), "id LONG")
    pipeline.source("nothing", lambda own: None, "id LONG")
    pipeline.source("moving", lambda own: empty(own, "id LONG", static=False), "id LONG", static=True)
    frames = Frames(isolated(spark, pipeline), pipeline)
    assert [(problem.path[1], problem.message) for problem in frames.problems] == [
        (
            "still",
            "TypeError: its function returned a DataFrame that is no stream where a streaming DataFrame is needed",
        ),
        ("nothing", "TypeError: its function returned None where a streaming DataFrame is needed"),
        (
            "moving",
            "TypeError: its function returned a streaming DataFrame where a DataFrame that is no stream is needed",
        ),
    ]


def test_a_run_that_is_stopped_before_it_begins_does_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()
    pipeline = Pipeline("stopped", folder=tmp_path)
    pipeline.files("files", "in", "text")
    pipeline.write("files", lambda batch, _: None, name="none")
    runner = Runner(
        spark, pipeline, "s.py", follow=True, watcher=Watcher(lambda *_: None, lambda _: None, lambda *_: None)
    )
    assert isinstance(runner.stop, Event)
    runner.stop.set()
    outcome = runner.run()
    assert outcome.stopped and outcome.queries[0].batches == 0
