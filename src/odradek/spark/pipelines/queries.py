"""Starts a streaming query for each sink of a pipeline. What a query promises is up to its sink and its checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from odradek.spark.pipelines.errors import PipelineError
from odradek.spark.pipelines.frames import SOURCE_FORMAT
from odradek.spark.pipelines.model import ConsoleSink, LakeSink, Sink, TopicSink
from odradek.spark.pipelines.pipeline import Pipeline
from odradek.spark.pipelines.steps import open_lake, write_options
from odradek.spark.write.writer import QUERY_ID, check_schema

# Shows rows of a batch: the sink's name, the batch's number, the columns, the rows, and how many there are in all.
ShowRows: TypeAlias = Callable[[str, int, Sequence[str], Sequence[Sequence[object]], int], None]


def output_of(frame: DataFrame, sink: Sink) -> DataFrame:
    """What is handed to the sink: a step's rows, or for a topic the columns of a record."""
    if not frame.isStreaming:
        raise PipelineError(f"'{sink.source}' is no stream: all that it reads is static")
    return _records(frame, sink) if isinstance(sink, TopicSink) else frame


def _records(frame: DataFrame, sink: TopicSink) -> DataFrame:
    records = _with_value(frame, sink)
    check_schema(records.schema, sink.topic)
    return records


def _with_value(frame: DataFrame, sink: TopicSink) -> DataFrame:
    key = None if sink.key is None else F.expr(sink.key).cast("string").alias("key")
    if sink.format == "raw":
        return frame if key is None else frame.withColumn("key", key)
    if sink.format == "string":
        if "value" not in frame.columns:
            raise PipelineError(f"the format string writes the column 'value', and '{sink.source}' has no such column")
        value = F.col("value").cast("string")
        key = F.col("key").cast("string") if key is None and "key" in frame.columns else key
    else:
        row = F.struct("*")
        value = F.to_json(row) if sink.format == "json" else F.to_csv(row)
    return frame.select(*([] if key is None else [key]), value.alias("value"))


def output_mode(sink: Sink) -> str:
    """Spark's name for what of an aggregation is written: rows that change replace those of a lake table."""
    return "update" if sink.mode == "upsert" else sink.mode


def checkpoint_of(pipeline: Pipeline, sink: Sink) -> str:
    """Where a query keeps how far it has come."""
    return f"{pipeline.checkpoint.rstrip('/')}/{sink.name}"


def start_query(
    pipeline: Pipeline, sink: Sink, frame: DataFrame, *, follow: bool, show_rows: ShowRows
) -> StreamingQuery:
    """Start writing a step's rows to a sink, until there are none left or until it is stopped."""
    checkpoint = checkpoint_of(pipeline, sink)
    if "://" not in checkpoint:
        Path(checkpoint).mkdir(parents=True, exist_ok=True)
    writer = (
        output_of(frame, sink)
        .writeStream.queryName(f"{pipeline.name}.{sink.name}")
        .outputMode(output_mode(sink))
        .option("checkpointLocation", checkpoint)
    )
    writer = writer.trigger(processingTime=pipeline.trigger) if follow else writer.trigger(availableNow=True)
    return _into(writer, pipeline, sink, show_rows).start()


def _into(writer: DataStreamWriter, pipeline: Pipeline, sink: Sink, show_rows: ShowRows) -> DataStreamWriter:
    if isinstance(sink, TopicSink):
        options = write_options(sink, pipeline.bootstrap)
        if sink.mode == "append":
            return writer.format(SOURCE_FORMAT).options(**options)
        return writer.foreachBatch(_batch_writer(options))
    if isinstance(sink, LakeSink):
        return writer.foreachBatch(open_lake(sink, f"{pipeline.name}.{sink.name}"))
    if isinstance(sink, ConsoleSink):
        return writer.foreachBatch(_shower(sink, show_rows))
    return writer.foreachBatch(sink.function)


def _batch_writer(options: dict[str, str]) -> Callable[[DataFrame, int], None]:
    """Spark lets streams of other modes than append write to a source in Python only batch by batch.

    The query and the number of the batch name the write, so that a batch that comes again is known again.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        identity = {"sinkId": query_id, "batchId": str(batch_id)}
        batch.write.format(SOURCE_FORMAT).mode("append").options(**options, **identity).save()

    return write


def _shower(sink: ConsoleSink, show_rows: ShowRows) -> Callable[[DataFrame, int], None]:
    def show(batch: DataFrame, batch_id: int) -> None:
        kept: Any = batch.persist()
        try:
            rows = kept.limit(sink.rows).collect()
            total = kept.count() if len(rows) == sink.rows else len(rows)
        finally:
            kept.unpersist()
        show_rows(sink.name, batch_id, kept.columns, [tuple(row) for row in rows], total)

    return show
