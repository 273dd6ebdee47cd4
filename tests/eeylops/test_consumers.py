"""Consumers register, commit and ask how far they are: every order of it, on one broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.asking import CALL_SECONDS
from tests.eeylops.consuming import Consumer, numbered, one_broker
from tests.process import BrokerProcess, wait_until

NOT_REGISTERED = "KErrConsumerNotRegistered"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Consumer]]:
    """A broker for all tests that leave it running."""
    with one_broker(tmp_path_factory.mktemp("consumers")) as found:
        yield found


@pytest.fixture
def consumer(started: tuple[BrokerProcess, Consumer]) -> Consumer:
    """A channel to it."""
    return started[1]


def topic_of(consumer: Consumer, name: str, partitions: int = 1) -> int:
    """A topic with ten values in its first partition."""
    topic = consumer.created(name, partitions)
    assert consumer.produce(topic, 1, numbered(0, 10)).error_code == pb.KNoError
    return topic


def test_who_has_not_registered_can_neither_commit_nor_ask_nor_resume(consumer: Consumer) -> None:
    topic = topic_of(consumer, "strangers")
    assert consumer.commit("me", topic, 1) == NOT_REGISTERED
    assert consumer.committed("me", topic) == NOT_REGISTERED
    answer = consumer.consume(topic, consumer_id="me", start_offset=-1, resume_from_last_committed_offset=True)
    assert answer.error.error_code == pb.KErrConsumerNotRegistered
    assert "RegisterConsumer" in answer.error.error_msg
    assert consumer.consume(topic, consumer_id="me", auto_commit=True).error.error_code == pb.KErrConsumerNotRegistered
    assert consumer.register("me", topic) == "KNoError"
    assert consumer.commit("other", topic, 1) == NOT_REGISTERED


def test_a_registered_consumer_has_committed_nothing_and_then_what_it_says(consumer: Consumer) -> None:
    topic = topic_of(consumer, "steps")
    assert consumer.register("me", topic) == "KNoError"
    assert consumer.committed("me", topic) == -1
    for offset in (3, 10, 0, 7):  # backwards, too
        assert consumer.commit("me", topic, offset) == "KNoError"
        assert consumer.committed("me", topic) == offset
        assert consumer.committed("me", topic, sync=False) == offset
        assert consumer.resume("me", topic) == (numbered(offset, 10), 10)


def test_registering_again_changes_nothing(consumer: Consumer) -> None:
    topic = topic_of(consumer, "again")
    assert [consumer.register("me", topic) for _ in range(3)] == ["KNoError"] * 3
    assert consumer.committed("me", topic) == -1
    assert consumer.commit("me", topic, 4) == "KNoError"
    assert [consumer.register("me", topic) for _ in range(3)] == ["KNoError"] * 3
    assert consumer.committed("me", topic) == 4


def test_each_partition_and_each_topic_is_registered_for_alone(consumer: Consumer) -> None:
    topic, other = topic_of(consumer, "first_one", partitions=2), topic_of(consumer, "second_one")
    assert consumer.register("me", topic, 1) == "KNoError"
    assert consumer.commit("me", topic, 5) == "KNoError"
    assert consumer.committed("me", topic, 2) == NOT_REGISTERED
    assert consumer.committed("me", other) == NOT_REGISTERED
    assert consumer.commit("me", other, 5) == NOT_REGISTERED
    assert consumer.register("me", topic, 2) == "KNoError"
    assert consumer.committed("me", topic, 2) == -1
    assert consumer.committed("me", topic, 1) == 5


def test_offsets_that_cannot_be_are_refused(consumer: Consumer) -> None:
    topic = topic_of(consumer, "limits")
    assert consumer.register("me", topic) == "KNoError"
    for offset in (-1, -(2**63), 11, 2**63 - 1):
        assert consumer.commit("me", topic, offset) == "KErrInvalidArg"
    assert consumer.committed("me", topic) == -1


@pytest.mark.parametrize("name", ["", "a::b", "::", "a\x00", "line\n", "\x7f", "\x9f", "x" * 257])
def test_names_that_cannot_be_are_refused(consumer: Consumer, name: str) -> None:
    topic = consumer.topic("names").topic.topic_id or topic_of(consumer, "names")
    assert consumer.register(name, topic) == "KErrInvalidArg"
    assert consumer.commit(name, topic, 0) == "KErrInvalidArg"
    assert consumer.committed(name, topic) == "KErrInvalidArg"


@pytest.mark.parametrize("name", ["a", "a:b", "with space", "Ä ö €", "x" * 256, "a/b", "..", "odradek.eeylops"])
def test_all_other_names_are_good(consumer: Consumer, name: str) -> None:
    topic = consumer.topic("good_names").topic.topic_id or topic_of(consumer, "good_names")
    assert consumer.register(name, topic) == "KNoError"
    assert consumer.commit(name, topic, 1) == "KNoError"
    assert consumer.committed(name, topic) == 1


def test_what_is_not_there_is_told(consumer: Consumer) -> None:
    topic = topic_of(consumer, "there")
    for number, partition, code in ((9_999, 1, "KErrTopicNotFound"), (topic, 2, "KErrPartitionNotFound")):
        assert consumer.register("me", number, partition) == code
        assert consumer.commit("me", number, 0, partition) == code
        assert consumer.committed("me", number, partition) == code
    assert consumer.register("me", 0) == "KErrTopicNotFound"
    assert consumer.register("me", -1, -1) == "KErrTopicNotFound"


def test_a_deleted_topic_takes_its_consumers_along(consumer: Consumer) -> None:
    topic = topic_of(consumer, "reborn")
    for name in ("one", "two"):
        assert consumer.register(name, topic) == "KNoError"
    assert consumer.commit("one", topic, 6) == "KNoError"
    assert consumer.remove(topic).error_code == pb.KNoError
    assert consumer.committed("one", topic) == "KErrTopicNotFound"
    assert consumer.commit("two", topic, 1) == "KErrTopicNotFound"
    again = topic_of(consumer, "reborn")
    assert again != topic
    assert [consumer.committed(name, again) for name in ("one", "two")] == [NOT_REGISTERED] * 2
    assert consumer.commit("one", topic, 1) == "KErrTopicNotFound"  # by the old number


def test_many_commits_at_once_end_with_one_of_them(consumer: Consumer) -> None:
    topic = topic_of(consumer, "crowd")
    assert consumer.register("me", topic) == "KNoError"
    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda number: consumer.commit("me", topic, number % 11), range(200)))
        registered = list(threads.map(lambda number: consumer.register(f"c{number % 20}", topic), range(200)))
    assert set(results) == {"KNoError"} == set(registered)
    assert consumer.committed("me", topic) in range(11)


def kafka_offset(broker: BrokerProcess, group: str, topic: str) -> int:
    """What a Kafka client sees of a group's partition 0."""
    client = KafkaConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        (found,) = client.committed([TopicPartition(topic, 0)], timeout=CALL_SECONDS)
        return int(found.offset)
    finally:
        client.close()


def test_kafka_sees_commits_and_no_registrations(started: tuple[BrokerProcess, Consumer]) -> None:
    broker, consumer = started
    topic = topic_of(consumer, "seen")
    assert consumer.register("watched", topic) == "KNoError"
    assert kafka_offset(broker, "watched", "seen") < 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = [ConsumerGroupTopicPartitions("watched")]
    listed = admin.list_consumer_group_offsets(asked)["watched"].result(CALL_SECONDS)
    assert listed.topic_partitions == []
    assert consumer.commit("watched", topic, 8) == "KNoError"
    assert kafka_offset(broker, "watched", "seen") == 8


def test_a_group_with_members_is_not_committed_for(started: tuple[BrokerProcess, Consumer]) -> None:
    broker, consumer = started
    topic = topic_of(consumer, "owned")
    assert consumer.register("members", topic) == "KNoError"
    client = KafkaConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "members", "session.timeout.ms": 6_000})
    client.subscribe(["owned"])

    def is_member() -> bool:
        client.poll(0.1)
        return bool(client.assignment())

    wait_until(is_member, CALL_SECONDS, "an assignment")
    try:
        asked = pb.CommitRequest(consumer_id="members", topic_id=topic, partition_id=1, offset=1)
        error = consumer.stub.Commit(asked, timeout=CALL_SECONDS).error
        assert error.error_code == pb.KErrInvalidArg
        assert "members" in error.error_msg
        assert consumer.committed("members", topic) == -1  # asking is everybody's
    finally:
        client.close()
    wait_until(lambda: consumer.commit("members", topic, 1) == "KNoError", CALL_SECONDS, "an empty group")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_was_answered_is_there_after_the_broker_has_ended(tmp_path: Path, how: str) -> None:
    with one_broker(tmp_path) as (broker, consumer):
        topic = topic_of(consumer, "kept", partitions=2)
        assert consumer.register("registered", topic) == "KNoError"
        assert consumer.register("far", topic) == "KNoError"
        assert consumer.commit("far", topic, 7) == "KNoError"
        assert consumer.commit("far", topic, 6) == "KNoError"
        getattr(broker, how)()
        broker.start()
        consumer.ready()
        assert consumer.committed("registered", topic) == -1
        assert consumer.committed("far", topic) == 6
        assert consumer.committed("far", topic, 2) == NOT_REGISTERED
        assert consumer.register("far", topic) == "KNoError"
        assert consumer.committed("far", topic) == 6
        assert consumer.resume("far", topic) == (numbered(6, 10), 10)
