"""A broker that is killed under a query and comes back: the query waits, and every record comes once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.client.sync import Client
from odradek.records.record import NewRecord
from tests.process import BrokerProcess, wait_until
from tests.spark.streams import Seen, Streams, each_once

VALUE = bytes(10_000)
COUNT = 4_000  # 40 MB: several answers of a broker, so that some are still to come when it dies


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def fill(process: BrokerProcess, topic: str, count: int, value: bytes) -> None:
    """Produce to a broker that may just have come back."""
    with Client(process.bootstrap) as client, client.producer() as producer:
        producer.send_many(topic, [NewRecord(value)] * count, partition=0)


def wait_in_the_middle(signals: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand a task's rows on, but hold it up after the first ones until the broker has been killed."""
    reached, go_on, pause = Path(signals, "reached"), Path(signals, "go on"), threading.Event()
    for batch in batches:
        reached.touch()
        while not go_on.exists():
            pause.wait(0.01)
        yield batch


def test_a_broker_killed_in_the_middle_of_a_micro_batch_and_between_two(
    spark: SparkSession, dying: BrokerProcess, tmp_path: Path
) -> None:
    topic, seen, signals = "orders", Seen(), tmp_path / "signals"
    signals.mkdir()
    with Client(dying.bootstrap) as client:
        client.admin.create_topic(topic)
    fill(dying, topic, COUNT, VALUE)
    streams = Streams(spark, dying.bootstrap, tmp_path)

    class Held(Seen):
        def take(self, frame: DataFrame, batch: int) -> None:
            hold = partial(wait_in_the_middle, str(signals))
            seen.take(frame.mapInArrow(hold, frame.schema), batch)

    frame = streams.frame(subscribe=topic, startingOffsets="earliest", columns="topic,partition,offset,value")
    query = streams.start(frame, Held(), ends=False)
    wait_until((signals / "reached").exists, 60, "the first rows of a task")
    dying.kill()
    (signals / "go on").touch()
    wait_until(lambda: query.status["isTriggerActive"], 10, "the batch")
    assert not seen.batches
    dying.start()
    wait_until(lambda: seen.batches, 120, "the batch that was interrupted")
    assert seen.places == each_once(topic, COUNT)

    dying.kill()  # now Spark's driver finds nobody who could tell it what is new
    wait_until(lambda: query.status["message"].startswith("Getting offsets"), 30, "the driver asking for offsets")
    assert not query.exception() and not threading.Event().wait(1)
    assert query.isActive
    dying.start()
    fill(dying, topic, 10, b"after")
    wait_until(lambda: (topic, 0, COUNT + 9) in seen.values, 120, "what came after")
    query.stop()
    assert seen.places == each_once(topic, COUNT + 10)
    assert Counter(seen.values.values()) == {VALUE: COUNT, b"after": 10}
