"""Rows that break off are not taken for all rows: with a socket in the place of Spark, and with Spark."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.serializers import SpecialLengths
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.types import StructType

from odradek.spark.errors import SparkError
from odradek.spark.write.task_input import BrokenInputError, whole

ROWS = pa.record_batch({"value": pa.array([b"a", b"b"])})


def arrow_stream(count: int, *, ends: bool) -> bytes:
    """Some batches as the JVM sends them, with Arrow's mark of the end and Spark's, or without."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, ROWS.schema) as writer:
        for _ in range(count):
            writer.write_batch(ROWS)
    data = bytes(out.getvalue().to_pybytes())
    return data + struct.pack(">i", SpecialLengths.END_OF_STREAM) if ends else data[:-8]


def received(data: bytes) -> list[pa.RecordBatch]:
    """Receive rows as PySpark's worker does: below a main function that holds the connection."""
    names: dict[str, Any] = {"__name__": "pyspark.worker"}
    exec("def main(infile, work):\n    return work(infile)", names)  # noqa: S102 - a function of that module
    main: Callable[[BufferedReader, Callable[[BufferedReader], Any]], Any] = names["main"]
    jvm, python = socket.socketpair()
    with jvm, python, python.makefile("rb") as infile:
        jvm.sendall(data)
        jvm.shutdown(socket.SHUT_WR)
        found: list[pa.RecordBatch] = main(
            infile, lambda stream: list(whole(ArrowStreamSerializer().load_stream(stream)))
        )
        return found


@pytest.mark.parametrize("count", [0, 1, 5])
def test_rows_that_end_as_they_should_are_passed_on(count: int) -> None:
    assert received(arrow_stream(count, ends=True)) == [ROWS] * count


@pytest.mark.parametrize("count", [0, 1, 5])
def test_rows_that_break_off_are_noticed(count: int) -> None:
    data = arrow_stream(count, ends=False)
    assert len(list(pa.ipc.open_stream(data))) == count, "Arrow itself sees nothing wrong"
    with pytest.raises(BrokenInputError, match="broke off"):
        received(data)


def test_without_the_connection_nothing_is_read() -> None:
    with pytest.raises(SparkError, match="connection to Spark was not found"):
        list(whole(iter([ROWS])))


class ProbeWriter(DataSourceArrowWriter):
    """Notes how the rows of each task ended."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        notes = Path(self.directory)
        count = 0
        try:
            for batch in whole(iterator):
                count += batch.num_rows
        except BrokenInputError:
            (notes / f"broken-{count}").touch()
            raise
        (notes / f"ended-{count}").touch()
        return WriterCommitMessage()


class Probe(DataSource):
    """A sink that looks at nothing but the end of the rows."""

    @classmethod
    def name(cls) -> str:
        return "probe"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return ProbeWriter(self.options["path"])


def test_spark_ends_the_rows_of_a_task_that_fails_in_another_way(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(Probe)
    good = spark.range(0, 25_000, 1, 1).selectExpr("id")
    good.write.format("probe").mode("append").save(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["ended-25000"]
    bad = good.selectExpr("if(id < 24999, id, raise_error('bad row')) id")
    with pytest.raises(PySparkException, match="bad row"):
        bad.write.format("probe").mode("append").save(str(tmp_path))
    # Spark may kill the process before it notes anything, but not before it has taken the rows so far for all of them.
    assert {path.name for path in tmp_path.iterdir()} <= {"ended-25000", "broken-20000"}
