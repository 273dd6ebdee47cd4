"""One side of the comparison: a process with a Spark session that runs the jobs it is sent, one at a time.

`ours` and `kafka` run the same code with the same settings; only the name of the format differs, and the jars that
Spark's own connector needs. Jobs come and results go over a Unix socket, a line of JSON each.
"""

from __future__ import annotations

import argparse
import gc
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from odradek.spark import session
from odradek.spark.lake import open_sink

MASTER = "local[2]"
MEMORY = "3g"
STREAM_SECONDS = 300
ROW = "key binary, value binary"

Job = dict[str, Any]
Result = dict[str, Any]


class Driver:
    """Runs jobs, gives seconds and rows."""

    def __init__(self, spark: SparkSession, source: str, servers: str) -> None:
        self._spark = spark
        self._source = source
        self._options = {"kafka.bootstrap.servers": servers}

    def version(self) -> str:
        """Spark's and Java's."""
        return (
            f"Spark {self._spark.version}, Java {self._java().System.getProperty('java.version')}, {MASTER}, {MEMORY}"
        )

    def _java(self) -> Any:
        return self._spark._jvm

    def run(self, job: Job) -> Result:
        """One job; what the last one left in memory is cleared away first."""
        gc.collect()
        self._java().System.gc()
        kind: Callable[..., Result] = getattr(self, job.pop("kind"))
        return kind(**job)

    # The jobs.

    def digest(self, topic: str) -> Result:
        """What a batch read of a topic gives, in a few numbers: both sides must agree. Not measured."""
        rows = self._topic(topic)
        sums = [f.sum(column) for column in (f.length("key"), f.length("value"), f.crc32("value"), "offset")]
        found = rows.agg(f.count("*"), *sums, f.countDistinct("topic", "partition")).first()
        assert found is not None
        return {"rows": found[0], "digest": list(found)}

    def read(self, topic: str) -> Result:
        """A batch read; every column of every row is made and thrown away."""
        return _timed(lambda: self._topic(topic).write.format("noop").mode("overwrite").save())

    def stream(self, topic: str, rows_max: int, checkpoint: str) -> Result:
        """A stream that reads what is there in micro-batches, and ends."""
        rows = self._stream(topic, rows_max)
        return self._query(rows.writeStream.format("noop"), checkpoint)

    def archive(self, topic: str, rows_max: int, checkpoint: str, lake: str) -> Result:
        """A topic as parquet files, in a directory a day: by our lake sink on our side."""
        if self._source != "odradek":
            return self.parquet(topic, rows_max, checkpoint, lake)
        compression = {"compression": "snappy"}  # as Spark's file sink has it; ours has zstd unless told
        keep = open_sink("parquet", lake, sink_id="bench", partition_by=["date"], options=compression)
        return self._query(self._dated(topic, rows_max).writeStream.foreachBatch(keep), checkpoint)

    def parquet(self, topic: str, rows_max: int, checkpoint: str, lake: str) -> Result:
        """The same by Spark's own file sink on both sides."""
        writer = self._dated(topic, rows_max).writeStream.format("parquet").partitionBy("date")
        return self._query(writer.option("path", lake), checkpoint)

    def write(self, files: str, topic: str) -> Result:
        """Rows of parquet files into a topic."""
        rows = self._spark.read.schema(ROW).parquet(files)
        writer = rows.write.format(self._source).mode("append").options(**self._options).option("topic", topic)
        return _timed(writer.save)

    def write_stream(self, files: str, topic: str, checkpoint: str) -> Result:
        """The same as a stream, in micro-batches of two files."""
        rows = self._spark.readStream.schema(ROW).option("maxFilesPerTrigger", 2).parquet(files)
        writer = rows.writeStream.format(self._source).options(**self._options).option("topic", topic)
        return self._query(writer, checkpoint)

    # What they share.

    def _topic(self, topic: str) -> DataFrame:
        return self._spark.read.format(self._source).options(**self._options).option("subscribe", topic).load()

    def _stream(self, topic: str, rows_max: int) -> DataFrame:
        reader = self._spark.readStream.format(self._source).options(**self._options).option("subscribe", topic)
        return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows_max).load()

    def _dated(self, topic: str, rows_max: int) -> DataFrame:
        return self._stream(topic, rows_max).withColumn("date", f.to_date("timestamp"))

    def _query(self, writer: DataStreamWriter, checkpoint: str) -> Result:
        found: list[StreamingQuery] = []

        def run() -> None:
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            found.append(query)
            if not query.awaitTermination(STREAM_SECONDS):
                query.stop()
                raise TimeoutError(f"the stream was not done after {STREAM_SECONDS} s")

        result = _timed(run)
        batches = [(each["numInputRows"], each["durationMs"]["triggerExecution"]) for each in found[0].recentProgress]
        return result | {"rows": sum(rows for rows, _ in batches), "batches": [each for each in batches if each[0]]}


def _timed(run: Callable[[], object]) -> Result:
    begin = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - begin}


def main() -> None:
    """Make the session, say so, serve jobs until the other end hangs up."""
    parser = argparse.ArgumentParser()
    for name in ("--source", "--servers", "--jars", "--socket", "--local"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    conf = {"spark.driver.memory": MEMORY, "spark.local.dir": options.local}
    conf["spark.sql.streaming.numRecentProgressUpdates"] = "1000"
    if options.jars:
        conf["spark.jars"] = options.jars
    Path(options.local).mkdir(parents=True, exist_ok=True)
    spark = session("bench", master=MASTER, conf=conf)
    driver = Driver(spark, options.source, options.servers)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(options.socket)
        with connection.makefile("rw", encoding="utf-8") as lines:
            _serve(driver, lines)
    spark.stop()


def _serve(driver: Driver, lines: TextIO) -> None:
    _answer(lines, {"version": driver.version()})
    for line in lines:
        try:
            _answer(lines, driver.run(json.loads(line)))
        except Exception as error:  # whatever Spark says is the result
            _answer(lines, {"error": str(error)})


def _answer(lines: TextIO, result: Result) -> None:
    lines.write(json.dumps(result) + "\n")
    lines.flush()


if __name__ == "__main__":
    main()
