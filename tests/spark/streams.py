"""Streaming queries for tests: what they bring, by where it came from, and where their checkpoints are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Place = tuple[str, int, int]  # topic, partition, offset


class Seen:
    """What a query has brought, by where it came from; in the order of the batches."""

    def __init__(self) -> None:
        self.batches: list[Counter[Place]] = []
        self.values: dict[Place, bytes] = {}
        self.failures_left = 0

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if self.failures_left and rows:
            self.failures_left -= 1
            raise RuntimeError("the sink is out of order")
        self.batches.append(Counter((row.topic, row.partition, row.offset) for row in rows))
        self.values |= {(row.topic, row.partition, row.offset): bytes(row.value) for row in rows}

    @property
    def places(self) -> Counter[Place]:
        return sum(self.batches, Counter())


class Streams:
    """Queries over one broker, with checkpoints below one directory."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._directory = directory

    def frame(self, **options: str) -> DataFrame:
        source = self._spark.readStream.format("odradek").option("kafka.bootstrap.servers", self._bootstrap)
        return source.options(**{name.replace("_", "."): value for name, value in options.items()}).load()

    def start(self, frame: DataFrame, seen: Seen, *, ends: bool = True, name: str = "query") -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(self._directory / name))
        return (writer.trigger(availableNow=True) if ends else writer.trigger(processingTime="0 seconds")).start()

    def run(self, frame: DataFrame, seen: Seen, *, name: str = "query") -> list[Any]:
        """Read what there is; return the progress of each batch."""
        query = self.start(frame, seen, name=name)
        assert query.awaitTermination(120)
        return list(query.recentProgress)

    def checkpointed(self, batch: int, *, name: str = "query") -> Any:
        """The offset of a query's only source at the end of a batch."""
        text = (self._directory / name / "offsets" / str(batch)).read_text(encoding="utf-8")
        return json.loads(text.splitlines()[2])


def each_once(topic: str, *counts: int) -> Counter[Place]:
    """Every record of a topic whose partitions have so many."""
    return Counter({(topic, number, offset): 1 for number, count in enumerate(counts) for offset in range(count)})
