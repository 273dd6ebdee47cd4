"""Consume over a real channel: by offset, by time, by the last commit, and values that other doors have written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.proto import eeylops_pb2 as pb
from odradek.proto import eeylops_pb2_grpc
from tests.eeylops.asking import CALL_SECONDS
from tests.eeylops.consuming import Consumer, numbered, one_broker, told, values
from tests.process import BrokerProcess

TEN = numbered(0, 10)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Consumer]]:
    """A broker for all tests."""
    with one_broker(tmp_path_factory.mktemp("consume")) as found:
        yield found


@pytest.fixture
def consumer(started: tuple[BrokerProcess, Consumer]) -> Consumer:
    """A channel to it."""
    return started[1]


def topic_of(consumer: Consumer, name: str) -> int:
    """A topic with ten values."""
    topic = consumer.created(name)
    assert consumer.produce(topic, 1, TEN).error_code == pb.KNoError
    return topic


def by_kafka(broker: BrokerProcess, topic: str, timed: dict[bytes, int], **settings: str) -> None:
    """Values with their times, from a Kafka producer."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for value, timestamp in timed.items():
        producer.produce(topic, value, key=b"key", partition=0, timestamp=timestamp)
    assert producer.flush(CALL_SECONDS) == 0


def test_values_come_in_order_with_their_offsets_and_times(consumer: Consumer) -> None:
    topic = topic_of(consumer, "ordered")
    answer = consumer.consume(topic)
    assert values(answer) == TEN
    assert [value.offset for value in answer.values] == list(range(10))
    assert min(value.timestamp for value in answer.values) > 1_600_000_000_000
    assert answer.next_offset == 10
    assert consumer.read(topic, start_offset=4, batch_size=3) == (TEN[4:7], 7)
    assert consumer.read(topic, start_offset=10) == ([], 10)


def test_an_empty_partition_has_nothing_and_goes_on_at_zero(consumer: Consumer) -> None:
    topic = consumer.created("empty", 3)
    assert consumer.read(topic, 3) == ([], 0)
    assert consumer.read(topic, 3, start_offset=-1, start_timestamp=1) == ([], 0)
    assert told(consumer.consume(topic, 3, start_offset=1)) == "KErrInvalidArg"


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": -1},
        {"start_offset": 11},
        {"start_offset": 2**63 - 1},
        {"start_offset": -2},
        {"start_timestamp": -1, "start_offset": -1},
        {"end_timestamp": -5},
        {"start_offset": -1, "start_timestamp": 9, "end_timestamp": 8},
        {"auto_commit": True},
        {"start_offset": -1, "resume_from_last_committed_offset": True},
        {"consumer_id": "a::b"},
    ],
)
def test_what_cannot_be_meant_is_an_invalid_argument(consumer: Consumer, fields: dict[str, Any]) -> None:
    topic = consumer.topic("meant").topic.topic_id or topic_of(consumer, "meant")
    answer = consumer.consume(topic, **fields)
    assert told(answer) == "KErrInvalidArg"
    assert (list(answer.values), answer.next_offset) == ([], -1)
    (streamed,) = consumer.subscribe(topic, **fields)
    assert told(streamed) == "KErrInvalidArg"


def test_topics_and_partitions_that_are_not_there_are_told(consumer: Consumer) -> None:
    topic = topic_of(consumer, "here")
    for number, partition, code in ((8_888, 1, "KErrTopicNotFound"), (topic, 2, "KErrPartitionNotFound")):
        assert told(consumer.consume(number, partition)) == code
        (streamed,) = consumer.subscribe(number, partition)
        assert told(streamed) == code


def test_a_start_below_what_is_retained_gives_the_first_that_is(started: tuple[BrokerProcess, Consumer]) -> None:
    broker, consumer = started
    topic = topic_of(consumer, "retained")
    assert consumer.register("late", topic) == "KNoError"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition("retained", 0, 6)]).values():
        future.result(CALL_SECONDS)
    assert consumer.read(topic, start_offset=2) == ([], 6)
    assert consumer.read(topic, start_offset=6) == (TEN[6:], 10)
    assert consumer.resume("late", topic) == (TEN[6:], 10)  # it has committed nothing: the first value
    assert consumer.commit("late", topic, 3) == "KNoError"
    assert consumer.resume("late", topic, auto_commit=True) == ([], 6)
    assert consumer.committed("late", topic) == 6
    stream = consumer.subscribe(topic, start_offset=0)
    first, second = next(stream), next(stream)
    assert (values(first), first.next_offset) == ([], 6)
    assert (values(second), second.next_offset) == (TEN[6:], 10)
    stream.cancel()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_kafka_clients_have_produced_is_read_by_offset_and_by_time(
    started: tuple[BrokerProcess, Consumer], codec: str
) -> None:
    broker, consumer = started
    topic = consumer.created(f"kafka_{codec}")
    timed = {b"%d" % number: 1_000 * number for number in range(1, 101)}
    by_kafka(broker, f"kafka_{codec}", timed, **{"compression.type": codec, "linger.ms": "100"})
    answer = consumer.consume(topic, start_offset=50)
    assert [(value.offset, value.timestamp, value.value) for value in answer.values][:2] == [
        (50, 51_000, b"51"),
        (51, 52_000, b"52"),
    ]
    assert consumer.read(topic, start_offset=-1, start_timestamp=20_001, end_timestamp=23_000) == ([b"21", b"22"], 22)
    assert consumer.read(topic, start_offset=-1, start_timestamp=99_999) == ([b"100"], 100)
    assert consumer.read(topic, start_offset=-1, start_timestamp=100_001) == ([], 100)
    assert consumer.read(topic, start_offset=-1, start_timestamp=5_000, end_timestamp=5_000) == ([], 4)


def test_a_null_value_of_a_kafka_client_comes_without_bytes(started: tuple[BrokerProcess, Consumer]) -> None:
    broker, consumer = started
    topic = consumer.created("tombstones")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"a", None, b""):
        producer.produce("tombstones", value, key=b"k", partition=0)
    assert producer.flush(CALL_SECONDS) == 0
    assert consumer.read(topic) == ([b"a", b"", b""], 3)


def test_large_answers_come_in_pieces_that_any_client_takes(started: tuple[BrokerProcess, Consumer]) -> None:
    broker, consumer = started
    topic = consumer.created("large")
    for _ in range(12):
        assert consumer.produce(topic, 1, [bytes(60_000)] * 15).error_code == pb.KNoError
    with grpc.insecure_channel(broker.grpc) as plain:  # takes 4 MiB, as all do that are not told otherwise
        stub: Any = eeylops_pb2_grpc.EeylopsServiceStub
        offset = 0
        while offset < 180:
            asked = pb.ConsumeRequest(topic_id=topic, partition_id=1, start_offset=offset, batch_size=10_000)
            answer = stub(plain).Consume(asked, timeout=CALL_SECONDS)
            assert 10 < len(values(answer)) < 80
            offset = answer.next_offset


def test_auto_commit_and_resuming_go_through_a_topic_once(consumer: Consumer) -> None:
    topic = topic_of(consumer, "through")
    assert consumer.register("steady", topic) == "KNoError"
    found: list[bytes] = []
    while True:
        some, next_offset = consumer.resume("steady", topic, batch_size=3, auto_commit=True)
        assert consumer.committed("steady", topic) == next_offset
        if not some:
            break
        found += some
    assert found == TEN


def test_start_offset_goes_before_the_last_commit(consumer: Consumer) -> None:
    topic = topic_of(consumer, "both")
    assert consumer.register("me", topic) == "KNoError"
    assert consumer.commit("me", topic, 8) == "KNoError"
    found, _ = consumer.read(topic, consumer_id="me", start_offset=2, resume_from_last_committed_offset=True)
    assert found == TEN[2:]
