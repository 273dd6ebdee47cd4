"""Sinks in real streaming queries: restarts from a checkpoint, and the identity that comes from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from odradek.spark.lake import open_sink
from tests.spark.lake.lake_tools import KINDS, batch, ids

SCHEMA = "id BIGINT, name STRING, date DATE, time TIMESTAMP"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def feed(spark: SparkSession, folder: Path, start: int, end: int) -> None:
    """Give the stream of a folder something more to read."""
    batch(spark, start, end).write.mode("append").parquet(str(folder))


def run(spark: SparkSession, folder: Path, checkpoint: Path, write: object) -> None:
    """Read what is there, in batches of one file, and end."""
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))  # type: ignore[arg-type]
    query.trigger(availableNow=True).start().awaitTermination()


def test_a_query_that_fails_after_writing_goes_on_without_doubling(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    feed(spark, tmp_path / "in", 0, 5)
    feed(spark, tmp_path / "in", 5, 10)
    write = open_sink(kind, tmp_path / "lake" / "table", sink_id="s", partition_by=["date"])
    failing = True

    def write_and_fail(frame: DataFrame, batch_id: int) -> None:
        nonlocal failing
        write(frame, batch_id)
        if batch_id == 1 and failing:
            failing = False
            raise RuntimeError("after the commit to the table, before Spark's own")

    with pytest.raises(StreamingQueryException, match="after the commit"):
        run(spark, tmp_path / "in", tmp_path / "checkpoint", write_and_fail)
    run(spark, tmp_path / "in", tmp_path / "checkpoint", write_and_fail)
    feed(spark, tmp_path / "in", 10, 15)
    run(spark, tmp_path / "in", tmp_path / "checkpoint", write_and_fail)
    assert ids(kind, tmp_path / "lake" / "table") == list(range(15))


def test_the_batches_of_a_new_checkpoint_are_not_taken_for_old_ones(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    write = open_sink(kind, tmp_path / "lake" / "table", sink_id="s", partition_by=["date"])
    feed(spark, tmp_path / "first", 0, 5)
    run(spark, tmp_path / "first", tmp_path / "checkpoint", write)
    feed(spark, tmp_path / "second", 5, 10)
    run(spark, tmp_path / "second", tmp_path / "another checkpoint", write)
    assert ids(kind, tmp_path / "lake" / "table") == list(range(10))
