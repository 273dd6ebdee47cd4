"""What a sink is told is checked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.spark.errors import OptionError, SparkError
from odradek.spark.lake import LakeError, compact, open_sink
from odradek.spark.lake.settings import local_path, parse_options
from odradek.spark.pipelines.ready.ddl import Column, columns_of


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "parqet"}, "did you mean 'parquet'?"),
        ({"mode": "overwrite"}, "mode is one of append, upsert"),
        ({"sink_id": "a/b"}, "cannot be the id of a sink"),
        ({"sink_id": ""}, "cannot be the id of a sink"),
        ({"path": "s3a://bucket/orders"}, "mount it"),
        ({"path": "file://host/orders"}, "mounted"),
        ({"options": {"compression": "zip"}}, "compression is one of"),
        ({"options": {"merge_schemas": "true"}}, "did you mean 'merge_schema'?"),
        ({"options": {"nonsense": "1"}}, "there are merge_schema"),
        ({"options": {"merge_schema": "perhaps"}}, "true or false"),
        ({"options": {"compact_every": "often"}}, "a number from 0 on"),
        ({"options": {"compact_every": -1}}, "a number from 0 on"),
        ({"partition_by": ["date", "date"]}, "twice"),
        ({"partition_by": [""]}, "column names"),
        ({"keys": ["id"]}, "this sink appends"),
        ({"options": {"order_by": "offset"}}, "this sink appends"),
        ({"mode": "upsert", "options": {"order_by": "offset"}}, "needs keys"),
        ({"mode": "upsert", "keys": ["id"]}, "needs the option order_by"),
        (
            {"mode": "upsert", "keys": ["id"], "options": {"order_by": "n"}, "partition_by": ["date"]},
            "does not take partition_by",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    given = {"kind": "parquet", "path": tmp_path / "table", "sink_id": "s", **change}
    with pytest.raises(LakeError, match=complaint.replace("?", r"\?")) as raised:
        open_sink(given.pop("kind"), given.pop("path"), **given)
    assert isinstance(raised.value, OptionError)
    assert isinstance(raised.value, SparkError)


def test_opening_a_sink_touches_nothing(tmp_path: Path) -> None:
    open_sink("delta", tmp_path / "table", sink_id="s", partition_by=["date"])
    assert list(tmp_path.iterdir()) == []


def test_options_may_be_texts() -> None:
    options = parse_options({"merge_schema": "true", "order_by": "a, b", "retain_hours": "1.5", "catalog.uri": "x"})
    assert options.merge_schema
    assert options.order_by == ("a", "b")
    assert options.retain_hours == 1.5
    assert options.catalog == {"uri": "x"}


def test_a_path_may_be_a_file_address() -> None:
    assert local_path("file:///lake/a%20b") == Path("/lake/a b")
    assert local_path("lake") == Path.cwd() / "lake"


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_that_does_not_exist_cannot_be_compacted(tmp_path: Path, kind: str) -> None:
    with pytest.raises(LakeError, match="no "):
        compact(kind, tmp_path / "table")


def test_the_columns_of_a_list_are_found() -> None:
    ddl = (
        "id BIGINT, `a,b` STRING NOT NULL, lines ARRAY<STRUCT<x: INT, y: DECIMAL(10,2)>>, at: TIMESTAMP COMMENT 'x, y'"
    )
    assert columns_of(ddl) == [
        Column("id", "BIGINT"),
        Column("a,b", "STRING"),
        Column("lines", "ARRAY<STRUCT<x: INT, y: DECIMAL(10,2)>>"),
        Column("at", "TIMESTAMP"),
    ]
    with pytest.raises(ValueError, match="'id' is no column"):
        columns_of("id")
