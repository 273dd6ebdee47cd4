"""Small files become few, rows stay what they were, and readers are not disturbed more than the format must."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odradek.spark.lake import CompactionReport, LakeError, compact, open_sink, read_table, vacuum
from odradek.spark.lake.merging import bins, merge, merged_name
from tests.spark.lake.lake_tools import DAYS, KINDS, batch, file_count, iceberg_table, ids, plain_read


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a lake" / "orders"


@pytest.mark.parametrize("partition_by", [[], ["date"]])
def test_small_files_are_merged_by_partition(
    spark: SparkSession, kind: str, path: Path, partition_by: list[str]
) -> None:
    write = open_sink(kind, path, sink_id="s", partition_by=partition_by)
    for number in range(3):
        write(batch(spark, 10 * number, 10 * number + 10), number)
    before = sorted(plain_read(kind, path).to_pylist(), key=lambda row: row["id"])
    folders = DAYS if partition_by else 1
    assert compact(kind, path) == CompactionReport(3 * folders, folders, folders)
    assert file_count(kind, path) == folders
    assert sorted(plain_read(kind, path).to_pylist(), key=lambda row: row["id"]) == before
    assert compact(kind, path) == CompactionReport()
    write(batch(spark, 20, 30), 2)
    write(batch(spark, 30, 40), 3)
    assert ids(kind, path) == list(range(40))
    assert sorted(row.id for row in read_table(spark, kind, path).collect()) == list(range(40))


def test_a_sink_compacts_every_so_many_batches(spark: SparkSession, kind: str, path: Path) -> None:
    options = {"compact_every": 3, "retain_hours": 0, "files_max": 1}
    write = open_sink(kind, path, sink_id="s", options=options)
    counts = []
    for number in range(4):
        write(batch(spark, number, number + 1), number)
        counts.append(file_count(kind, path))
    assert counts == [1, 2, 1, 2]
    assert ids(kind, path) == [0, 1, 2, 3]
    assert len(list(path.rglob("*.parquet"))) == 2, "files of older versions are gone"


def test_columns_that_came_later_are_null_in_what_was_before(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", options={"merge_schema": "true"})
    write(batch(spark, 0, 2), 0)
    write(batch(spark, 2, 4, "named_struct('a', array(id)) AS more"), 1)
    compact(kind, path)
    assert file_count(kind, path) == 1
    rows = {row["id"]: row["more"] for row in plain_read(kind, path).to_pylist()}
    assert rows == {0: None, 1: None, 2: {"a": [2]}, 3: {"a": [3]}}


def test_whoever_lists_a_parquet_folder_during_compactions_sees_every_row_once(spark: SparkSession, path: Path) -> None:
    """One partition: what the swap of its folder promises."""
    write = open_sink("parquet", path, sink_id="s", partition_by=["date"])
    write(batch(spark, 0, 20).where("date = '2026-01-01'"), 0)
    done, seen, missed = threading.Event(), set(), 0

    def look() -> None:
        nonlocal missed
        while not done.is_set():
            try:
                found = [
                    number for file in path.glob("date=*/*.parquet") for number in pq.read_table(file)["id"].to_pylist()
                ]
            except FileNotFoundError:  # it had listed the files of the folder before, and opened them after the swap
                missed += 1
            else:
                seen.add(tuple(sorted(found)))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(1, 6):
            write(batch(spark, 20 * number, 20 * number + 20).where("date = '2026-01-01'").coalesce(1), number)
            compact("parquet", path)
    finally:
        done.set()
        reader.join()
    whole = [tuple(range(0, 20 * count + 20, 2)) for count in range(6)]
    assert seen <= set(whole)
    assert whole[-1] == tuple(ids("parquet", path))


def test_batches_and_compactions_at_once_lose_and_double_nothing(spark: SparkSession, kind: str, path: Path) -> None:
    write = open_sink(kind, path, sink_id="s", partition_by=["date"])
    write(batch(spark, 0, 4), 0)
    done = threading.Event()
    failures: list[Exception] = []

    def compact_on() -> None:
        try:
            while not done.is_set():
                compact(kind, path)
        except Exception as error:
            failures.append(error)

    compactor = threading.Thread(target=compact_on)
    compactor.start()
    try:
        for number in range(1, 6):
            write(batch(spark, 4 * number, 4 * number + 4), number)
    finally:
        done.set()
        compactor.join()
    assert failures == []
    assert ids(kind, path) == list(range(24))


def test_older_versions_can_be_read_until_they_are_vacuumed(spark: SparkSession, path: Path) -> None:
    write = open_sink("iceberg", path, sink_id="s")
    write(batch(spark, 0, 2), 0)
    write(batch(spark, 2, 4), 1)
    first = iceberg_table(path).snapshots()[0].snapshot_id
    compact("iceberg", path)
    assert iceberg_table(path).scan(snapshot_id=first).to_arrow().num_rows == 2
    assert vacuum("iceberg", path, retain_hours=1) == 0
    assert vacuum("iceberg", path, retain_hours=0) > 2
    assert [snapshot.snapshot_id for snapshot in iceberg_table(path).snapshots()] != [first]
    assert ids("iceberg", path) == [0, 1, 2, 3]


def test_a_file_system_that_cannot_swap_folders_is_named(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = open_sink("parquet", path, sink_id="s")
    write(batch(spark, 0, 2), 0)
    write(batch(spark, 2, 4), 1)

    class OldLibrary:
        def __init__(self, *_: object, **__: object) -> None:
            pass

    monkeypatch.setattr("odradek.spark.lake.exchange.ctypes.CDLL", OldLibrary)
    with pytest.raises(LakeError, match="use Delta or Iceberg"):
        compact("parquet", path)
    monkeypatch.undo()
    assert ids("parquet", path) == [0, 1, 2, 3]
    assert vacuum("parquet", path, retain_hours=0) == 1, "what the attempt left beside the table is gone"


def test_files_are_grouped_in_order_up_to_the_target() -> None:
    sizes = [(Path(name), size) for name, size in (("a", 40), ("b", 50), ("big", 90), ("c", 20), ("d", 70), ("e", 40))]
    assert bins(sizes, 100) == [[Path("a"), Path("b")], [Path("c"), Path("d")]]
    assert bins(sizes[:1], 100) == []
    assert bins([], 100) == []


def test_what_is_much_larger_than_the_rest_is_not_rewritten_again_and_again() -> None:
    def named(*sizes: int) -> list[tuple[Path, int]]:
        return [(Path(str(number)), size) for number, size in enumerate(sizes)]

    assert bins(named(70, 10, 10), 100, thrifty=True) == [[Path("1"), Path("2")]]
    assert bins(named(60, 10, 10, 10), 100, thrifty=True) == [[Path("0"), Path("1"), Path("2"), Path("3")]]
    assert bins(named(70, 12, 3), 100, thrifty=True) == []
    assert bins(named(70, 12, 3), 100) == [[Path("0"), Path("1"), Path("2")]]


def test_the_names_of_merged_files_are_in_order_and_do_not_grow() -> None:
    first = merged_name(Path("part-s-0000000003-00000.parquet"))
    again = merged_name(Path(first))
    assert "part-s-0000000002-00009.parquet" < first < "part-s-0000000003-00001.parquet"
    assert first != again
    assert len(first) == len(again)


def test_merging_keeps_the_order_and_writes_row_groups_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.spark.lake.merging.ROW_GROUP_BYTES", 1000)
    monkeypatch.setattr("odradek.spark.lake.merging.READ_ROWS", 50)
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({"id": range(100 * number, 100 * number + 100)}), file)
    merge(files, tmp_path / "merged.parquet", "zstd")
    assert pq.read_table(tmp_path / "merged.parquet")["id"].to_pylist() == list(range(300))
    assert pq.read_metadata(tmp_path / "merged.parquet").num_row_groups == 2
