"""Streaming reads of a channel by a real Spark, with no broker: every record once, through restarts and delays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from odradek.clock import SystemClock
from tests.process import wait_until
from tests.spark.store.channels import NOON_MS, Channel
from tests.spark.streams import Seen, Streams, each_once


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    (tmp_path / "store").mkdir()
    return Channel((tmp_path / "store").as_uri())


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, "", tmp_path)


def frame(spark: SparkSession, channel: Channel, **options: str) -> DataFrame:
    given = {"store": channel.url, "channel": "orders", "readDelay": "0", "columns": "topic,partition,offset,value"}
    return spark.readStream.format("odradek").options(**given | options).load()


def test_every_record_comes_once_through_restarts_limits_and_late_objects(
    spark: SparkSession, channel: Channel, streams: Streams
) -> None:
    seen = Seen()
    channel.put_at(*range(20))
    channel.put_at(*range(10), partition=1)
    source = frame(spark, channel, startingOffsets="earliest", maxBytesPerTrigger="1000")
    streams.run(source, seen)
    assert len(seen.batches) > 1
    assert seen.places == each_once("orders", 20, 10)
    assert streams.checkpointed(0)["from"]["slice"] == 0

    # By the clock of the machine, and now of the publishers too, these are late; they get marks.
    channel.now_ms = SystemClock().now_ms
    channel.put_at(*range(20, 30))
    now_s = (channel.now_ms() - NOON_MS) / 1000
    channel.put_at(now_s, now_s + 1, partition=1)
    seen.failures_left = 1
    with pytest.raises(StreamingQueryException, match="the sink is out of order"):
        streams.start(source, seen).awaitTermination(120)
    channel.put_at(40, now_s + 2)  # before the batch is repeated
    streams.run(source, seen)
    assert seen.places == each_once("orders", 32, 12)
    assert seen.values["orders", 0, 30] == f"at {NOON_MS + 40_000}".encode()
    streams.run(source, seen)
    assert seen.places == each_once("orders", 32, 12)


def test_a_running_query_sees_what_comes(spark: SparkSession, channel: Channel, streams: Streams) -> None:
    seen = Seen()
    channel.now_ms = SystemClock().now_ms
    before_s = (channel.now_ms() - NOON_MS) / 1000 - 100
    channel.stored_at(before_s, channel.put_at(before_s))
    query = streams.start(frame(spark, channel, readDelay="2s"), seen, ends=False)
    try:
        wait_until(lambda: bool(query.recentProgress), 60, "the first look")
        for count in (1, 2):
            channel.put_at((channel.now_ms() - NOON_MS) / 1000)
            wait_until(lambda number=count: len(seen.values) == number, 60, f"record {count}")
    finally:
        query.stop()
    assert seen.places == Counter({("orders", 0, 1): 1, ("orders", 0, 2): 1})
