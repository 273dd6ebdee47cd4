"""Streaming reads by a real Spark: every record once, through restarts, races and growing topics."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from tests.process import wait_until
from tests.spark.conftest import Produce
from tests.spark.streams import Seen, Streams, each_once


@pytest.fixture
def streams(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Streams:
    return Streams(spark, bootstrap, tmp_path)


def test_every_record_comes_once_through_restarts_limits_and_more_partitions(
    streams: Streams, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    topic, group, seen = new_name(), new_name(), Seen()
    client.admin.create_topic(topic, 2)
    for number, codec in enumerate(Codec):
        produce(topic, [f"{number}"] * 20, partition=number % 2, codec=codec)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40", "kafka_group_id": group}
    frame = streams.frame(subscribe=topic, **options)
    progress = streams.run(frame, seen)
    assert [sum(batch.values()) for batch in seen.batches] == [40, 40, 20]
    assert seen.places == each_once(topic, 60, 40)
    assert json.loads(progress[0].sources[0].latestOffset)[topic] == {"0": 60, "1": 40}
    client.call(client.admin.inner.add_partitions(topic, 3))
    produce(topic, ["new"] * 15, partition=2)
    produce(topic, ["more"] * 5, partition=0)
    streams.run(frame, seen)  # a query of its own, that knows nothing but the checkpoint
    assert seen.places == each_once(topic, 65, 40, 15)
    committed = client.admin.group_offsets(group)
    assert {key.partition: value.offset for key, value in committed.items()} == {0: 65, 1: 40, 2: 15}
    assert seen.values[topic, 0, 0] == b"0" and seen.values[topic, 2, 14] == b"new"


def test_a_query_that_starts_at_the_end_loses_nothing_to_a_producer_that_does_not_wait(
    streams: Streams, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    """Batch 0 fails and is replayed by another query: by then "latest" would be somewhere else."""
    topic, seen, enough = new_name(), Seen(), threading.Event()
    client.admin.create_topic(topic)
    produce(topic, ["before"] * 10)

    def keep_producing() -> None:
        while not enough.is_set():
            produce(topic, ["x"] * 10)

    producer = threading.Thread(target=keep_producing)
    producer.start()
    try:
        frame = streams.frame(subscribe=topic)
        seen.failures_left = 1
        failing = streams.start(frame, seen, ends=False)
        with pytest.raises(StreamingQueryException, match="the sink is out of order"):
            failing.awaitTermination(60)
        start = streams.checkpointed(0)["$from"][topic]["0"]
        query = streams.start(frame, seen, ends=False)
        wait_until(lambda: len(seen.batches) >= 3, 60, "three batches")
    finally:
        enough.set()
        producer.join()
    end = client.admin.list_offsets({TopicPartition(topic, 0): "end"})[TopicPartition(topic, 0)].offset
    wait_until(lambda: (topic, 0, end - 1) in seen.values, 60, "the last record")
    query.stop()
    assert start >= 10
    assert seen.places == Counter({(topic, 0, offset): 1 for offset in range(start, end)})


def test_partitions_and_topics_that_appear_while_a_query_runs_are_picked_up(
    streams: Streams, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    prefix, seen = new_name(), Seen()
    first, second = f"{prefix}-1", f"{prefix}-2"
    client.admin.create_topic(first)
    query = streams.start(streams.frame(subscribePattern=f"{prefix}-.*", startingOffsets="earliest"), seen, ends=False)
    produce(first, ["x"] * 5)
    wait_until(lambda: (first, 0, 4) in seen.values, 60, "the first topic")
    client.call(client.admin.inner.add_partitions(first, 2))
    produce(first, ["y"] * 5, partition=1)
    client.admin.create_topic(second)
    produce(second, ["z"] * 5)
    wait_until(lambda: (first, 1, 4) in seen.values and (second, 0, 4) in seen.values, 60, "all topics")
    query.stop()
    assert seen.places == each_once(first, 5, 5) + each_once(second, 5)


def test_a_source_without_news_repeats_nothing_while_another_has_some(
    streams: Streams, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    quiet, busy, seen = new_name(), new_name(), Seen()
    client.admin.create_topic(quiet)
    client.admin.create_topic(busy)
    produce(quiet, ["q"] * 3)
    produce(busy, ["b"] * 9)
    both = streams.frame(subscribe=quiet, startingOffsets="earliest").union(
        streams.frame(subscribe=busy, startingOffsets="earliest", maxOffsetsPerTrigger="4", minPartitions="3")
    )
    streams.run(both, seen)
    produce(busy, ["c"] * 2)
    streams.run(both, seen)
    assert seen.places == each_once(quiet, 3) + each_once(busy, 11)
