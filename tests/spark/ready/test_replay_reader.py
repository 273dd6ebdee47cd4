"""A replay has the pace of its events: what is due when, with a clock that tests turn."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from odradek.spark.pipelines.ready import replay_reader
from odradek.spark.pipelines.ready.replay_reader import COLUMNS, PLAN_FILE, ReplayReader
from odradek.spark.read.decode import arrow_schema

SECOND = 1_000_000
ANY = ReadAllAvailable()


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def pass_by(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(replay_reader, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=made.pass_by))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten events, one a second, in files of four."""
    files = []
    for number in range(3):
        rows = list(range(4 * number, min(4 * number + 4, 10)))
        table = pa.table(
            {
                "key": [b"k"] * len(rows),
                "value": [str(row).encode() for row in rows],
                "headers": pa.nulls(len(rows), arrow_schema(("headers",)).field(0).type),
                "timestamp": pa.array([row * SECOND for row in rows], pa.timestamp("us", "UTC")),
                "partition": pa.array([0] * len(rows), pa.int32()),
            }
        )
        pq.write_table(table, tmp_path / f"{number}.parquet")
        files.append({"name": f"{number}.parquet", "rows": len(rows)})
    (tmp_path / PLAN_FILE).write_text(json.dumps({"files": files}))
    return tmp_path


def row(number: int, wait: int = 0) -> dict[str, int]:
    return {"row": number, "wait": wait}


def test_without_a_speed_batches_are_as_large_as_they_may_be(folder: Path, clock: Clock) -> None:
    reader = ReplayReader(folder, 0, 4)
    assert reader.initialOffset() == row(0)
    assert reader.latestOffset(row(0), ANY) == row(4)
    assert reader.latestOffset(row(9), ANY) == row(10)
    assert reader.latestOffset(row(10), ANY) == row(10)
    assert clock.slept == []


def test_with_a_speed_that_is_read_which_is_due(folder: Path, clock: Clock) -> None:
    reader = ReplayReader(folder, 2.0, 100)
    assert reader.latestOffset(row(0), ANY) == row(1), "the first is due at once"
    clock.now += 1.0
    assert reader.latestOffset(row(1), ANY) == row(3), "two seconds of events in one"
    assert reader.latestOffset(row(3), ANY) == row(4), "it waits for the next"
    assert clock.slept == [0.5]
    clock.now += 60
    assert reader.latestOffset(row(4), ANY) == row(8), "no more than the file that the row is in"
    assert reader.latestOffset(row(8), ANY) == row(10)


def test_a_query_that_is_to_end_waits_on_and_ends_after_the_last(folder: Path, clock: Clock) -> None:
    reader = ReplayReader(folder, 0.1, 100)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(row(0), ANY) == row(1)
    assert reader.latestOffset(row(1), ANY) == row(1, wait=1), "the next is due in ten seconds: the offset moves anyway"
    assert clock.slept == [1.0]
    assert reader.latestOffset(row(1, wait=1), ANY) == row(1, wait=2)
    assert reader.partitions(row(1), row(1, wait=1)) == []
    assert reader.latestOffset(row(10, wait=2), ANY) == row(10, wait=2)
    follower = ReplayReader(folder, 0.1, 100)
    assert follower.latestOffset(row(0), ANY) == row(1)
    assert follower.latestOffset(row(1), ANY) == row(1), "one that follows asks again by itself"


def test_after_a_restart_the_next_event_is_due_at_once(folder: Path, clock: Clock) -> None:
    assert ReplayReader(folder, 1.0, 100).latestOffset(row(5), ANY) == row(6)
    assert clock.slept == []


def test_rows_are_read_in_their_order_over_files(folder: Path) -> None:
    reader: ReplayReader = pickle.loads(pickle.dumps(ReplayReader(folder, 0, 100)))  # noqa: S301 (our own)
    (piece,) = reader.partitions(row(3), row(9))
    batches = list(reader.read(piece))
    assert [value for batch in batches for value in batch.column(1).to_pylist()] == [b"3", b"4", b"5", b"6", b"7", b"8"]
    assert all(batch.schema == arrow_schema(COLUMNS) for batch in batches)
