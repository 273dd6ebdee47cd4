"""Sends a table of records, as `archive` keeps them, to a topic again: in the order of their times, at any speed.

The rows are sorted once, into files beside the checkpoint; from then on it is a stream like any other: it can be
stopped and goes on where it was, and the sink knows a batch that comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.ready import ParameterError
from odradek.spark.pipelines.ready.places import LAKE, the_lake, use_utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.spark.pipelines.pipeline import Pipeline

SUMMARY = "Send the records of a table to a topic again, in the order of their times, at any speed."

PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    **LAKE,
    "to_topic": Parameter("topic", "the topic to write to", required=True, example='"orders.replayed"'),
    "speed": Parameter("number", "1: as it was; 60: an hour in a minute; without it as fast as possible"),
    "topics": Parameter("topics", "only the records of these topics, if the table has several"),
    "since": Parameter("text", "only records from this time on, as in 2026-01-31 or 2026-01-31T12:00:00Z"),
    "until": Parameter("text", "only records before this time"),
    "keep_timestamps": Parameter("flag", "records have their old times; without it the time of their sending",
                                 default=True),
    "keep_partitions": Parameter("flag", "records go to the partitions that they had; without it by their keys",
                                 default=False),
    "batch_rows": Parameter("whole", "at most so many records in a batch", default=100_000),
})  # fmt: skip

SCHEMA = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP, partition INT"
)


def build(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    """A table, sorted, into a topic."""
    kind, path = the_lake(parameters)
    if "://" in pipeline.checkpoint:
        raise ParameterError(
            "to_topic", f"the checkpoint {pipeline.checkpoint} must be a folder: sorted files go there"
        )
    if parameters["batch_rows"] == 0:
        raise ParameterError("batch_rows", "a batch has at least one record")
    use_utc(pipeline)
    folder = Path(pipeline.checkpoint) / "sorted"

    def archived(spark: SparkSession) -> DataFrame:
        frame: DataFrame = import_module(f"{__name__}_frames").sorted_stream(spark, kind, path, folder, parameters)
        return frame

    pipeline.source("archived", archived, SCHEMA)
    kept = ["key", "value", "headers"]
    kept += [name for name in ("timestamp", "partition") if parameters[f"keep_{name}s"]]
    pipeline.sql("records", f"SELECT {', '.join(kept)} FROM archived", inputs=["archived"])
    pipeline.write_topic("records", parameters["to_topic"], name="replay", format="raw")
