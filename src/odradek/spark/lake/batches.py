"""What `foreachBatch` calls: gives a batch to the table's format, and tidies the table every so many batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from odradek.spark.lake.errors import LakeError
from odradek.spark.lake.report import CompactionReport
from odradek.spark.lake.settings import KINDS, SinkOptions, SinkSettings, local_path, one_of, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"  # a property that Spark sets in the thread of a query


class Table(Protocol):
    """A table of one format."""

    def write(self, settings: SinkSettings, sink_id: str, frame: DataFrame, batch_id: int) -> None:
        """Make a batch part of the table, unless it is already."""

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows as of now, read by executors."""

    def compact(self, target_bytes: int, *, thrifty: bool = False) -> CompactionReport:
        """Merge small files; a thrifty one leaves those alone that it would not pay to rewrite yet."""

    def vacuum(self, retain_hours: float) -> int:
        """Delete files that nothing refers to any more."""


def open_table(kind: str, path: str | Path, options: Mapping[str, Any]) -> Table:
    """The table at a path, which need not exist yet."""
    one_of("kind", kind, KINDS)
    return _opened(kind, local_path(path), parse_options(options))


def _opened(kind: str, path: Path, options: SinkOptions) -> Table:
    try:
        module = import_module(f"odradek.spark.lake.{kind}")
    except ModuleNotFoundError as error:
        raise LakeError(f"{kind} tables need the package {error.name}: pip install 'odradek[lake]'") from error
    return cast(Table, module.open_table(path, options))


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """A function of a batch and its number, for `foreachBatch`."""

    settings: SinkSettings

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write the batch; a replay of one that is written changes nothing."""
        settings, options = self.settings, self.settings.options
        table = _opened(settings.kind, settings.path, options)
        table.write(settings, _identity(frame.sparkSession, settings.sink_id), frame, batch_id)
        if options.compact_every and (batch_id + 1) % options.compact_every == 0:
            table.compact(options.target_bytes, thrifty=True)
            table.vacuum(options.retain_hours)


def _identity(spark: SparkSession, sink_id: str) -> str:
    """Batches are numbered by the query's checkpoint, so that its id belongs to the name of the sink."""
    query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
    return f"{sink_id}.{query_id}" if query_id else sink_id
