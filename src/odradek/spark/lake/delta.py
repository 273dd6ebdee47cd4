"""A Delta table, written without JARs: executors write the files, `deltalake` commits them to the table's log.

The commit names the sink and the batch (the action `txn` of Delta's protocol): a batch that is there is not written
again, and of two processes that try the same batch at once only one can commit.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.schema import Field
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.spark.lake.delta_stats import statistics
from odradek.spark.lake.errors import LakeError
from odradek.spark.lake.latest import latest, stored_columns
from odradek.spark.lake.report import CompactionReport
from odradek.spark.lake.schemas import evolved, nullable, projection
from odradek.spark.lake.settings import SinkOptions, SinkSettings
from odradek.spark.lake.staging import (
    ABANDONED_SECONDS,
    StagedFile,
    check_present,
    new_folder,
    read_files,
    remove_abandoned,
    stage,
    sync,
)

ATTEMPTS = 5
READABLE_FEATURES = {"timestampNtz"}  # what the files of a table may use for Spark to read them as plain Parquet


def open_table(path: Path, options: SinkOptions) -> DeltaLakeTable:
    """The table at a path, which need not exist yet."""
    del options  # all of them are about batches
    return DeltaLakeTable(path)


class DeltaLakeTable:
    """A folder with a `_delta_log`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, settings: SinkSettings, sink_id: str, frame: DataFrame, batch_id: int) -> None:
        """Make a batch part of the table, unless it is already."""
        for attempt in range(1, ATTEMPTS + 1):
            remove_abandoned(self.path, sink_id)
            try:
                if not _has_batch(self._load(), sink_id, batch_id):
                    self._write_once(settings, sink_id, frame, batch_id)
            except CommitFailedError as error:
                # Somebody else changed the table meanwhile, in a way that this commit cannot simply follow.
                if attempt == ATTEMPTS:
                    raise LakeError(
                        f"others kept changing {self.path} while batch {batch_id} was written: {error}"
                    ) from error
            else:
                return

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.path.as_uri())
        except TableNotFoundError:
            return None

    def _write_once(self, settings: SinkSettings, sink_id: str, frame: DataFrame, batch_id: int) -> None:
        columns = self._prepare(settings, frame)
        table = self._existing()  # the version on which all that follows is built: who comes between makes it fail
        if _has_batch(table, sink_id, batch_id):
            return
        rows, replaced = frame.select(*projection(frame, columns)), list[RemoveAction]()
        if settings.mode == "upsert":
            rows = latest(_rows(table, frame.sparkSession, columns, self.path), frame, columns, settings)
            replaced = _removals(table)
        staging = new_folder(self.path, sink_id)
        files = stage(
            rows,
            staging,
            partition_by=settings.partition_by,
            compression=settings.options.compression,
            files_max=settings.options.files_max,
        )
        check_present(file.path for file in files)
        name = f"{sink_id}-{batch_id:010}-{staging.name[-8:]}"
        added = [self._added(file, f"part-{name}-{number:05}.parquet") for number, file in enumerate(files)]
        if added or replaced:
            table.create_write_transaction(
                [*replaced, *added],
                "append",
                Schema.from_json(columns.json()),
                list(settings.partition_by),
                commit_properties=CommitProperties(app_transactions=[Transaction(sink_id, batch_id)]),
            )
        shutil.rmtree(staging, ignore_errors=True)

    def _prepare(self, settings: SinkSettings, frame: DataFrame) -> StructType:
        """Make the table, or give it the batch's new columns, and return its columns."""
        stored = nullable(stored_columns(frame.schema, settings))
        table = self._load()
        if table is None:
            return self._create(settings, evolved(StructType([]), stored, merge_schema=True, where=str(self.path)))
        if (partitions := tuple(table.metadata().partition_columns)) != settings.partition_by:
            raise LakeError(
                f"the table {self.path} is partitioned by ({', '.join(partitions)}), this sink by "
                f"({', '.join(settings.partition_by)}): name the same columns"
            )
        before = _columns_of(table)
        after = evolved(before, stored, merge_schema=settings.options.merge_schema, where=str(self.path))
        if added := after.fields[len(before.fields) :]:
            table.alter.add_columns([Field.from_json(one.json()) for one in added])
        return after

    def _create(self, settings: SinkSettings, columns: StructType) -> StructType:
        if self.path.is_dir() and any(self.path.iterdir()):
            raise LakeError(f"{self.path} has files, but is no Delta table: write to a folder of its own")
        self.path.mkdir(parents=True, exist_ok=True)
        schema = Schema.from_json(columns.json())
        DeltaTable.create(self.path.as_uri(), schema, mode="ignore", partition_by=list(settings.partition_by))
        return columns

    def _added(self, file: StagedFile, name: str) -> AddAction:
        """Move a file into the table, where only the log makes it visible, and describe it for the log.

        Its name is a new one each attempt: a process that was given up for dead may still commit its own files.
        """
        relative = Path(file.folder) / name
        target = self.path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        sync([file.path])
        file.path.rename(target)
        sync([target.parent])
        return AddAction(
            path=relative.as_posix(),  # deltalake escapes it for the log
            size=file.size_bytes,
            partition_values=file.partition_values(),
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=statistics(file.footer),
        )

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of the current version."""
        table = self._existing()
        return _rows(table, spark, _columns_of(table), self.path)

    def compact(self, target_bytes: int, *, thrifty: bool = False) -> CompactionReport:
        """Merge small files; readers of the version before go on undisturbed. What is small, deltalake decides."""
        del thrifty
        try:
            metrics = self._existing().optimize.compact(target_size=target_bytes)
        except CommitFailedError:
            return CompactionReport()  # its files were replaced meanwhile; the next compaction finds the others again
        return CompactionReport(metrics["numFilesRemoved"], metrics["numFilesAdded"], metrics["partitionsOptimized"])

    def vacuum(self, retain_hours: float) -> int:
        """Delete files that no version younger than this refers to, and what attempts have left beside the table."""
        remove_abandoned(self.path, age_seconds=max(retain_hours * 3600, ABANDONED_SECONDS))
        removed = self._existing().vacuum(
            retention_hours=math.ceil(retain_hours), dry_run=False, enforce_retention_duration=False, full=True
        )
        return len(removed)

    def _existing(self) -> DeltaTable:
        table = self._load()
        if table is None:
            raise LakeError(f"there is no Delta table at {self.path}")
        return table


def _has_batch(table: DeltaTable | None, sink_id: str, batch_id: int) -> bool:
    last = None if table is None else table.transaction_version(sink_id)
    return last is not None and last >= batch_id


def _columns_of(table: DeltaTable) -> StructType:
    return StructType.fromJson(json.loads(table.schema().to_json()))


def _files(table: DeltaTable) -> list[tuple[str, int]]:
    """The paths of the current version's files, relative to the table's, and their sizes."""
    files = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
    return [(unquote(file["path"]), file["size_bytes"]) for file in files]


def _removals(table: DeltaTable) -> list[RemoveAction]:
    """What takes all files of the current version out of the next one."""
    now = int(time.time() * 1000)
    return [RemoveAction(path, True, now, size) for path, size in _files(table)]


def reader_features(table: DeltaTable) -> set[str]:
    """What a reader of the table must be able to do beyond Delta's first version."""
    return set(table.protocol().reader_features or ())


def _rows(table: DeltaTable, spark: SparkSession, columns: StructType, path: Path) -> DataFrame:
    """The table's rows, read by executors as plain Parquet."""
    if unreadable := reader_features(table) - READABLE_FEATURES:
        raise LakeError(
            f"the Delta table {path} uses {', '.join(sorted(unreadable))}, which only Delta's own engines can read: "
            "let a sink make a table of its own"
        )
    files = [path / name for name, _ in _files(table)]
    names = [f"{name}=" for name in table.metadata().partition_columns]
    for file in files:
        if not all(part.startswith(name) for part, name in zip(file.parts[len(path.parts) :], names, strict=False)):
            raise LakeError(f"{file} is not in the folders of its partition, where its columns would be read from")
    return read_files(spark, columns, files, path)
