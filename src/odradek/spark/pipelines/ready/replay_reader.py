"""Streams sorted files in their order, at the speed of their times: each batch has the records that are due by then.

The offset is the number of records that were read. All of a batch is read by one task, so that it stays in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from odradek.spark.read.decode import arrow_schema

PLAN_FILE = "plan.json"
COLUMNS = ("key", "value", "headers", "timestamp", "partition")
WAIT_SECONDS_MAX = 1.0
READ_ROWS = 16 << 10


@dataclass(frozen=True, slots=True)
class SortedFile:
    """One of the files, in their order."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Piece(InputPartition):
    """Rows [start, end) of all files together."""

    start: int
    end: int


class ReplaySource(DataSource):
    """`format("odradek_replay")`: known only to the session of a replay."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "odradek_replay"

    def schema(self) -> str:
        """The columns of a record that can be sent again."""
        return (
            "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP, "
            "partition INT"
        )

    def streamReader(self, schema: StructType) -> ReplayReader:
        """A stream of the files."""
        options = self.options
        return ReplayReader(Path(options["folder"]), float(options["speed"]), int(options["rows"]))


class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are {"row": how many were read, "wait": how often there was nothing due}."""

    def __init__(self, folder: Path, speed: float, batch_rows: int) -> None:
        self._folder = folder
        self._speed = speed  # 0: as fast as possible
        self._batch_rows = batch_rows
        self._plan: Plan | None = None
        self._begin: tuple[float, int] | None = None  # when this run began, and the time of its first record (us)
        self._ends = False

    @property
    def _files(self) -> Plan:
        if self._plan is None:
            self._plan = Plan(self._folder)
        return self._plan

    # Called by Spark on the driver.

    def initialOffset(self) -> dict[str, int]:
        """Nothing was read."""
        return {"row": 0, "wait": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query after the last record; without this it would wait for more that never come."""
        self._ends = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """How many records are due."""
        row = start["row"]
        if row >= self._files.rows:
            return start
        end = min(row + self._batch_rows, self._files.rows)
        if self._speed:
            end = self._due(row, end)
        if end > row:
            return {"row": end, "wait": 0}
        # A query that is to end does so when there is nothing new: so that it waits on, the offset moves on its own.
        return {"row": row, "wait": start["wait"] + 1} if self._ends else start

    def _due(self, row: int, end: int) -> int:
        """How many of the rows before `end` are due, after a moment if none is yet."""
        if self._begin is None:
            self._begin = time.monotonic(), self._files.time_of(row)
        began, first = self._begin
        until = (self._files.time_of(row) - first) / 1e6 / self._speed - (time.monotonic() - began)
        if until > 0:
            time.sleep(min(until, WAIT_SECONDS_MAX))
        now = first + int((time.monotonic() - began) * self._speed * 1e6)
        return self._files.count_until(row, end, now)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """All of it for one task."""
        return [Piece(start["row"], end["row"])] if end["row"] > start["row"] else []

    # Called by Spark in tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read rows of the files, in their order."""
        assert isinstance(partition, Piece)
        return Plan(self._folder).read(partition.start, partition.end)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plan": None}


class Plan:
    """The files in their order."""

    def __init__(self, folder: Path) -> None:
        plan: Mapping[str, Any] = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
        self._folder = folder
        self._files = [SortedFile(**file) for file in plan["files"]]
        self._ends = list(accumulate(file.rows for file in self._files))
        self._times: tuple[int, Any] = (-1, None)  # of one file

    @property
    def rows(self) -> int:
        """How many there are in all."""
        return self._ends[-1] if self._ends else 0

    def time_of(self, row: int) -> int:
        """The time of a row in microseconds."""
        number = self._file_of(row)
        return int(self._times_of(number)[row - self._start(number)])

    def count_until(self, row: int, end: int, now: int) -> int:
        """The first row from `row` on, and at most `end`, whose time is later than `now`."""
        number = self._file_of(row)
        start = self._start(number)
        due = start + int(self._times_of(number).searchsorted(now, side="right"))
        return max(row, min(due, end))

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches."""
        schema = arrow_schema(COLUMNS)
        for number, file in enumerate(self._files):
            begin = self._start(number)
            low, high = max(start - begin, 0), min(end - begin, file.rows)
            if low < high:
                yield from _slice(self._folder / file.name, low, high, schema)

    def _start(self, number: int) -> int:
        return self._ends[number] - self._files[number].rows

    def _file_of(self, row: int) -> int:
        return next(number for number, end in enumerate(self._ends) if row < end)

    def _times_of(self, number: int) -> Any:
        if self._times[0] != number:
            column = pq.read_table(self._folder / self._files[number].name, columns=["timestamp"]).column(0)
            microseconds = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            self._times = (number, microseconds.to_numpy())
        return self._times[1]


def _slice(file: Path, low: int, high: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file) as opened:
        row = 0
        for batch in opened.iter_batches(READ_ROWS, columns=list(schema.names)):
            first, last = max(low - row, 0), min(high - row, batch.num_rows)
            if first < last:
                wanted = pa.Table.from_batches([batch.slice(first, last - first)]).select(schema.names).cast(schema)
                yield from wanted.to_batches()
            row += batch.num_rows
            if row >= high:
                return
