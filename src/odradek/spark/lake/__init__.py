"""Tables of files: a micro-batch goes into parquet, Delta or Iceberg exactly once, without JARs.

    write = open_sink("delta", "lake/orders", sink_id="orders", partition_by=["date"])
    query = orders.writeStream.foreachBatch(write).option("checkpointLocation", "checkpoints/orders").start()

Executors write the files, the driver makes them part of the table in one step, and a batch that Spark replays is
recognised. What each format promises, and what plain readers see, is in docs/guides/lake.md.

Nothing is read or written before the first batch: `open_sink` only checks what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.spark.lake.batches import BatchWriter, open_table
from odradek.spark.lake.errors import LakeError
from odradek.spark.lake.report import CompactionReport
from odradek.spark.lake.settings import KINDS, TARGET_BYTES, Mode, parse_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KINDS", "CompactionReport", "LakeError", "compact", "open_sink", "read_table", "vacuum"]


def open_sink(
    kind: str,
    path: str | Path,
    *,
    sink_id: str,
    partition_by: Sequence[str] = (),
    mode: Mode = "append",
    keys: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Make the function that `foreachBatch` calls with each micro-batch and its number.

    `sink_id` tells this sink from others that write to the same table. In a stream the id of the query, which lives in
    its checkpoint, is added by itself: so a new checkpoint is a new sink, and its batch 0 is not taken for an old one.
    `mode="upsert"` keeps one row for each of the `keys`: the one with the greatest `order_by` (an option).
    The options are the fields of `odradek.spark.lake.settings.SinkOptions`.
    """
    return BatchWriter(parse_sink(kind, path, sink_id, partition_by, mode, keys, options or {}))


def read_table(
    spark: SparkSession, kind: str, path: str | Path, *, options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Read a table as it is now: whole batches only, by executors, without JARs.

    The files are those of this moment: a rewrite of a parquet table (compaction, upsert) fails a job that comes later.
    """
    return open_table(kind, path, options or {}).read(spark)


def compact(
    kind: str, path: str | Path, *, target_bytes: int = TARGET_BYTES, options: Mapping[str, Any] | None = None
) -> CompactionReport:
    """Merge the small files of each partition into files of about `target_bytes`; the rows stay as they are."""
    return open_table(kind, path, options or {}).compact(target_bytes)


def vacuum(kind: str, path: str | Path, *, retain_hours: float, options: Mapping[str, Any] | None = None) -> int:
    """Delete the files that no version younger than `retain_hours` refers to, and count them.

    A reader of an older version fails, and so does a writer that takes longer than that for one batch.
    """
    return open_table(kind, path, options or {}).vacuum(retain_hours)
