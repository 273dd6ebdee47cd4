"""A table of plain Parquet files: `table/date=2026-01-01/part-<sink>-<batch>-<n>.parquet`.

A batch is written beside the table, recorded in the journal (from then on it counts), and moved in file by file. It
promises less than Delta and Iceberg do: a reader who lists folders while a batch is moved sees some of its files.
A table of `mode="upsert"` and the folders that are compacted are swapped as a whole, in one step.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.spark.lake.errors import LakeError
from odradek.spark.lake.exchange import exchange
from odradek.spark.lake.journal import Journal, SinkRecord, TableRecord
from odradek.spark.lake.latest import latest, stored_columns
from odradek.spark.lake.merging import bins, merge, merged_name
from odradek.spark.lake.report import CompactionReport
from odradek.spark.lake.schemas import evolved, nullable, projection
from odradek.spark.lake.settings import SinkOptions, SinkSettings
from odradek.spark.lake.staging import check_present, new_folder, read_files, remove_abandoned, stage, sync

COMPACTOR = "compaction"  # the name of the folders beside the table that compaction makes
UPSERT_ATTEMPTS = 5


def open_table(path: Path, options: SinkOptions) -> ParquetTable:
    """The table at a path, which need not exist yet."""
    return ParquetTable(path, options)


class ParquetTable:
    """Plain Parquet files with a journal."""

    def __init__(self, path: Path, options: SinkOptions) -> None:
        self.path = path
        self.options = options
        self.journal = Journal(path)

    def write(self, settings: SinkSettings, sink_id: str, frame: DataFrame, batch_id: int) -> None:
        """Make a batch part of the table, unless it is already."""
        if not self.journal.exists():
            self._refuse_foreign_files()
        with self.journal.locked():
            # Under the lock: what is beside the table belongs to nobody who is just about to move it in.
            remove_abandoned(self.path, sink_id)
            if self._has_batch(sink_id, batch_id):
                return
        description = self._description(settings, frame)
        if settings.mode == "append":
            self._append(settings, description, sink_id, frame, batch_id)
        else:
            self._upsert(settings, description, sink_id, frame, batch_id)

    def _has_batch(self, sink_id: str, batch_id: int) -> bool:
        record = self.journal.sink(sink_id)
        return record is not None and record.batch >= batch_id

    def _description(self, settings: SinkSettings, frame: DataFrame) -> TableRecord:
        """What the table is with this batch."""
        schema = stored_columns(frame.schema, settings)
        before = self.journal.description()
        if before is None:
            before = TableRecord(StructType([]).json(), settings.partition_by, settings.mode)
            merge_schema = True
        else:
            merge_schema = settings.options.merge_schema
        if (before.partition_by, before.mode) != (settings.partition_by, settings.mode):
            raise LakeError(
                f"the table {self.path} is for mode {before.mode!r} and partitioned by "
                f"({', '.join(before.partition_by)}), this sink is for {settings.mode!r} and "
                f"({', '.join(settings.partition_by)}): one table cannot be both"
            )
        columns = evolved(_columns(before), nullable(schema), merge_schema=merge_schema, where=str(self.path))
        return TableRecord(columns.json(), before.partition_by, before.mode)

    def _refuse_foreign_files(self) -> None:
        if self.path.is_dir() and self.journal.data_files():
            raise LakeError(
                f"{self.path} has Parquet files that no Odradek sink has written, so that nobody knows which batches "
                "are in them: write to a folder of its own"
            )

    def _append(
        self, settings: SinkSettings, description: TableRecord, sink_id: str, frame: DataFrame, batch_id: int
    ) -> None:
        staging = new_folder(self.path, sink_id)
        files = stage(
            frame.select(*projection(frame, _columns(description))),
            staging,
            partition_by=settings.partition_by,
            compression=settings.options.compression,
            files_max=settings.options.files_max,
        )
        check_present(file.path for file in files)
        sync([file.path for file in files])
        moves = tuple(
            (file.path.relative_to(staging).as_posix(), str(Path(file.folder) / _name(sink_id, batch_id, number)))
            for number, file in enumerate(files)
        )
        rows = sum(file.rows for file in files)
        self._commit(description, sink_id, SinkRecord(batch_id, rows, False, staging.name, moves))
        shutil.rmtree(staging, ignore_errors=True)

    def _commit(self, description: TableRecord, sink_id: str, record: SinkRecord) -> None:
        with self.journal.locked():
            if self._has_batch(sink_id, record.batch):
                return  # another process that took itself for the same sink was quicker
            check_present([self.path.parent / record.staging / source for source, _ in record.moves])
            self.journal.describe(description)
            self.journal.write_sink(sink_id, record)
            self.journal.publish(sink_id, record)

    def _upsert(
        self, settings: SinkSettings, description: TableRecord, sink_id: str, frame: DataFrame, batch_id: int
    ) -> None:
        for _ in range(UPSERT_ATTEMPTS):
            read = self.journal.data_files() if self.path.is_dir() else []
            columns = _columns(description)
            current = read_files(frame.sparkSession, columns, read, self.path) if read else None
            staging = new_folder(self.path, sink_id)
            merged = latest(current, frame, columns, settings)
            files = stage(
                merged,
                staging,
                partition_by=(),
                compression=settings.options.compression,
                files_max=settings.options.files_max,
            )
            names = {_name(sink_id, batch_id, number): file.path for number, file in enumerate(files)}
            draft = new_folder(self.path, sink_id)
            draft.mkdir()
            check_present(names.values())
            for name, file in names.items():
                file.rename(draft / name)
            shutil.rmtree(staging)
            rows = sum(file.rows for file in files)
            record = SinkRecord(batch_id, rows, published=True)
            if self._replace(draft, sorted(names), description, sink_id, record, read):
                return
        raise LakeError(f"the table {self.path} was changed by others while batch {batch_id} was merged into it")

    def _replace(
        self,
        draft: Path,
        names: Sequence[str],
        description: TableRecord,
        sink_id: str,
        record: SinkRecord,
        read: Sequence[Path],
    ) -> bool:
        """Put a folder in the place of the table, if that still has the files that were read."""
        with self.journal.locked():
            done = self._has_batch(sink_id, record.batch)
            unchanged = self.journal.data_files() == list(read)
            if unchanged and not done:
                check_present([draft / name for name in names])
                copy = self.journal.copy_to(draft)
                copy.describe(description)
                copy.write_sink(sink_id, record)
                self._swap(draft, self.path)
        shutil.rmtree(draft, ignore_errors=True)
        return done or unchanged

    @staticmethod
    def _swap(draft: Path, folder: Path) -> None:
        sync([*(file for file in draft.iterdir() if file.is_file()), draft])
        exchange(draft, folder)
        sync([folder.parent])

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows as of now; no batch that is just being moved in is seen in part."""
        description = self._existing()
        with self.journal.locked():
            files = self.journal.data_files()
        return read_files(spark, _columns(description), files, self.path)

    def _existing(self) -> TableRecord:
        description = self.journal.description()
        if description is None:
            raise LakeError(f"{self.path} is no parquet table of an Odradek sink: it has no {self.journal.folder}")
        return description

    def compact(self, target_bytes: int, *, thrifty: bool = False) -> CompactionReport:
        """Merge the small files of each folder; a folder is swapped for its successor in one step."""
        self._existing()
        by_folder: dict[Path, list[tuple[Path, int]]] = defaultdict(list)
        with self.journal.locked():
            for file in self.journal.data_files():
                by_folder[file.parent].append((file, file.stat().st_size))
        report = CompactionReport()
        for folder, sizes in by_folder.items():
            report += self._compact_folder(folder, bins(sizes, target_bytes, thrifty=thrifty))
        return report

    def _compact_folder(self, folder: Path, groups: Sequence[Sequence[Path]]) -> CompactionReport:
        if not groups:
            return CompactionReport()
        draft = new_folder(self.path, COMPACTOR)
        names = [merged_name(group[0]) for group in groups]
        for name, group in zip(names, groups, strict=True):
            merge(group, draft / name, self.options.compression)
        merged = {file for group in groups for file in group}
        with self.journal.locked():
            present = [file for file in folder.iterdir() if file.is_file()]
            unchanged = merged <= set(present)
            if unchanged:
                check_present([draft / name for name in names])
                for file in present:
                    if file not in merged:
                        os.link(file, draft / file.name)
                if folder == self.path:
                    self.journal.copy_to(draft)
                self._swap(draft, folder)
        shutil.rmtree(draft, ignore_errors=True)
        return CompactionReport(len(merged), len(groups), 1) if unchanged else CompactionReport()

    def vacuum(self, retain_hours: float) -> int:
        """Delete what attempts that never ended have left beside the table; the table itself has no older versions."""
        self._existing()
        with self.journal.locked():
            return remove_abandoned(self.path, age_seconds=retain_hours * 3600)


def _name(sink_id: str, batch_id: int, number: int) -> str:
    return f"part-{sink_id}-{batch_id:010}-{number:05}.parquet"


def _columns(description: TableRecord) -> StructType:
    return StructType.fromJson(json.loads(description.columns))
