"""Streams that a test kills: `python -m tests.spark.copying BOOTSTRAP FROM TO DIRECTORY`.

A topic is copied to another one and to a lake table, both at the same time. In the middle of a micro-batch the task
of partition 1 waits for the file DIRECTORY/gate, while that of partition 0 goes on: whoever kills the driver then kills
it when some rows of a batch have been written and others have not.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from odradek.spark import session
from odradek.spark.lake import open_sink

ROWS_A_BATCH = 1_000  # of each of the two partitions
GATED_ROW = "1-1500"  # in the second batch
GATE_SECONDS_MAX = 120.0


def start(spark: SparkSession, bootstrap: str, source: str, target: str, directory: Path) -> list[StreamingQuery]:
    """Start the copies; their checkpoints are in DIRECTORY/checkpoints, by the name of what they write."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    limit = {"maxOffsetsPerTrigger": str(2 * ROWS_A_BATCH)}
    records = spark.readStream.format("odradek").options(**options, **limit).load()
    gate = str(directory / "gate")

    @sql.udf(returnType="string", useArrow=False)
    def passed(value: str) -> str:
        if value == GATED_ROW:
            wait_for(gate)
        return value

    rows = records.select("key", passed(sql.col("value").cast("string")).alias("value"))
    return [_to_topic(rows, bootstrap, target, directory), _to_lake(rows, directory)]


def _to_topic(rows: DataFrame, bootstrap: str, target: str, directory: Path) -> StreamingQuery:
    writer = rows.writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    return writer.option("checkpointLocation", str(directory / "checkpoints" / "topic")).start()


def _to_lake(rows: DataFrame, directory: Path) -> StreamingQuery:
    write = open_sink("parquet", directory / "lake", sink_id="copy")
    checkpoint = str(directory / "checkpoints" / "lake")
    return rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def wait_for(path: str) -> None:
    """Wait until a file is there, and fail if it does not come."""
    pause = threading.Event()
    for _ in range(int(GATE_SECONDS_MAX / 0.05)):
        if Path(path).exists():
            return
        pause.wait(0.05)
    raise TimeoutError(path)


def main() -> None:
    """Copy what is there; say so when all of it is."""
    bootstrap, source, target, directory = sys.argv[1:]
    # A waiting task holds a core: there must be some for the others.
    spark = session("copying", master="local[8]", conf={"spark.sql.shuffle.partitions": "2"})
    queries = start(spark, bootstrap, source, target, Path(directory))
    for query in queries:
        query.processAllAvailable()
    print("copied", flush=True)
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
