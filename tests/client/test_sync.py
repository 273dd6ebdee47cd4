"""The blocking client against a real broker."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from odradek.client import BrokerUnavailableError, ClientError, NewRecord, TopicPartition, UnknownTopicError
from odradek.client.sync import Client
from tests.client.conftest import Broker


def test_a_script_without_a_loop_produces_consumes_and_administers(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic(topic, 1, {"retention.ms": "-1"})
        assert topic in [info.name for info in client.admin.list_topics()]
        with client.producer(linger_ms=1) as producer:
            assert producer.send(topic, b"a", key=b"k", headers=[("h", b"v")]).offset == 0
            assert producer.send_many(topic, [NewRecord(b"b"), NewRecord(b"c")]) == 2
        with client.consumer(topic, follow=False) as consumer:
            assert [record.value for record in consumer] == [b"a", b"b", b"c"]
            assert consumer.positions() == {partition: 3}
        with client.consumer([partition], group=group) as consumer:
            assert [record.value for record in consumer.poll(2, 5_000)] == [b"a", b"b"]
            consumer.commit()
            consumer.seek(partition, "end")
            assert consumer.poll(timeout_ms=10) == []
        assert client.admin.group_offsets(group)[partition].offset == 2
        assert client.admin.list_offsets({partition: "end"})[partition].offset == 3
        assert client.admin.describe_topic(topic).partition_count == 1
        assert client.call(client.admin.inner.cluster()).nodes
        client.admin.delete_topic(topic)
        with pytest.raises(UnknownTopicError):
            client.admin.describe_topic(topic)


def test_the_loop_may_be_another_one(broker: Broker, topic: str) -> None:
    with Client(broker.bootstrap_servers, loop_factory=uvloop.new_event_loop) as client:
        assert isinstance(client.call(running_loop()), uvloop.Loop)
        with client.producer() as producer:
            assert producer.send_many(topic, [NewRecord(bytes(100_000))] * 50) == 50
        with client.consumer(topic, follow=False) as consumer:
            assert sum(len(record.value or b"") for record in consumer) == 5_000_000


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_the_thread_ends_with_the_client(broker: Broker) -> None:
    before = threading.active_count()
    with Client(broker.bootstrap_servers):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_broker_that_is_not_there_is_an_error_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"):
        Client("127.0.0.1:1", timeout_ms=100).start()
    assert threading.active_count() == before


def test_errors_are_the_same_as_those_of_the_async_client(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client, client.producer() as producer:
        with pytest.raises(ClientError, match="a topic's name"):
            producer.send("no/topic", b"x")
        with pytest.raises(TypeError, match="bytes or None"):
            producer.send("topic", "text")  # type: ignore[arg-type]
