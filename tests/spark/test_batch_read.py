"""Batch reads by a real Spark: what was produced is what is read, whoever produced it and however it is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrameReader, Row, SparkSession

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.records.record import Header, NewRecord
from tests.clients.drivers import AioKafka, Confluent, Driver, KafkaPython
from tests.spark.conftest import Produce

START_MS = 1_700_000_000_000
SAMPLES = [
    NewRecord(b"value", b"key", START_MS),
    NewRecord(None, b"tombstone", START_MS + 1),
    NewRecord(b"no key", None, START_MS + 2),
    NewRecord(b"", b"", START_MS + 3),
    NewRecord(bytes(range(256)) * 40, "schlüssel".encode(), START_MS + 4),
    NewRecord(b"h", b"k", START_MS + 5, (Header("a", b"1"), Header("a", None), Header("", b""))),
]
Read = Callable[..., DataFrameReader]


@pytest.fixture
def read(spark: SparkSession, bootstrap: str) -> Read:
    def make(**options: str) -> DataFrameReader:
        return spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap).options(**options)

    return make


def expected(topic: str, partition: int, offset: int, record: NewRecord) -> tuple[object, ...]:
    """A record as a row, with the types that Spark's Kafka source has."""
    moment = datetime.fromtimestamp(record.timestamp / 1000, UTC).replace(tzinfo=None)
    headers = [(header.key, header.value) for header in record.headers] or None
    return record.key, record.value, topic, partition, offset, moment, 0, headers


def as_tuples(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """Rows in order, with plain tuples all the way down."""
    plain = [
        tuple(
            bytes(cell)
            if isinstance(cell, bytearray)
            else [(header.key, None if header.value is None else bytes(header.value)) for header in cell]
            if isinstance(cell, list)
            else cell
            for cell in row
        )
        for row in rows
    ]
    return sorted(plain, key=lambda row: (row[2], row[3], row[4]))


def test_rows_are_what_was_produced_in_all_codecs_with_headers_and_nulls(
    read: Read, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    client.admin.create_topic(topic, 2)
    wanted = []
    for number, codec in enumerate(Codec):
        for partition in range(2):
            produce(topic, SAMPLES, partition=partition, codec=codec)
            wanted += [
                expected(topic, partition, number * len(SAMPLES) + place, record)
                for place, record in enumerate(SAMPLES)
            ]
    frame = read(subscribe=topic, includeHeaders="true").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert as_tuples(frame.collect()) == sorted(wanted, key=lambda row: (row[3], row[4]))
    assert frame.rdd.getNumPartitions() == 2


@pytest.mark.parametrize("driver", [Confluent(), KafkaPython(), AioKafka()], ids=lambda driver: driver.name)
def test_what_other_clients_have_produced_is_read(
    read: Read, client: Client, bootstrap: str, new_name: Callable[[], str], driver: Driver
) -> None:
    topic = new_name()
    client.admin.create_topic(topic)
    driver.send(bootstrap, topic, "gzip")
    rows = as_tuples(read(subscribe=topic, includeHeaders="true").load().collect())
    wanted = [(one.key, one.value, list(one.headers) or None) for one in driver.samples]
    assert [(row[0], row[1], row[7]) for row in rows] == wanted


def test_sql_reads_a_view(spark: SparkSession, bootstrap: str, produce: Produce, new_name: Callable[[], str]) -> None:
    topic, view = new_name(), new_name().replace("-", "_")
    produce(topic, [NewRecord(str(number).encode(), timestamp=START_MS + number) for number in range(10)])
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING odradek OPTIONS"
        f" (kafka.bootstrap.servers '{bootstrap}', subscribe '{topic}', startingTimestamp {START_MS + 3})"
    )
    query = f"SELECT sum(CAST(CAST(value AS STRING) AS INT)) AS total, min(offset) AS first FROM {view}"
    assert spark.sql(query).collect() == [Row(total=sum(range(3, 10)), first=3)]


def test_only_the_columns_that_are_asked_for_are_read_and_many_tasks_share_a_partition(
    read: Read, produce: Produce, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    produce(topic, [str(number) for number in range(1000)])
    frame = read(subscribe=topic, columns="offset,value", minPartitions="7").load()
    assert frame.columns == ["value", "offset"]
    assert frame.rdd.getNumPartitions() == 7
    assert sorted((int(row.value), row.offset) for row in frame.collect()) == [(n, n) for n in range(1000)]
    assert read(subscribe=topic, columns="headers").load().select("headers").distinct().collect() == [Row(headers=None)]


def test_a_range_of_offsets_is_read_and_an_empty_one_has_no_rows(
    read: Read, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    topic, empty = new_name(), new_name()
    client.admin.create_topic(empty)
    produce(topic, ["x"] * 20)
    options = {"startingOffsets": f'{{"{topic}": {{"0": 5}}}}', "endingOffsets": f'{{"{topic}": {{"0": 8}}}}'}
    frame = read(assign=f'{{"{topic}": [0]}}', **options).load()
    assert [row.offset for row in frame.collect()] == [5, 6, 7]
    assert read(subscribe=empty).load().collect() == []


def test_records_that_retention_removed_are_named_or_passed_over(
    read: Read, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    produce(topic, ["x"] * 10)
    client.call(client.admin.inner.delete_records({TopicPartition(topic, 0): 6}))
    old = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 2}}}}'}
    with pytest.raises(PySparkException, match=rf"offsets 2 to 9 of partition {topic}-0 .* offsets 6 to 9"):
        read(**old).load().collect()
    assert [row.offset for row in read(**old, failOnDataLoss="false").load().collect()] == [6, 7, 8, 9]


def test_a_mistake_in_the_options_is_reported_when_the_table_is_loaded(read: Read, spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"unknown option startingoffset: did you mean startingOffsets\?"):
        read(subscribe="a", startingOffset="earliest").load()
    with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
        spark.sql("CREATE TABLE orders USING odradek OPTIONS (kafka.bootstrap.servers 'x:1', subscribe 'a')")
    with pytest.raises(PySparkException, match=r"not found on .*: no-such-topic\. Create what is missing"):
        read(subscribe="no-such-topic").load().collect()


def test_a_wrong_address_is_reported_within_15_seconds(
    spark: SparkSession, read: Read, produce: Produce, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    produce(topic, ["x"])
    started = time.monotonic()
    assert read(subscribe=topic).load().count() == 1
    usual = time.monotonic() - started  # what Spark itself takes on this machine now
    nobody = "127.0.0.1:1"
    options = {"kafka.bootstrap.servers": nobody, "subscribe": "a"}

    def batch() -> None:
        spark.read.format("odradek").options(**options).load().collect()

    def stream() -> None:
        frame = spark.readStream.format("odradek").options(**options).load()
        frame.writeStream.format("noop").start().awaitTermination(60)

    def write() -> None:
        frame = spark.range(1).selectExpr("string(id) AS value", "'a' AS topic")
        frame.write.format("odradek").mode("append").option("kafka.bootstrap.servers", nobody).save()

    failures: list[tuple[float, str]] = []

    def attempt(action: Callable[[], None]) -> None:
        started = time.monotonic()
        try:
            action()
        except PySparkException as error:
            failures.append((time.monotonic() - started, str(error)))

    threads = [threading.Thread(target=attempt, args=[action]) for action in (batch, stream)]
    for thread in threads:
        thread.start()
    attempt(write)
    for thread in threads:
        thread.join(60)
    assert len(failures) == 3
    for seconds, message in failures:
        assert f"no Kafka broker answered at kafka.bootstrap.servers = {nobody} within 6 s" in message
        assert seconds < 15 + 3 * usual  # three at a time
