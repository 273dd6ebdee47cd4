"""Options: what is accepted, what it means, and what a person is told about the rest."""

from __future__ import annotations

import logging
import pickle

import pytest

from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.spark import option_names
from odradek.spark.connection import ConnectionOptions
from odradek.spark.errors import OptionError, SparkError
from odradek.spark.options import (
    Assign,
    AtOffsets,
    AtTime,
    Edge,
    Mode,
    Pattern,
    ReadOptions,
    Subscribe,
    WriteOptions,
    columns_of,
)

ADDRESS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
LEAST = ADDRESS | {"subscribe": "orders"}
EVERYTHING = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def read(mode: Mode = Mode.STREAM, **options: str) -> ReadOptions:
    """Parse, with names as Spark hands them over: in lower case, here with _ for the dots."""
    return ReadOptions.parse(LEAST | {name.lower().replace("_", "."): text for name, text in options.items()}, mode)


def test_the_defaults_of_a_stream_are_those_of_sparks_kafka_source() -> None:
    assert read() == ReadOptions(
        connection=ConnectionOptions("127.0.0.1:9092", "odradek-spark", 15_000, 120_000),
        subscription=Subscribe(("orders",)),
        starting=Edge.LATEST,
        ending=Edge.LATEST,
        latest_if_no_match=False,
        max_offsets=None,
        min_offsets=None,
        max_delay_ms=15 * 60 * 1000,
        min_partitions=None,
        max_records=None,
        fail_on_data_loss=True,
        columns=EVERYTHING[:-1],
        read_committed=False,
        group=None,
        offset_tries=3,
        offset_retry_ms=1000,
    )


def test_a_batch_starts_at_the_beginning_by_default() -> None:
    assert (read(Mode.BATCH).starting, read(Mode.BATCH).ending) == (Edge.EARLIEST, Edge.LATEST)


def test_options_can_be_pickled_to_the_tasks() -> None:
    options = read(startingOffsets='{"orders": {"0": 5}}')
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
    assert hash(options.connection) == hash(pickle.loads(pickle.dumps(options.connection)))  # noqa: S301


def test_every_option_of_a_read_arrives() -> None:
    options = read(
        subscribe=" a , b,a,",
        startingOffsets="earliest",
        startingOffsetsByTimestampStrategy="LATEST",
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="90s",
        minPartitions="8",
        maxRecordsPerPartition="500",
        failOnDataLoss="FALSE",
        includeHeaders="true",
        kafka_group_id="watchers",
        kafka_client_id="me",
        kafka_isolation_level="read_committed",
        kafka_request_timeout_ms="3000",
        kafkaConsumer_pollTimeoutMs="45000",
        kafka_default_api_timeout_ms="99",
        fetchOffset_numRetries="7",
        fetchOffset_retryIntervalMs="20",
    )
    assert options.subscription == Subscribe(("a", "b"))
    assert options.starting is Edge.EARLIEST
    assert options.latest_if_no_match
    assert (options.max_offsets, options.min_offsets, options.max_delay_ms) == (1000, 10, 90_000)
    assert (options.min_partitions, options.max_records) == (8, 500)
    assert not options.fail_on_data_loss
    assert options.columns == EVERYTHING
    assert options.group == "watchers"
    assert options.read_committed
    assert options.connection == ConnectionOptions("127.0.0.1:9092", "me", 3000, 45_000)
    assert (options.offset_tries, options.offset_retry_ms) == (7, 20)


def test_every_option_of_a_write_arrives() -> None:
    options = WriteOptions.parse(
        ADDRESS
        | {
            "topic": "results",
            "sinkid": "my-sink.1",
            "batchid": "0",
            "kafka.compression.type": "ZSTD",
            "kafka.batch.size": "1000",
            "kafka.delivery.timeout.ms": "5000",
            "kafka.acks": "all",
            "checkpointlocation": "/c",
            "queryname": "q",
        }
    )
    assert options == WriteOptions(
        ConnectionOptions("127.0.0.1:9092", timeout_ms=5000), "results", Codec.ZSTD, 1000, "my-sink.1", 0
    )
    assert WriteOptions.parse(ADDRESS) == WriteOptions(
        ConnectionOptions("127.0.0.1:9092"), None, Codec.NONE, 1024 * 1024, None, None
    )


def test_a_view_may_be_read_and_written_with_the_same_options() -> None:
    both = LEAST | {"topic": "orders", "startingoffsets": "earliest", "includeheaders": "true"}
    assert ReadOptions.parse(both, Mode.BATCH).subscription == Subscribe(("orders",))
    assert WriteOptions.parse(both).topic == "orders"


@pytest.mark.parametrize(
    ("options", "subscription"),
    [
        ({"subscribe": "a"}, Subscribe(("a",))),
        ({"subscribepattern": " a.*"}, Pattern("a.*")),
        (
            {"assign": '{"a": [1, 0, 1], "b": [2]}'},
            Assign((TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))),
        ),
    ],
)
def test_there_are_three_ways_to_say_what_is_read(options: dict[str, str], subscription: object) -> None:
    assert ReadOptions.parse(ADDRESS | options, Mode.STREAM).subscription == subscription


def test_offsets_and_times_can_be_given_by_partition() -> None:
    offsets = '{"orders": {"0": 17, "1": -2, "2": -1}}'
    expected = {TopicPartition("orders", number): offset for number, offset in enumerate((17, -2, -1))}
    assert read(startingOffsets=offsets).starting == AtOffsets(expected, "startingOffsets")
    times = read(startingOffsetsByTimestamp='{"orders": {"0": 1700000000000}}').starting
    assert times == AtTime(None, {TopicPartition("orders", 0): 1_700_000_000_000}, "startingOffsetsByTimestamp")
    batch = read(Mode.BATCH, endingTimestamp="5", startingTimestamp="3")
    assert (batch.starting, batch.ending) == (AtTime(3, {}, "startingTimestamp"), AtTime(5, {}, "endingTimestamp"))


def test_one_time_wins_over_times_and_these_win_over_offsets() -> None:
    several = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 1}}'}
    assert isinstance(read(Mode.STREAM, **several).starting, AtTime)
    assert read(Mode.STREAM, **several, startingTimestamp="7").starting == AtTime(7, {}, "startingTimestamp")


@pytest.mark.parametrize(
    ("listed", "columns"),
    [
        ("value", ("value",)),
        (" offset , KEY,value ", ("key", "value", "offset")),
        ("headers,value", ("value", "headers")),
        ("timestamptype,partition,topic,timestamp", ("topic", "partition", "timestamp", "timestampType")),
    ],
)
def test_columns_come_in_the_order_of_the_schema(listed: str, columns: tuple[str, ...]) -> None:
    assert columns_of({"columns": listed}) == columns
    assert columns_of({"columns": listed, "includeHeaders": "true"}) == tuple(dict.fromkeys((*columns, "headers")))


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("1500", 1500), ("2 h", 7_200_000), ("3min", 180_000), ("1d", 86_400_000)]
)
def test_a_delay_is_written_as_spark_writes_times(text: str, ms: int) -> None:
    assert read(maxTriggerDelay=text).max_delay_ms == ms


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": ""}, ["subscribe", "no topic"]),
        ({"subscribe": "a b"}, ["subscribe", "a b"]),
        ({"assign": '{"a": [0]}'}, ["only one", "subscribe", "assign"]),
        ({"subscribePattern": "a"}, ["only one", "subscribe and subscribePattern"]),
        ({"startingOffsets": "begin"}, ["startingOffsets", "earliest, latest or JSON", "'begin'"]),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, ["startingOffsets", "-3", "orders-0", "-1 (latest)"]),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, ["startingOffsets", "'x'", "orders"]),
        ({"startingOffsets": '{"orders": 3}'}, ["startingOffsets", "topic orders", "look like"]),
        ({"startingOffsets": '{"orders": '}, ["startingOffsets", "not JSON", "column"]),
        ({"startingTimestamp": "yesterday"}, ["startingTimestamp", "yesterday"]),
        ({"startingTimestamp": "-1"}, ["startingTimestamp", "-1"]),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, ["ByTimestamp", "milliseconds"]),
        ({"startingOffsetsByTimestampStrategy": "first"}, ["error or latest", "first"]),
        ({"endingOffsets": "latest"}, ["endingOffsets", "streaming"]),
        ({"endingTimestamp": "5"}, ["endingTimestamp", "streaming"]),
        ({"endingOffsetsByTimestamp": "{}"}, ["endingOffsetsByTimestamp", "streaming"]),
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger", "positive", "'0'"]),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, ["minOffsetsPerTrigger (5)", "(4)"]),
        ({"maxTriggerDelay": "soon"}, ["maxTriggerDelay", "soon", "15m"]),
        ({"minPartitions": "-1"}, ["minPartitions", "-1"]),
        ({"failOnDataLoss": "perhaps"}, ["failOnDataLoss", "true or false", "perhaps"]),
        ({"columns": "value,price"}, ["columns", "price", "timestampType"]),
        ({"columns": " , "}, ["columns", "none"]),
        ({"kafka.isolation.level": "serializable"}, ["kafka.isolation.level", "serializable"]),
        ({"kafka.group.id": " "}, ["kafka.group.id", "empty"]),
        ({"kafka.bootstrap.servers": "a:b"}, ["kafka.bootstrap.servers", "a:b", "host:port"]),
        ({"kafka.bootstrap.servers": " "}, ["kafka.bootstrap.servers", "missing"]),
        ({"kafka.request.timeout.ms": "1s"}, ["kafka.request.timeout.ms", "1s"]),
    ],
)
def test_a_wrong_value_is_refused_by_name(options: dict[str, str], words: list[str]) -> None:
    lowered = {name.lower(): text for name, text in options.items()}
    with pytest.raises(OptionError) as refused:
        ReadOptions.parse(LEAST | lowered, Mode.STREAM)
    assert isinstance(refused.value, SparkError)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest for batch"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets for orders-0 cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest for batch"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets for orders-0 cannot be earliest"),
    ],
)
def test_a_batch_that_could_read_nothing_is_refused(options: dict[str, str], words: str) -> None:
    lowered = {name.lower(): text for name, text in options.items()}
    with pytest.raises(OptionError, match=words):
        ReadOptions.parse(LEAST | lowered, Mode.BATCH)
    assert ReadOptions.parse(LEAST | lowered, Mode.ANY)  # while Spark has not said which it is


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "a/b"}, "topic"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type.*brotli"),
        ({"kafka.batch.size": "0"}, "kafka.batch.size"),
        ({"batchid": "3"}, "batchId needs sinkId"),
        ({"sinkid": "a/b"}, "sinkId.*a/b"),
        ({"sinkid": "a", "batchid": "-1"}, "batchId"),
        ({"path": "/files"}, "no file"),
    ],
)
def test_a_wrong_value_of_a_write_is_refused_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        WriteOptions.parse(ADDRESS | options)


def test_something_has_to_be_read() -> None:
    with pytest.raises(OptionError, match="subscribe, subscribePattern, assign"):
        ReadOptions.parse(ADDRESS, Mode.STREAM)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        ReadOptions.parse({"subscribe": "a"}, Mode.STREAM)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingoffset", "startingOffsets"),
        ("subscribes", "subscribe"),
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.isolation", "kafka.isolation.level"),
        ("group.id", "kafka.group.id"),
        ("kafka.startingoffsets", "startingOffsets"),
        ("topics", "topic"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option {name}: did you mean {nearest}\?"):
        ReadOptions.parse(LEAST | {name: "x"}, Mode.STREAM)


def test_an_unknown_option_like_no_other_is_refused() -> None:
    with pytest.raises(OptionError, match=r"unknown option qqqqqqqq$"):
        ReadOptions.parse(LEAST | {"qqqqqqqq": "x"}, Mode.STREAM)


@pytest.mark.parametrize("name", sorted(option_names.KAFKA_REFUSED))
def test_what_spark_forbids_is_forbidden_with_the_reason(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not supported: .{{15}}"):
        ReadOptions.parse(LEAST | {name: "x"}, Mode.STREAM)


@pytest.mark.parametrize(
    "option",
    [
        ("kafka.security.protocol", "SASL_SSL"),
        ("kafka.sasl.mechanism", "PLAIN"),
        ("kafka.ssl.truststore.location", "x"),
    ],
)
def test_security_is_refused_as_long_as_there_is_none(option: tuple[str, str]) -> None:
    with pytest.raises(OptionError, match=f"{option[0]} is not supported yet"):
        ReadOptions.parse(LEAST | dict([option]), Mode.STREAM)
    assert ReadOptions.parse(LEAST | {"kafka.security.protocol": "plaintext"}, Mode.STREAM)


def test_what_means_nothing_here_is_accepted_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = LEAST | {"kafka.fetch.min.bytes": "7", "kafka.max.poll.records": "5", "groupidprefix": "g"}
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        ReadOptions.parse(options, Mode.STREAM)
        ReadOptions.parse(options, Mode.STREAM)
    (record,) = caplog.records
    for name in ("kafka.fetch.min.bytes", "kafka.max.poll.records", "groupIdPrefix"):
        assert name in record.getMessage()


def test_limits_of_streams_are_of_no_use_to_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        read(Mode.BATCH, maxOffsetsPerTrigger="17")
        WriteOptions.parse(ADDRESS | {"kafka.acks": "1"})
    limit, acks = [record.getMessage() for record in caplog.records]
    assert "maxOffsetsPerTrigger in a batch query" in limit
    assert "kafka.acks = 1" in acks


def test_a_table_of_the_catalog_is_refused_because_spark_would_lose_its_options() -> None:
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        ReadOptions.parse(LEAST | {"provider": "odradek", "owner": "me", "option.subscribe": "orders"}, Mode.ANY)
