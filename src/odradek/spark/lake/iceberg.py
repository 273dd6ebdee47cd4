"""An Iceberg table, written without JARs: executors write the files, `pyiceberg` adds them in one commit.

The last batch of a sink is a property of the table (`odradek.sink.<id>`), changed by the same commit as its rows, and
stands in the summary of the snapshot, too. A commit that finds the table changed by others looks at it again first.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import ByteType, IntegerType, ShortType, StructType

from odradek.spark.lake.errors import LakeError
from odradek.spark.lake.iceberg_catalog import IcebergCatalog, as_location, as_path
from odradek.spark.lake.iceberg_commit import pauses, replace, single_try
from odradek.spark.lake.iceberg_schema import columns_of, current_files, partition_spec, partitions_of, schema_of
from odradek.spark.lake.iceberg_vacuum import expire, remove_unreferenced
from odradek.spark.lake.latest import latest, stored_columns
from odradek.spark.lake.merging import bins, merge, merged_name
from odradek.spark.lake.report import CompactionReport
from odradek.spark.lake.schemas import evolved, nullable, projection, quoted
from odradek.spark.lake.settings import SinkOptions, SinkSettings
from odradek.spark.lake.staging import (
    ABANDONED_SECONDS,
    check_present,
    new_folder,
    read_files,
    remove_abandoned,
    stage,
    sync,
)

SINK_PROPERTY = "odradek.sink."
TABLE_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",  # or every batch would leave one for ever
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_FOLDER_COLUMN = "_odradek_folder_"


def open_table(path: Path, options: SinkOptions) -> IcebergTable:
    """The table at a path, which need not exist yet."""
    return IcebergTable(path, options)


class IcebergTable:
    """A folder with `data` and `metadata`, and its entry in a catalog."""

    def __init__(self, path: Path, options: SinkOptions) -> None:
        self.path = path
        self.options = options
        self.catalog = IcebergCatalog(path, options)

    def write(self, settings: SinkSettings, sink_id: str, frame: DataFrame, batch_id: int) -> None:
        """Make a batch part of the table, unless it is already."""
        remove_abandoned(self.path, sink_id)
        if self._has_batch(self.catalog.load(), sink_id, batch_id):
            return
        frame = _with_iceberg_types(frame)
        self._create(settings, frame)
        if settings.mode == "append":
            self._append(settings, sink_id, frame, batch_id)
        else:
            self._upsert(settings, sink_id, frame, batch_id)

    @staticmethod
    def _has_batch(table: Table | None, sink_id: str, batch_id: int) -> bool:
        return table is not None and int(table.properties.get(SINK_PROPERTY + sink_id, -1)) >= batch_id

    def _create(self, settings: SinkSettings, frame: DataFrame) -> None:
        if self.catalog.load() is None:
            columns = nullable(stored_columns(frame.schema, settings))
            schema = schema_of(evolved(StructType([]), columns, merge_schema=True, where=str(self.path)))
            # Spark's files have no ids of columns: names say which is which.
            properties = TABLE_PROPERTIES | {"schema.name-mapping.default": schema.name_mapping.model_dump_json()}
            self.catalog.create(schema, partition_spec(schema, settings.partition_by), properties)

    def _append(self, settings: SinkSettings, sink_id: str, frame: DataFrame, batch_id: int) -> None:
        columns = self._columns(self.catalog.existing(), settings, frame)
        staging = new_folder(self.path, sink_id)
        rows = frame.select(*projection(frame, columns))
        added = self._staged(rows, staging, settings, f"{sink_id}-{batch_id:010}")
        for pause in pauses(f"batch {batch_id}", self.path) if added else ():
            table = self.catalog.existing()
            if self._has_batch(table, sink_id, batch_id):
                break
            transaction, summary = self._begin(table, self._columns(table, settings, frame), sink_id, batch_id)
            transaction.add_files(added, summary, check_duplicate_files=False)
            with pause:
                transaction.commit_transaction()
                break
        shutil.rmtree(staging, ignore_errors=True)

    def _upsert(self, settings: SinkSettings, sink_id: str, frame: DataFrame, batch_id: int) -> None:
        for pause in pauses(f"batch {batch_id}", self.path):
            table = self.catalog.existing()
            if self._has_batch(table, sink_id, batch_id):
                break
            columns, replaced = self._columns(table, settings, frame), current_files(table)
            paths = [as_path(file.file_path) for file in replaced]
            current = read_files(frame.sparkSession, columns, paths, None) if paths else None
            staging = new_folder(self.path, sink_id)
            merged = latest(current, frame, columns, settings)
            added = self._staged(merged, staging, settings, f"{sink_id}-{batch_id:010}")
            shutil.rmtree(staging, ignore_errors=True)
            transaction, summary = self._begin(table, columns, sink_id, batch_id)
            replace(transaction, table, replaced, added, summary)
            with pause:
                transaction.commit_transaction()
                break

    def _columns(self, table: Table, settings: SinkSettings, frame: DataFrame) -> StructType:
        """The columns of the table with this batch."""
        if (partitions := partitions_of(table)) != settings.partition_by:
            raise LakeError(
                f"the table {self.path} is partitioned by ({', '.join(partitions)}), this sink by "
                f"({', '.join(settings.partition_by)}): name the same columns"
            )
        stored = nullable(stored_columns(frame.schema, settings))
        merge_schema = settings.options.merge_schema
        return evolved(columns_of(table), stored, merge_schema=merge_schema, where=str(self.path))

    @staticmethod
    def _begin(table: Table, columns: StructType, sink_id: str, batch_id: int) -> tuple[Transaction, dict[str, str]]:
        """A transaction that adds new columns and names the batch, and what its snapshot's summary says."""
        transaction = single_try(table)
        if new := columns.fields[len(table.schema().fields) :]:
            with transaction.update_schema() as update:
                update.union_by_name(schema_of(StructType(new)))
        transaction.set_properties({SINK_PROPERTY + sink_id: str(batch_id)})
        return transaction, {"odradek.sink": sink_id, "odradek.batch": str(batch_id)}

    def _staged(self, rows: DataFrame, staging: Path, settings: SinkSettings, name: str) -> list[str]:
        """Let executors write, and move the files into the table's folder, where only a commit makes them visible."""
        # Iceberg wants partition columns inside of the files, where Spark leaves them out: so folders get copies.
        folders = {f"{_FOLDER_COLUMN}{number}": column for number, column in enumerate(settings.partition_by)}
        copies = {name: sql.col(quoted(column)) for name, column in folders.items()}
        files = stage(
            rows.withColumns(copies) if copies else rows,
            staging,
            partition_by=tuple(folders),
            compression=settings.options.compression,
            files_max=settings.options.files_max,
        )
        check_present(file.path for file in files)
        locations = []
        for number, file in enumerate(files):
            below = "/".join(
                f"{folders[part.partition('=')[0]]}={part.partition('=')[2]}"
                for part in (file.folder.split("/") if file.folder else ())
            )
            # A new name each attempt: a process that was given up for dead may still commit its own files.
            target = self.path / "data" / below / f"part-{name}-{number:05}-{staging.name[-8:]}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            sync([file.path])
            file.path.rename(target)
            sync([target.parent])
            locations.append(as_location(target))
        return locations

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of the current snapshot."""
        table = self.catalog.existing()
        paths = [as_path(file.file_path) for file in current_files(table)]
        return read_files(spark, columns_of(table), paths, None)

    def compact(self, target_bytes: int, *, thrifty: bool = False) -> CompactionReport:
        """Merge the small files of each partition in one commit; readers of the snapshot before go on undisturbed."""
        by_partition: dict[Any, list[DataFile]] = defaultdict(list)
        for file in current_files(self.catalog.existing()):
            by_partition[file.partition].append(file)
        report = CompactionReport()
        old: list[str] = []
        new: list[str] = []
        for files in by_partition.values():
            locations = {as_path(file.file_path): file.file_path for file in files}
            sizes = sorted((as_path(file.file_path), file.file_size_in_bytes) for file in files)
            groups = bins(sizes, target_bytes, thrifty=thrifty)
            new += [as_location(self._merged(group)) for group in groups]
            merged = [locations[path] for group in groups for path in group]
            old += merged
            report += CompactionReport(len(merged), len(groups), min(len(groups), 1))
        return report if old and self._swap(old, new) else CompactionReport()

    def _merged(self, group: Sequence[Path]) -> Path:
        target = group[0].with_name(merged_name(group[0]))
        merge(group, target, self.options.compression)
        sync([target, target.parent])
        return target

    def _swap(self, old: Sequence[str], new: Sequence[str]) -> bool:
        """Put new files in the place of old ones. Batches may come between, but nobody else who replaces them."""
        for pause in pauses("a compaction", self.path):
            table = self.catalog.existing()
            present = {file.file_path: file for file in current_files(table)}
            if not present.keys() >= set(old):
                break
            transaction = single_try(table)
            replace(transaction, table, [present[location] for location in old], new, {"odradek.compaction": "true"})
            with pause:
                transaction.commit_transaction()
                return True
        return False

    def vacuum(self, retain_hours: float) -> int:
        """Forget older snapshots, and delete the files that none of the others refers to."""
        remove_abandoned(self.path, age_seconds=max(retain_hours * 3600, ABANDONED_SECONDS))
        expire(self.catalog.existing(), retain_hours)
        return remove_unreferenced(self.catalog.existing(), self.path, retain_hours)


def _with_iceberg_types(frame: DataFrame) -> DataFrame:
    """Iceberg has no whole numbers shorter than 32 bits."""
    short = {one.name for one in frame.schema.fields if isinstance(one.dataType, ByteType | ShortType)}
    return frame.withColumns({name: sql.col(quoted(name)).cast(IntegerType()) for name in short}) if short else frame
