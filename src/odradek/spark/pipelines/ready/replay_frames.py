"""Sorts a table of records into files that are streamed one after the other. What pipelines import only to run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from odradek.spark.lake import read_table
from odradek.spark.lake.staging import microsecond_times, spark_location
from odradek.spark.pipelines.errors import PipelineError
from odradek.spark.pipelines.ready.replay_reader import PLAN_FILE, ReplaySource, SortedFile

FILE_ROWS = 100_000
OPTIONAL = {
    "key": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """What is replayed: another selection cannot go on where this one was."""

    kind: str
    path: str
    topics: tuple[str, ...] | None
    since: str | None
    until: str | None


def sorted_stream(spark: SparkSession, kind: str, path: str, folder: Path, parameters: Mapping[str, Any]) -> DataFrame:
    """The records of a table as a stream in the order of their times; sorts them if that was not done before."""
    topics = parameters["topics"]
    selection = Selection(kind, path, topics and tuple(topics), parameters["since"], parameters["until"])
    if not _is_sorted(folder, selection):
        _sort(spark, selection, folder, parameters["table_options"])
    spark.dataSource.register(ReplaySource)
    reader = spark.readStream.format(ReplaySource.name()).option("folder", str(folder))
    return reader.option("speed", str(parameters["speed"] or 0)).option("rows", str(parameters["batch_rows"])).load()


def _is_sorted(folder: Path, selection: Selection) -> bool:
    try:
        plan = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    if plan["selection"] != json.loads(json.dumps(asdict(selection))):
        raise PipelineError(
            f"{folder} has the records of another replay, of {plan['selection']}: give this one another name or "
            "another checkpoint"
        )
    return True


def _sort(spark: SparkSession, selection: Selection, folder: Path, options: Mapping[str, str]) -> None:
    rows = _selected(read_table(spark, selection.kind, selection.path, options=options), selection)
    count = rows.count()
    draft = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    draft.parent.mkdir(parents=True, exist_ok=True)
    order = [sql.col(name) for name in ("timestamp", "topic", "partition", "offset")]
    spread = rows.repartitionByRange(-(-count // FILE_ROWS) or 1, *order).sortWithinPartitions(*order)
    with microsecond_times(spark):
        spread.write.parquet(spark_location(draft))
    files = [SortedFile(file.name, pq.read_metadata(file).num_rows) for file in sorted(draft.glob("*.parquet"))]
    plan = {"selection": asdict(selection), "files": [asdict(file) for file in files if file.rows]}
    (draft / PLAN_FILE).write_text(json.dumps(plan), encoding="utf-8")
    draft.rename(folder)


def _selected(table: DataFrame, selection: Selection) -> DataFrame:
    for name in ("value", "timestamp"):
        if name not in table.columns:
            raise PipelineError(
                f"{selection.path} has no column {name!r}: it is no table of records, as archive keeps them"
            )
    columns = {name: _column(table, name, kind) for name, kind in OPTIONAL.items()}
    rows = table.select(
        sql.col("value").cast("binary").alias("value"), sql.col("timestamp").cast("timestamp"), *columns.values()
    )
    if selection.topics is not None:
        rows = rows.where(sql.col("topic").isin(list(selection.topics)))
    for bound, is_within in ((selection.since, Column.__ge__), (selection.until, Column.__lt__)):
        if bound is not None:
            rows = rows.where(is_within(sql.col("timestamp"), sql.lit(bound).cast("timestamp")))
    return rows


def _column(table: DataFrame, name: str, kind: str) -> Column:
    return (sql.col(name) if name in table.columns else sql.lit(None)).cast(kind).alias(name)
