"""A job that tests run on several kinds of Spark: `python -m tests.spark.job MASTER BOOTSTRAP FROM TO DIRECTORY`.

It reads a topic in a batch and as a stream, writes both to a topic, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from odradek.spark import session


def run(spark: SparkSession, bootstrap: str, source: str, target: str, directory: str) -> dict[str, Any]:
    """Sum up a topic of numbers, then copy their doubles to `<target>-batch` and `<target>-stream`."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    table = spark.read.format("odradek").options(**options).load()
    by_partition = table.groupBy("partition").agg(sql.count("*").alias("rows"), sql.sum(_number()).alias("total"))
    sums = {row["partition"]: (row["rows"], row["total"]) for row in by_partition.collect()}

    sink = {"kafka.bootstrap.servers": bootstrap}
    _copied(table).write.format("odradek").options(**sink, topic=f"{target}-batch").mode("append").save()

    stream = _copied(spark.readStream.format("odradek").options(**options, maxOffsetsPerTrigger="1000").load())
    writer = stream.writeStream.format("odradek").options(**sink, topic=f"{target}-stream")
    query = writer.option("checkpointLocation", directory).trigger(availableNow=True).start()
    query.awaitTermination()
    return {"sums": sums, "batches": len(query.recentProgress), "executors": _executors(spark)}


def _number() -> Any:
    return sql.col("value").cast("string").cast("long")


def _copied(table: DataFrame) -> DataFrame:
    return table.select("key", (_number() * 2).cast("string").alias("value"))


def _executors(spark: SparkSession) -> int:
    """The processes that run tasks, the driver not counted."""
    context: Any = spark.sparkContext._jsc
    return int(context.sc().getExecutorMemoryStatus().size()) - 1


def main() -> None:
    """Run the job on a cluster of its own and print what it saw."""
    master, *rest = sys.argv[1:]
    conf = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    spark = session("a job", master=master, conf=conf)
    print(json.dumps(run(spark, *rest)))
    spark.stop()


if __name__ == "__main__":
    main()
