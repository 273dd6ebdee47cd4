"""Executors write a batch's files beside the table, where no reader looks; the driver then knows what they wrote.

The folder is `.<table>.odradek-<sink>-<attempt>` in the parent of the table: the same file system, so that a rename
puts a file into its place, and outside of the table, so that `table/**/*.parquet` never finds it.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from odradek.spark.lake.errors import LakeError

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
FOOTER_THREADS = 8
ABANDONED_SECONDS = 24 * 3600.0
_PATTERN = re.compile(r"([\\\[\]{}*?^])")  # what Spark would take for a pattern in a path


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that executors have written, with what its footer says."""

    path: Path
    folder: str  # below the table: "date=2026-01-01", or "" without partitions
    size_bytes: int
    footer: pq.FileMetaData

    @property
    def rows(self) -> int:
        """How many rows it has; never 0."""
        return int(self.footer.num_rows)

    def partition_values(self) -> dict[str, str | None]:
        """The values in the names of its folders."""
        return partition_values(self.folder)


def partition_values(folder: str) -> dict[str, str | None]:
    """Read `date=2026-01-01/city=K%C3%B6ln` as Hive writes it."""
    values: dict[str, str | None] = {}
    for part in folder.split("/") if folder else ():
        name, _, value = part.partition("=")
        values[unquote(name)] = None if value == HIVE_NULL else unquote(value)
    return values


def new_folder(table: Path, sink_id: str) -> Path:
    """Name a folder beside the table that nobody has used."""
    return table.parent / f".{table.name}.odradek-{sink_id}-{uuid.uuid4().hex}"


def remove_abandoned(table: Path, sink_id: str | None = None, *, age_seconds: float = 0.0) -> int:
    """Delete what earlier attempts of one sink, or of all sinks, have left beside the table; count the folders."""
    abandoned = [
        folder
        for folder in table.parent.glob(f".{glob.escape(table.name)}.odradek-{sink_id or '*'}-{'[0-9a-f]' * 32}")
        if age_seconds == 0 or time.time() - folder.stat().st_mtime >= age_seconds
    ]
    for folder in abandoned:
        shutil.rmtree(folder, ignore_errors=True)
    return len(abandoned)


def stage(
    frame: DataFrame, folder: Path, *, partition_by: Sequence[str], compression: str, files_max: int
) -> list[StagedFile]:
    """Run the batch and write its rows as Parquet into a new folder; returns the files that have rows."""
    seen = Observation()
    counted = frame.observe(seen, sql.count(sql.lit(1)).alias("rows"))
    if files_max:
        counted = counted.coalesce(files_max)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with microsecond_times(frame.sparkSession):
        writer = counted.write.option("compression", compression)
        (writer.partitionBy(*partition_by) if partition_by else writer).parquet(spark_location(folder))
    files = _described(folder)
    written, found = int(seen.get["rows"]), sum(file.rows for file in files)
    if written != found:
        raise LakeError(
            f"executors wrote {written} rows below {folder.parent}, but the driver finds {found} there: the folder "
            "must be on a file system that the driver and all executors have mounted at the same path"
        )
    return files


def spark_location(path: Path) -> str:
    """How Spark is told of a local path, whatever its default file system is; it does not read escapes as %20."""
    return f"file://{path}"


def read_files(
    spark: SparkSession, columns: StructType, files: Sequence[Path], partitions_of: Path | None
) -> DataFrame:
    """Read files of a table; columns that are not in them are in the names of folders below the one that is given."""
    if not files:
        return spark.createDataFrame([], columns)
    reader = spark.read.schema(columns)
    if partitions_of is None:
        reader = reader.option("recursiveFileLookup", "true")  # folders are only folders
    else:
        reader = reader.option("basePath", spark_location(partitions_of))
    return reader.parquet(*(_PATTERN.sub(r"\\\1", spark_location(file)) for file in files))


@contextmanager
def microsecond_times(spark: SparkSession) -> Iterator[None]:
    """Spark's default, INT96, is deprecated, and its columns have no minimum and maximum to skip files by."""
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(name, before)


def _described(folder: Path) -> list[StagedFile]:
    paths = sorted(folder.rglob("*.parquet"))
    with ThreadPoolExecutor(FOOTER_THREADS) as threads:
        files = list(threads.map(lambda path: _describe(folder, path), paths))
    return [file for file in files if file.rows]


def _describe(folder: Path, path: Path) -> StagedFile:
    relative = path.parent.relative_to(folder)
    below = "" if relative == Path() else relative.as_posix()
    return StagedFile(path, below, path.stat().st_size, pq.read_metadata(path))


def check_present(files: Iterable[Path]) -> None:
    """Complain of staged files that somebody has taken for those of an attempt that died."""
    for file in files:
        if not file.exists():
            raise LakeError(f"{file} is gone: another process runs with the same sink id, or has vacuumed the table")


def sync(paths: Sequence[Path]) -> None:
    """Make files and folders survive a power cut; Spark has only handed them to the page cache."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
