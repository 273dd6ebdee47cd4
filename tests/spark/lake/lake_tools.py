"""Batches to write, and tables as those see them who know nothing of us: Spark, pyarrow, deltalake, pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

KINDS = ("parquet", "delta", "iceberg")
DAYS = 2


def batch(spark: SparkSession, start: int, end: int, *more: str) -> DataFrame:
    """Rows with the ids of a range, on two days."""
    return spark.range(start, end, 1, 1).selectExpr(
        "id",
        "concat('name ', id) AS name",
        f"date_add(DATE'2026-01-01', CAST(id % {DAYS} AS INT)) AS date",
        "timestamp_micros(1767225600000000 + id) AS time",
        *more,
    )


def iceberg_table(path: Path) -> Table:
    """Load a table as pyiceberg's own documentation does."""
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{path.parent / 'catalog.db'}")
    return catalog.load_table(f"default.{path.name}")


def plain_read(kind: str, path: Path) -> pa.Table:
    """Read a table with its format's own library."""
    if kind == "parquet":
        hive = pyarrow.dataset.partitioning(flavor="hive")
        return pyarrow.dataset.dataset(path, format="parquet", partitioning=hive).to_table()
    if kind == "delta":
        return DeltaTable(path).to_pyarrow_table()
    return iceberg_table(path).scan().to_arrow()


def ids(kind: str, path: Path) -> list[int]:
    """The ids of a table, sorted, so that a row that is there twice shows."""
    if not path.exists():
        return []
    table = plain_read(kind, path)
    return sorted(table.column("id").to_pylist()) if table.num_rows else []


def file_count(kind: str, path: Path) -> int:
    """How many files the current version has."""
    if kind == "parquet":
        return len(list(path.rglob("*.parquet")))
    if kind == "delta":
        return len(DeltaTable(path).file_uris())
    return len(list(iceberg_table(path).scan().plan_files()))


class Killed(BaseException):
    """The process was killed: nothing that handles errors sees this one."""


class Kill:
    """Kills at the n-th of some calls, before or after it is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: Mapping[Any, tuple[str, ...]]) -> None:
        self.made: list[str] = []
        self._deadly: int | None = None
        self._after = False
        for owner, names in calls.items():
            for name in names:
                monkeypatch.setattr(owner, name, self._wrapped(name, getattr(owner, name)))

    def _wrapped(self, name: str, call: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            number = len(self.made)
            self.made.append(name)
            if number == self._deadly and not self._after:
                raise Killed(f"before {name}")
            result = call(*arguments, **named)
            if number == self._deadly:
                raise Killed(f"after {name}")
            return result

        return counted

    @contextmanager
    def at(self, number: int | None, *, after: bool = False) -> Iterator[None]:
        """Kill at a call of the block; None only counts them."""
        self.made, self._deadly, self._after = [], number, after
        try:
            yield
        finally:
            self._deadly = None
