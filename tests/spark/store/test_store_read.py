"""Batch reads from a store by a real Spark, with no broker: byte for byte, and no object too many."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from odradek.objects.archive import put_segment
from odradek.objects.keys import parse_object_key
from odradek.objects.stores import open_store
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.header import stamp_offset
from odradek.records.record import NewRecord
from tests.counting import CountingProxy
from tests.s3 import SECRET_KEY, S3Server
from tests.spark.store.channels import NOON_MS, Channel, row, samples
from tests.spark.test_batch_read import as_tuples

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def read(spark: SparkSession) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        given = {name.replace("store_", "store."): value for name, value in options.items()}
        return spark.read.format("odradek").options(**given).load()

    return load


Read = Callable[..., DataFrame]


def test_a_channel_is_read_byte_for_byte_from_a_directory(tmp_path: Path, read: Read, spark: SparkSession) -> None:
    channel = Channel(tmp_path.as_uri())
    for number in range(4):
        channel.put(samples(NOON_MS + number * 70_000, step_ms=300), partition=number % 2)
    frame = read(store=channel.url, channel="orders", includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    wanted = sorted(channel.rows, key=lambda one: (one[3], one[4]))
    assert as_tuples(frame.collect()) == wanted
    cut = read(store=channel.url, channel="orders", minPartitions="3", columns="offset")
    assert cut.rdd.getNumPartitions() == 3
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW stored USING odradek OPTIONS (store '{channel.url}', channel 'orders')"
    )
    assert spark.sql("SELECT count(*) AS n, max(timestamp) AS last FROM stored").first() == (24, wanted[-1][5])
    spark.catalog.dropTempView("stored")


def test_an_archived_topic_is_read_byte_for_byte(tmp_path: Path, read: Read) -> None:
    store = open_store(tmp_path.as_uri())
    wanted = []
    for partition in range(2):
        for number, codec in enumerate(Codec):
            records = samples(NOON_MS + number * 60_000, step_ms=1000)
            base = number * len(records)
            batch = build_batch(records, codec=codec)
            stamp_offset(batch, base, 0)
            put_segment(store, "old", "ab" * 16, partition, base, base + len(records), bytes(batch))
            wanted += [row(record, "old", partition, base + place) for place, record in enumerate(records)]
    frame = read(store=tmp_path.as_uri(), topic="old", includeHeaders="true")
    assert as_tuples(frame.collect()) == wanted
    part = read(store=tmp_path.as_uri(), topic="old", startingTimestamp=str(NOON_MS + 60_000), columns="offset")
    assert part.count() == 2 * 6 * (len(Codec) - 1)


@pytest.fixture(scope="module")
def day(s3: S3Server) -> Iterator[tuple[Channel, CountingProxy, dict[str, str]]]:
    """A channel in S3 with a day of objects, one a minute and partition, and six in one of the minutes."""
    url = s3.new_url()
    channel = Channel(url, "sensors", store=open_store(url, s3.options), slice_ms=10_000)
    minutes = [minute * 60.0 for minute in range(-720, 720, 4)]
    channel.put_at(*minutes, *(4_800 + second for second in range(10, 60, 10)))
    with CountingProxy(s3.endpoint) as proxy:
        settings = {f"store_{name}": value for name, value in s3.options_of(proxy.endpoint).items()}
        yield channel, proxy, {"store": url, "channel": "sensors", **settings}


Day = tuple[Channel, CountingProxy, dict[str, str]]


def in_minute(keys: list[str], start_ms: int) -> bool:
    parsed = [parse_object_key("sensors" + key.partition("/sensors")[2]) for key in keys]
    return all(key is not None and start_ms <= key.start_ms < start_ms + 60_000 for key in parsed)


def test_a_minute_of_a_day_touches_the_objects_of_that_minute_only(day: Day, read: Read) -> None:
    _, proxy, options = day
    start_ms = NOON_MS + 4_800_000
    proxy.reset()
    frame = read(**options, startingTimestamp=str(start_ms), endingTimestamp=str(start_ms + 60_000))
    values = sorted(bytes(one.value) for one in frame.select("value").collect())
    assert values == [f"at {start_ms + second * 1000}".encode() for second in range(0, 60, 10)]
    gets = [key for key in proxy.keys("GET") if not key.endswith("!channel.json")]
    assert len(gets) == 6
    assert in_minute(gets, start_ms)
    assert proxy.counts()["LIST"] <= 2
    assert not {"PUT", "DELETE", "POST"} & set(proxy.counts())


def test_filters_on_the_time_are_pushed_down_where_spark_is_set_to_do_so(
    day: Day, read: Read, spark: SparkSession
) -> None:
    _, proxy, options = day
    start_ms = NOON_MS + 4_800_000
    moment = functions.timestamp_millis(functions.lit(start_ms))
    minute = (functions.col("timestamp") >= moment) & (
        functions.col("timestamp") < moment + functions.expr("INTERVAL 1 MINUTE")
    )
    spark.conf.set(PUSH_DOWN, "true")
    try:
        proxy.reset()
        assert read(**options, pushFilters="true").where(minute).count() == 6
    finally:
        spark.conf.unset(PUSH_DOWN)
    gets = [key for key in proxy.keys("GET") if not key.endswith("!channel.json")]
    # The end of a range is rounded up to a millisecond, which is in the next slice.
    assert 6 <= len(gets) <= 7
    assert in_minute(gets[:6], start_ms)
    with pytest.raises(PySparkException, match=re.escape(PUSH_DOWN)):
        read(**options, pushFilters="true").where(minute).count()


def test_secrets_are_neither_in_plans_nor_in_errors(day: Day, read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, options = day
    frame = read(**options)
    frame.explain(extended=True)
    assert SECRET_KEY not in capsys.readouterr().out
    with pytest.raises(PySparkException, match="is no channel ordres") as missing:
        read(**options | {"channel": "ordres"}).collect()
    assert SECRET_KEY not in str(missing.value)
    wrong = options | {"store_aws_secret_access_key": "wrong-and-secret"}
    with pytest.raises(PySparkException, match="look at the credentials") as refused:
        read(**wrong).collect()
    assert "wrong-and-secret" not in str(refused.value)


def test_a_store_is_not_written(tmp_path: Path, spark: SparkSession) -> None:
    frame = spark.createDataFrame([("x",)], "value STRING")
    writer = frame.write.format("odradek").mode("append").option("store", tmp_path.as_uri()).option("topic", "orders")
    with pytest.raises(PySparkException, match="channels are written through a broker"):
        writer.save()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"store": "ftp://x", "channel": "a"}, "has no scheme that is known"),
        ({"store": "s3://x", "channel": "a", "topic": "b"}, "Not both"),
        ({"store": "s3://x", "channel": "a", "kafka.bootstrap.servers": "x:1"}, "cannot be given together with store"),
    ],
)
def test_what_is_wrong_is_said_at_load(read: Read, options: dict[str, str], error: str) -> None:
    with pytest.raises(PySparkException, match=error):
        read(**options)


def test_records_of_a_writer_without_a_broker_are_read(tmp_path: Path, read: Read) -> None:
    channel = Channel(tmp_path.as_uri())
    channel.put([NewRecord(b"x", timestamp=NOON_MS)], publisher="a laptop")
    (found,) = read(store=channel.url, channel="orders").collect()
    assert (bytes(found.value), found.offset) == (b"x", 0)
    assert found.partition < 0
