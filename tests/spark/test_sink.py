"""The sink with a real Spark: batch and streaming writes, what it refuses, and what a repetition does."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from odradek.client.partitioner import partition_of_key
from odradek.client.sync import Client
from odradek.model import SINK_GROUPS

NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 345_678, tzinfo=datetime.UTC)
HEADERS = "array<struct<key: string, value: binary>>"


@pytest.fixture
def topic(client: Client, new_name: Callable[[], str]) -> str:
    name = new_name()
    client.admin.create_topic(name, 3)
    return name


def write(frame: DataFrame, bootstrap: str, topic: str | None = None, **options: str) -> None:
    writer = frame.write.format("odradek").option("kafka.bootstrap.servers", bootstrap).options(**options)
    (writer if topic is None else writer.option("topic", topic)).mode("append").save()


def values(client: Client, topic: str) -> Counter[bytes | None]:
    with client.consumer(topic, follow=False) as consumer:
        return Counter(record.value for record in consumer)


def groups(client: Client, containing: str = "") -> list[str]:
    listed = client.call(client.admin.inner.list_groups())
    return [item.group for item in listed if item.group.startswith(SINK_GROUPS) and containing in item.group]


def test_a_dataframe_is_written_with_all_its_columns(
    spark: SparkSession, bootstrap: str, client: Client, topic: str
) -> None:
    rows = [
        ("k", b"v", 2, [("h", b"1"), ("h", None)], NOON),
        (None, b"", None, [], None),
        ("", None, 0, None, NOON),
    ]
    schema = f"key string, value binary, partition int, headers {HEADERS}, timestamp timestamp"
    before = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    write(spark.createDataFrame(rows, schema), bootstrap, topic)
    with client.consumer(topic, follow=False) as consumer:
        found = {record.key: record for record in consumer}
    noon = int(NOON.timestamp() * 1000)
    assert found[b"k"][1:2] + found[b"k"][3:4] + found[b"k"][5:8] == (2, noon, b"k", b"v", (("h", b"1"), ("h", None)))
    assert (found[None].value, found[None].headers, found[None].timestamp >= int(before)) == (b"", (), True)
    assert (found[b""].partition, found[b""].value, found[b""].timestamp) == (0, None, noon)


def test_rows_go_to_the_topics_and_partitions_of_their_columns(
    spark: SparkSession, bootstrap: str, client: Client, new_name: Callable[[], str]
) -> None:
    names = [new_name(), new_name()]
    for name in names:
        client.admin.create_topic(name, 3)
    frame = spark.range(3_000).selectExpr(
        f"if(id % 2 = 0, '{names[0]}', '{names[1]}') topic", "encode(concat('k', id), 'UTF-8') key", "string(id) value"
    )
    write(frame.repartition(2), bootstrap)
    for parity, name in enumerate(names):
        with client.consumer(name, follow=False) as consumer:
            found = {int(record.value or b""): record for record in consumer}
        assert sorted(found) == list(range(parity, 3_000, 2))
        assert all(record.key == b"k%d" % number for number, record in found.items())
        assert all(record.partition == partition_of_key(record.key or b"", 3) for record in found.values())


def test_the_option_topic_wins_over_the_column(spark: SparkSession, bootstrap: str, client: Client, topic: str) -> None:
    write(spark.range(5).selectExpr("'elsewhere' TOPIC", "string(id) Value"), bootstrap, topic)
    assert sum(values(client, topic).values()) == 5
    assert "elsewhere" not in [info.name for info in client.admin.list_topics()]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["string(id) key"], "there is no column 'value'"),
        (["id value"], "'value' is of type bigint: it must be string or binary"),
        (["string(id) value", "id key"], "'key' is of type bigint"),
        (["string(id) value", "id partition"], "'partition' is of type bigint: it must be int"),
        (["string(id) value", "id topic"], "'topic' is of type bigint"),
        (["string(id) value", "'x' headers"], "'headers' is of type string: it must be array<struct"),
        (["string(id) value", "array(struct('a' key, 'b' value)) headers"], "'headers' is of type array"),
        (["string(id) value", "current_date() timestamp"], "'timestamp' is of type date"),
        (["string(id) value", "id offset"], "'offset' cannot be written to a topic"),
    ],
)
def test_columns_that_a_topic_cannot_have_are_refused_before_anything_runs(
    spark: SparkSession, bootstrap: str, client: Client, topic: str, columns: list[str], words: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.range(3).selectExpr(*columns), bootstrap, topic)
    assert words in str(caught.value)
    assert not values(client, topic)


def test_a_write_without_a_topic_is_refused(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(PySparkException, match="set the option topic, or give the rows a column 'topic'"):
        write(spark.range(3).selectExpr("string(id) value"), bootstrap)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["string(id) value", "int(7) partition"], "partition 7 of topic .*, which has partitions 0 to 2"),
        (["string(id) value", "string(null) topic"], "null topic"),
    ],
)
def test_rows_without_a_place_are_named(
    spark: SparkSession, bootstrap: str, topic: str, columns: list[str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        write(spark.range(3).selectExpr(*columns), bootstrap, None if "topic" in columns[1] else topic)


@pytest.fixture
def small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """Let rows reach the sink by tens, so that a task that fails has sent some of them to it."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "10")
    yield
    assert before is not None
    spark.conf.set(setting, before)


@pytest.mark.usefixtures("small_arrow_batches")
def test_a_task_that_fails_leaves_nothing_behind(
    spark: SparkSession, bootstrap: str, client: Client, topic: str
) -> None:
    def fail_at_the_end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1:
            raise ValueError("the last row of the second task is bad")

    frame = spark.range(0, 200, 1, 2).selectExpr("string(id) value")
    with pytest.raises(PySparkException, match="the second task is bad"):
        write(frame.mapInArrow(fail_at_the_end, "value string"), bootstrap, topic)
    write(spark.range(1_000, 1_001).selectExpr("string(id) value"), bootstrap, topic)
    left = values(client, topic)
    assert left.pop(b"1000") == 1
    assert all(int(value or b"") < 100 for value in left), "rows of the task that failed are in the topic"
    assert len(left) in (0, 100), "the other task is there as a whole, or not at all"


def test_a_batch_write_leaves_no_group_behind(spark: SparkSession, bootstrap: str, client: Client, topic: str) -> None:
    write(spark.range(0, 100, 1, 2).selectExpr("string(id) value"), bootstrap, topic)
    assert not [group for group in groups(client) if topic in str(client.admin.group_offsets(group))]
    assert sum(values(client, topic).values()) == 100


def test_a_named_write_that_is_repeated_writes_nothing(
    spark: SparkSession, bootstrap: str, client: Client, topic: str
) -> None:
    frame = spark.range(0, 5_000, 1, 2).selectExpr("string(id % 1000) value")
    for _ in range(3):
        write(frame, bootstrap, topic, sinkId=topic, batchId="4")
    expected = Counter(b"%d" % (number % 1_000) for number in range(5_000))
    assert values(client, topic) == expected
    write(frame, bootstrap, topic, sinkId=topic, batchId="5")
    assert values(client, topic) == expected + expected
    write(frame, bootstrap, topic, sinkId=topic, batchId="3")
    assert values(client, topic) == expected + expected
    assert len(groups(client, topic)) == 2


class Flow:
    """A query that copies lines of files to a topic, and what it needs to start again."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        self.input = directory / "input"
        self.checkpoint = directory / "checkpoint"
        self.input.mkdir()

    def add(self, name: str, lines: list[str]) -> None:
        hidden = self.input / f".{name}"  # Spark does not look at it before it has its name
        hidden.write_text("\n".join(lines), encoding="utf-8")
        hidden.rename(self.input / name)

    def lines(self) -> DataFrame:
        return self.spark.readStream.format("text").load(str(self.input))

    def run(self) -> StreamingQuery:
        writer = self.lines().repartition(2).writeStream.format("odradek").options(**self.options)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        return query

    def forget_last_commit(self) -> int:
        """Make it look as if Spark had died between the write of a batch and its commit; return the batch."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        for path in (self.checkpoint / "commits").iterdir():
            if path.name.strip(".").removesuffix(".crc") == str(last):
                path.unlink()
        return last


@pytest.fixture
def flow(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Flow:
    return Flow(spark, bootstrap, topic, tmp_path)


def lines(first: int, last: int) -> list[str]:
    return [f"line {number % 700}" for number in range(first, last)]


def counted(given: list[str]) -> Counter[bytes | None]:
    return Counter(line.encode() for line in given)


def test_a_stream_is_written_batch_by_batch(flow: Flow, client: Client, topic: str) -> None:
    flow.add("a", lines(0, 2_000))
    query = flow.run()
    assert values(client, topic) == counted(lines(0, 2_000))
    flow.add("b", lines(2_000, 3_000))
    flow.run()
    assert values(client, topic) == counted(lines(0, 3_000))
    assert groups(client, query.id) == [f"{SINK_GROUPS}{query.id}-{task}" for task in range(2)]


def test_a_micro_batch_that_is_replayed_is_in_the_topic_once(flow: Flow, client: Client, topic: str) -> None:
    flow.add("a", lines(0, 2_000))
    flow.run()
    flow.add("b", lines(2_000, 4_000))
    flow.run()
    for _ in range(2):
        batch = flow.forget_last_commit()
        query = flow.run()
        replayed = [progress for progress in query.recentProgress if progress.batchId == batch]
        assert [progress.numInputRows for progress in replayed] == [2_000], "Spark has not replayed the batch"
    flow.add("c", lines(4_000, 4_500))
    flow.run()
    assert values(client, topic) == counted(lines(0, 4_500))


def test_a_write_within_foreach_batch_is_known_by_its_options(flow: Flow, client: Client, topic: str) -> None:
    flow.add("a", lines(0, 1_000))
    fails = [True, False]

    def copy(frame: DataFrame, batch: int) -> None:
        writer = frame.repartition(2).write.format("odradek").options(**flow.options)
        writer.option("sinkId", topic).option("batchId", batch).mode("append").save()
        if fails.pop(0):
            raise RuntimeError("something after the write fails")

    def run() -> None:
        writer = flow.lines().writeStream.foreachBatch(copy).option("checkpointLocation", str(flow.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    with pytest.raises(StreamingQueryException, match="something after the write fails"):
        run()
    assert values(client, topic) == counted(lines(0, 1_000))
    run()
    assert not fails
    assert values(client, topic) == counted(lines(0, 1_000))


def test_a_stream_has_no_name_but_its_checkpoint(flow: Flow) -> None:
    flow.add("a", lines(0, 1))
    flow.options |= {"sinkId": "x", "batchId": "1"}
    with pytest.raises(PySparkException, match="a streaming write is known by its checkpoint"):
        flow.run()
