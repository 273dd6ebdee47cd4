"""What gRPC clients store, Spark reads; what Spark writes, gRPC clients read: the same offsets and the same times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.grpc.doors import Doors
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a gRPC door: the one that the other tests here share has none."""
    directory: Path = tmp_path_factory.mktemp("spark-grpc") / "data"
    with BrokerProcess(directory, grpc=True) as running:
        yield running


@pytest.fixture(scope="module")
def doors(broker: BrokerProcess) -> Iterator[Doors]:
    with Doors(broker.grpc) as connected:
        yield connected


def read(spark: SparkSession, broker: BrokerProcess, topic: str) -> list[tuple[int, int, bytes, int]]:
    """Partition, offset, value and milliseconds of all records."""
    frame = spark.read.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = frame.option("subscribe", topic).load().selectExpr("partition", "offset", "value", "unix_millis(timestamp)")
    return sorted((row[0], row[1], bytes(row[2]), row[3]) for row in rows.collect())


def test_spark_reads_what_both_services_store(spark: SparkSession, broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("to_spark", 2)
    values = [b"%d" % number for number in range(300)]
    doors.publish(topic, 1, [values[at : at + 50] for at in range(0, 300, 50)])
    doors.send("to_spark", 1, b"\x00\xff")
    expected = [
        (partition - 1, value.offset, value.value, value.timestamp)
        for partition in (1, 2)
        for value in doors.consume(topic, partition, batch_size=1_000).values
    ]
    assert [value for _, _, value, _ in expected] == [*values, b"\x00\xff"]
    assert read(spark, broker, "to_spark") == expected


def test_both_services_read_what_spark_writes(spark: SparkSession, broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("from_spark", 2)
    frame = spark.createDataFrame(
        [(f"key {number}", f"value {number}") for number in range(100)], "key string, value string"
    )
    writer = frame.write.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.option("topic", "from_spark").mode("append").save()
    found = [doors.values(topic, partition) for partition in (1, 2)]
    assert sorted(found[0] + found[1]) == sorted(b"value %d" % number for number in range(100))
    assert all(found), "both partitions have some"
    for partition in (0, 1):
        assert [doors.get("from_spark", partition, offset) for offset in range(3)] == found[partition][:3]


def test_spark_reads_a_partition_beside_gaps(spark: SparkSession, broker: BrokerProcess, doors: Doors) -> None:
    doors.create_partition("sparse_for_spark", 2)
    doors.create_partition("sparse_for_spark", 5)
    for partition in (2, 5):
        doors.send("sparse_for_spark", partition, b"in %d" % partition)
    found = [(partition, offset, value) for partition, offset, value, _ in read(spark, broker, "sparse_for_spark")]
    assert found == [(2, 0, b"in 2"), (5, 0, b"in 5")]
