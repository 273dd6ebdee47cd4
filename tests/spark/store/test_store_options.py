"""Options of reads from a store: what is accepted, what it means, and what a person is told about the rest."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from odradek.spark.errors import OptionError
from odradek.spark.options import AtTime, Edge, Mode, ReadOptions
from odradek.spark.source import OdradekSource
from odradek.spark.store.archive_reader import ArchiveReader, FilteringArchiveReader
from odradek.spark.store.channel_reader import ChannelReader, FilteringChannelReader
from odradek.spark.store.options import ALWAYS, StoreOptions, StoreTarget, TimeRange
from odradek.spark.store.stream_reader import ChannelStreamReader

CHANNEL = {"store": "s3://bucket/prefix", "channel": "orders"}
TOPIC = {"store": "file:///archive", "topic": "orders"}
PLAIN = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def parse(given: dict[str, str], mode: Mode = Mode.BATCH) -> StoreOptions:
    return StoreOptions.parse({name.lower(): value for name, value in given.items()}, mode)


def source(given: dict[str, str]) -> OdradekSource:
    return OdradekSource(CaseInsensitiveDict(given))


def test_the_defaults() -> None:
    assert parse(CHANNEL) == StoreOptions(
        target=StoreTarget("s3://bucket/prefix"),
        name="orders",
        is_channel=True,
        starting=Edge.EARLIEST,
        ending=Edge.LATEST,
        min_partitions=None,
        partition_bytes=64 * 1024 * 1024,
        trigger_bytes=None,
        read_delay_ms=10_000,
        fail_on_data_loss=True,
        push_filters=False,
        columns=PLAIN,
    )
    assert parse(CHANNEL).times == ALWAYS
    assert parse(CHANNEL, Mode.STREAM).starting is Edge.LATEST
    assert not parse(TOPIC).is_channel


def test_every_option_arrives() -> None:
    options = parse(
        CHANNEL
        | {
            "store.aws_region": "eu-central-1",
            "store.AWS_SECRET_ACCESS_KEY": "Secret/Value",
            "startingTimestamp": "1000",
            "endingTimestamp": "2000",
            "minPartitions": "8",
            "maxBytesPerPartition": "1000",
            "maxBytesPerTrigger": "5000",
            "readDelay": "2s",
            "failOnDataLoss": "false",
            "pushFilters": "true",
            "includeHeaders": "true",
            "columns": "value",
            "checkpointLocation": "/c",
        }
    )
    assert options.target == StoreTarget(
        "s3://bucket/prefix", (("aws_region", "eu-central-1"), ("aws_secret_access_key", "Secret/Value"))
    )
    assert options.starting == AtTime(1000, {}, "startingTimestamp")
    assert options.times == TimeRange(1000, 2000)
    assert (options.min_partitions, options.partition_bytes, options.trigger_bytes) == (8, 1000, 5000)
    assert (options.read_delay_ms, options.fail_on_data_loss, options.push_filters) == (2000, False, True)
    assert options.columns == ("value", "headers")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
    assert "Secret" not in repr(options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"store": "s3://b"}, "Give a channel with channel, or an archived topic with topic"),
        (CHANNEL | {"topic": "orders"}, "Not both"),
        (CHANNEL | {"channel": "a/b"}, "channel: a topic's name consists of letters"),
        (CHANNEL | {"kafka.bootstrap.servers": "x:1"}, "kafka.bootstrap.servers cannot be given together with store"),
        (CHANNEL | {"subscribe": "x"}, "subscribe has no meaning for a read from a store: name a channel"),
        (CHANNEL | {"maxOffsetsPerTrigger": "5"}, "limit a batch with maxBytesPerTrigger"),
        (CHANNEL | {"sinkId": "x"}, "sinkId has no meaning for a read from a store: take it out"),
        (CHANNEL | {"chanel": "x"}, "unknown option chanel: did you mean channel?"),
        (CHANNEL | {"path": "x"}, "an object store is named with store"),
        (CHANNEL | {"store": "ftp://host/x"}, "'ftp://host/x' has no scheme that is known: it looks like s3://bucket"),
        (CHANNEL | {"store": "bucket/prefix"}, "has no scheme that is known"),
        (CHANNEL | {"store": "s3://[x"}, "store is no URL"),
        (CHANNEL | {"store": "memory://x"}, "a memory:// store lives in one process"),
        (CHANNEL | {"startingOffsets": '{"orders": {"0": 5}}'}, "startingOffsets: a channel is read by time.*starting"),
        (
            CHANNEL | {"endingOffsetsByTimestamp": '{"orders": {"0": 5}}'},
            "endingOffsetsByTimestamp: a channel is read by time.*Use endingTimestamp",
        ),
        (CHANNEL | {"startingOffsets": "latest"}, "cannot be latest for batch queries"),
        (CHANNEL | {"readDelay": "soon"}, "readDelay is a time such as"),
        (CHANNEL | {"readDelay": "1s"}, "readDelay is at least 2000 ms, not 1000"),
        (CHANNEL | {"maxBytesPerPartition": "0"}, "maxBytesPerPartition is a positive whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError, match=error):
        parse(options)


def test_a_stream_has_no_end_and_is_not_of_an_archive() -> None:
    with pytest.raises(OptionError, match="endingTimestamp is not valid in streaming queries"):
        parse(CHANNEL | {"endingTimestamp": "5"}, Mode.STREAM)
    with pytest.raises(OptionError, match="an archived topic is read in batches"):
        parse(TOPIC, Mode.STREAM)


def test_a_secret_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(OptionError, match=r"credentials with store\.<name>") as caught:
        parse(CHANNEL | {"store": "s3://me:hush@bucket/x"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["channel", "readDelay", "store.aws_region"])
def test_an_option_of_stores_without_a_store_is_refused(name: str) -> None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "orders", name.lower(): "x"}
    with pytest.raises(OptionError, match=f"option {name} is for reads from an object store: name that with store"):
        ReadOptions.parse(given, Mode.BATCH)


def test_the_source_makes_the_reader_that_is_asked_for() -> None:
    schema = source(CHANNEL).schema()
    assert tuple(schema.names) == PLAIN
    assert type(source(CHANNEL).reader(schema)) is ChannelReader
    assert type(source(CHANNEL | {"pushFilters": "true"}).reader(schema)) is FilteringChannelReader
    assert type(source(TOPIC).reader(schema)) is ArchiveReader
    assert type(source(TOPIC | {"pushFilters": "true"}).reader(schema)) is FilteringArchiveReader
    assert type(source(CHANNEL).streamReader(schema)) is ChannelStreamReader


def test_nothing_is_written_to_a_store() -> None:
    schema = StructType([StructField("value", StringType())])
    for method in (source(TOPIC).writer, source(TOPIC).streamWriter):
        with pytest.raises(OptionError, match="channels are written through a broker"):
            method(schema, False)


def test_a_range_of_time_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(OptionError, match=r"startingTimestamp \(20\) lies behind endingTimestamp \(10\)"):
        ChannelReader(parse(CHANNEL | {"startingTimestamp": "20", "endingTimestamp": "10"}))
