"""The process is killed between any two steps of a batch; the replay makes the batch whole, once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table import Transaction
from pyspark.sql import DataFrame, SparkSession

from odradek.spark.lake import LakeError, compact, open_sink, parquet, read_table
from odradek.spark.lake.settings import Mode
from odradek.spark.lake.staging import remove_abandoned
from tests.spark.lake.lake_tools import KINDS, Kill, Killed, batch, ids

# What changes something that others can see. A kill within Spark's own writing leaves only what is beside the table.
STEPS: dict[str, dict[Any, tuple[str, ...]]] = {
    "parquet": {os: ("rename", "replace", "link"), parquet: ("exchange", "stage")},
    "delta": {os: ("rename",), DeltaTable: ("create", "create_write_transaction")},
    "iceberg": {os: ("rename",), Transaction: ("commit_transaction",)},
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Crashes:
    """Does something to copies of a table, killed between any two steps of it."""

    def __init__(self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        self.kill = Kill(monkeypatch, STEPS[kind])
        self._folder = folder
        self._prepare: Callable[[Path], None] | None = None

    def prepare(self, make: Callable[[Path], None]) -> None:
        """Begin each time with what this makes."""
        self._prepare = make
        make(self._folder / "template" / "table")

    def _new(self, name: str) -> Path:
        path = self._folder / name / "table"
        if self._prepare is not None:
            if self.kind == "iceberg":  # whose metadata has absolute paths
                self._prepare(path)
            else:
                shutil.copytree(self._folder / "template", path.parent)
        return path

    def run(self, act: Callable[[Path], None], check: Callable[[Path, str], None]) -> list[str]:
        """Act with a kill between any two steps, and check what that leaves; returns the steps."""
        path = self._new("whole")
        with self.kill.at(None):
            act(path)
        steps = list(self.kill.made)
        # After one step is before the next.
        for number, after in [(0, False), *((number, True) for number in range(len(steps)))]:
            path = self._new(f"{number}-{after}")
            with self.kill.at(number, after=after), pytest.raises(Killed):
                act(path)
            check(path, f"{'after' if after else 'before'} step {number}, {steps[number]}")
        return steps


@pytest.fixture
def crashes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    return Crashes(kind, tmp_path, monkeypatch)


def leftovers(path: Path) -> list[Path]:
    """What is beside a table that nobody will need."""
    return list(path.parent.glob(".table.*"))


def test_a_first_batch_is_there_once_wherever_it_was_killed(spark: SparkSession, kind: str, crashes: Crashes) -> None:
    frame = batch(spark, 0, 4).cache()

    def act(path: Path) -> None:
        open_sink(kind, path, sink_id="s", partition_by=["date"])(frame, 0)

    def check(path: Path, where: str) -> None:
        act(path)
        assert ids(kind, path) == [0, 1, 2, 3], where
        assert leftovers(path) == [], where

    assert len(crashes.run(act, check)) >= 3


def test_what_was_there_stays_and_a_later_batch_is_there_once_wherever_it_was_killed(
    spark: SparkSession, kind: str, crashes: Crashes
) -> None:
    first, second, third = (batch(spark, 4 * number, 4 * number + 4).cache() for number in range(3))

    def sink(path: Path, sink_id: str) -> Callable[[DataFrame, int], None]:
        return open_sink(kind, path, sink_id=sink_id, partition_by=["date"])

    def act(path: Path) -> None:
        sink(path, "s")(second, 1)

    def check(path: Path, where: str) -> None:
        seen = ids(kind, path)
        assert seen[:4] == [0, 1, 2, 3], where
        # Plain files are moved one by one: a reader may see the first day of the batch without the second.
        allowed = ([4, 5, 6, 7], [4, 6], []) if kind == "parquet" else ([4, 5, 6, 7], [])
        assert seen[4:] in allowed, where
        if seen[4:] == [4, 6]:
            assert read_table(spark, kind, path).count() == 8, where
        elif kind == "parquet":
            sink(path, "other")(third, 0)  # whoever comes next ends the moves
            assert seen[4:] == [] or set(ids(kind, path)) == set(range(12)), where
        act(path)
        assert [number for number in ids(kind, path) if number < 8] == list(range(8)), where
        assert leftovers(path) == [], where

    crashes.prepare(lambda path: sink(path, "s")(first, 0))
    crashes.run(act, check)


def test_a_state_is_that_of_a_whole_batch_wherever_it_was_killed(
    spark: SparkSession, kind: str, crashes: Crashes
) -> None:
    rows = [
        spark.createDataFrame(changes, "id BIGINT, n BIGINT, gone BOOLEAN").coalesce(1).cache()
        for changes in (
            [(1, 1, False), (2, 2, False), (3, 3, False)],
            [(1, 4, False), (2, 5, True), (4, 6, False)],
        )
    ]

    def write(path: Path, number: int) -> None:
        options = {"order_by": "n", "deleted": "gone", "files_max": 1}
        open_sink(kind, path, sink_id="s", mode="upsert", keys=["id"], options=options)(rows[number], number)

    def act(path: Path) -> None:
        write(path, 1)

    def check(path: Path, where: str) -> None:
        assert ids(kind, path) in ([1, 2, 3], [1, 3, 4]), where
        act(path)
        assert ids(kind, path) == [1, 3, 4], where
        assert leftovers(path) == [], where

    crashes.prepare(lambda path: write(path, 0))
    crashes.run(act, check)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_second_process_of_the_same_sink_cannot_make_the_first_one_commit_what_is_gone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: Mode
) -> None:
    path = tmp_path / "table"
    upsert = {"keys": ["id"], "options": {"order_by": "time"}} if mode == "upsert" else {}
    write = open_sink(kind, path, sink_id="s", mode=mode, **upsert)  # type: ignore[arg-type]
    write(batch(spark, 0, 4), 0)
    module = import_module(f"odradek.spark.lake.{kind}")
    stage = module.stage

    def stage_and_lose(*arguments: Any, **named: Any) -> Any:
        files = stage(*arguments, **named)
        remove_abandoned(path, "s")  # as the other one does when it begins
        return files

    with monkeypatch.context() as patched:
        patched.setattr(module, "stage", stage_and_lose)
        with pytest.raises(LakeError, match="is gone: another process runs with the same sink id"):
            write(batch(spark, 4, 8), 1)
    assert ids(kind, path) == list(range(4))
    write(batch(spark, 4, 8), 1)
    assert ids(kind, path) == list(range(8))


@pytest.mark.parametrize("kind", ["parquet", "iceberg"])  # Delta's is one call of deltalake's
@pytest.mark.parametrize("partition_by", [[], ["date"]])
def test_a_compaction_loses_and_doubles_nothing_wherever_it_was_killed(
    spark: SparkSession, kind: str, crashes: Crashes, partition_by: list[str]
) -> None:
    frames = [batch(spark, 4 * number, 4 * number + 4).cache() for number in range(2)]

    def fill(path: Path) -> None:
        for number, frame in enumerate(frames):
            open_sink(kind, path, sink_id="s", partition_by=partition_by)(frame, number)

    def act(path: Path) -> None:
        compact(kind, path)

    def check(path: Path, where: str) -> None:
        assert ids(kind, path) == list(range(8)), where
        act(path)
        assert ids(kind, path) == list(range(8)), where

    crashes.prepare(fill)
    crashes.run(act, check)
