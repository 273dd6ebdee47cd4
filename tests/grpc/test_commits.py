"""What a consumer has committed is one thing, told the same by Eeylops and by Kafka's groups."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.proto import eeylops_pb2 as ey
from tests.grpc.doors import CALL_SECONDS, Doors
from tests.grpc.kafka import SECONDS_MAX, committed
from tests.process import BrokerProcess, wait_until

pytestmark = pytest.mark.xdist_group("grpc-commits")

VALUES = [b"%d" % number for number in range(10)]


def commit_by_kafka(broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def test_a_commit_of_eeylops_is_that_of_the_group(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("to_kafka")
    doors.produce(topic, 1, VALUES)
    doors.register("reader", topic)
    assert doors.committed("reader", topic) == -1
    assert committed(broker.bootstrap, "reader", "to_kafka") < 0, "a registration is no offset"
    assert doors.commit("reader", topic, 7).error_code == ey.KNoError
    assert committed(broker.bootstrap, "reader", "to_kafka") == 7
    assert doors.commit("reader", topic, 3).error_code == ey.KNoError
    assert committed(broker.bootstrap, "reader", "to_kafka") == 3


def test_a_commit_of_a_kafka_client_counts_as_registration(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("from_kafka")
    doors.produce(topic, 1, VALUES)
    commit_by_kafka(broker, "member", "from_kafka", 4)
    assert doors.committed("member", topic) == 4
    answer = doors.consume(
        topic,
        consumer_id="member",
        start_offset=-1,
        resume_from_last_committed_offset=True,
        auto_commit=True,
        batch_size=3,
    )
    assert [each.value for each in answer.values] == VALUES[4:7]
    assert committed(broker.bootstrap, "member", "from_kafka") == 7
    assert doors.commit("member", topic, 5).error_code == ey.KNoError
    assert doors.committed("member", topic) == 5


def test_a_group_goes_on_where_eeylops_left_off(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("handed_over")
    doors.produce(topic, 1, VALUES)
    doors.register("relay", topic)
    doors.consume(topic, consumer_id="relay", start_offset=0, batch_size=6, auto_commit=True)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "relay", "auto.offset.reset": "earliest"})
    consumer.subscribe(["handed_over"])
    try:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None and message.error() is None
        assert (message.offset(), message.value()) == (6, VALUES[6])
        refused = doors.commit("relay", topic, 2)
        assert refused.error_code == ey.KErrInvalidArg, "the group has a member, and it is the one who commits"
        assert refused.error_msg
    finally:
        consumer.close()  # commits what it has read, and leaves
    wait_until(lambda: doors.committed("relay", topic) == 7, SECONDS_MAX, "the member's last commit")
    assert doors.commit("relay", topic, 2).error_code == ey.KNoError
    assert committed(broker.bootstrap, "relay", "handed_over") == 2


def test_a_group_that_is_deleted_is_registered_no_more(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("forgotten")
    doors.produce(topic, 1, VALUES)
    doors.register("leaver", topic)
    assert doors.commit("leaver", topic, 5).error_code == ey.KNoError
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_consumer_groups(["leaver"])["leaver"].result(CALL_SECONDS)
    asked = ey.LastCommittedRequest(topic_id=topic, partition_id=1, consumer_id="leaver")
    answer = doors.eeylops.GetLastCommitted(asked, timeout=CALL_SECONDS)
    assert answer.error.error_code == ey.KErrConsumerNotRegistered


def test_commits_of_both_survive_a_killed_broker(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("survivor")
    doors.produce(topic, 1, VALUES)
    doors.register("new", topic)
    doors.register("old", topic)
    assert doors.commit("old", topic, 8).error_code == ey.KNoError
    commit_by_kafka(broker, "kafka", "survivor", 6)
    broker.kill()
    broker.start()
    with Doors(broker.grpc) as again:
        assert [again.committed(name, topic) for name in ("new", "old", "kafka")] == [-1, 8, 6]
    assert [committed(broker.bootstrap, name, "survivor") for name in ("old", "kafka")] == [8, 6]
    assert committed(broker.bootstrap, "new", "survivor") < 0
