"""The client as a whole: how it starts, what it shares, which loops it runs on."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
import uvloop

from odradek.client import Client, ClientError, RequestError, TopicPartition, UnknownTopicError
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import metadata
from tests.client.conftest import Broker
from tests.client.scripted import TOPIC, Hangup, ScriptedBroker
from tests.client.support import asynchronous


def test_it_runs_on_uvloop_as_well(broker: Broker, topic: str) -> None:
    async def round_trip() -> list[bytes | None]:
        async with Client(broker.bootstrap_servers) as client:
            await client.admin.create_topic(topic)
            async with client.producer(codec="lz4") as producer:
                await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(100)))
            async with client.consumer(topic, follow=False) as consumer:
                return [record.value async for record in consumer]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(round_trip()) == [b"%d" % number for number in range(100)]


def test_it_does_not_import_uvloop_itself() -> None:
    program = "import sys, odradek.client, odradek.client.sync; sys.exit('uvloop' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@asynchronous
async def test_many_who_ask_for_metadata_at_once_share_an_answer() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        await asyncio.gather(*(client.cluster.topic(TOPIC) for _ in range(20)))
        asked = [request for request in broker.asked_for(metadata.Request) if request.topics]
        assert len(asked) <= 2
        await client.cluster.topic(TOPIC)
        assert len([request for request in broker.asked_for(metadata.Request) if request.topics]) == len(asked)


@asynchronous
async def test_a_topic_that_appears_a_moment_later_is_waited_for() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        absent = [1, 2, 3]

        def later(request: metadata.Request) -> metadata.Response:
            response = broker.on_metadata(request)
            if request.topics and absent:
                absent.pop()
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                response.topics = [metadata.ResponseTopic(name=TOPIC, error_code=unknown)]
            return response

        broker.handlers[ApiKey.METADATA] = later
        assert (await client.cluster.topic(TOPIC)).partition_count == 1
        with pytest.raises(UnknownTopicError):
            await client.cluster.topic("another")


@asynchronous
async def test_an_error_of_a_topic_is_told() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:

        def forbidden(request: metadata.Request) -> metadata.Response:
            response = broker.on_metadata(request)
            response.topics = [metadata.ResponseTopic(name=TOPIC, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
            return response

        broker.handlers[ApiKey.METADATA] = forbidden
        with pytest.raises(RequestError, match=r"topic t: .*TOPIC_AUTHORIZATION_FAILED"):
            await client.cluster.topic(TOPIC)


@asynchronous
async def test_a_broker_that_lacks_an_api_is_said_so() -> None:
    async with ScriptedBroker() as broker:
        del broker.ranges[ApiKey.INIT_PRODUCER_ID]
        async with Client(broker.address) as client:
            with pytest.raises(ClientError, match="does not offer InitProducerId"):
                async with client.producer():
                    pass


@asynchronous
async def test_a_start_that_fails_half_way_leaves_nothing_open() -> None:
    async with ScriptedBroker() as broker:

        def hang_up(_: object) -> None:
            raise Hangup

        broker.handlers[ApiKey.METADATA] = hang_up
        with pytest.raises(ClientError, match=broker.address):
            await Client(broker.address, timeout_ms=100).start()


@asynchronous
async def test_a_client_that_is_closed_answers_nothing(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        admin = client.admin
    with pytest.raises(ClientError, match="closed"):
        await admin.list_offsets({TopicPartition(topic, 0): "end"})


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="host:port"):
        Client("localhost:kafka")
