"""Consuming from a broker that moves, fails and sends nonsense."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client import Client, ClientError, RequestError, TopicPartition
from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch, list_offsets, metadata
from odradek.wire.schema import Message
from tests.client.scripted import NODE_ID, TOPIC, TOPIC_ID, Hangup, ScriptedBroker
from tests.client.support import asynchronous

PARTITION = TopicPartition(TOPIC, 0)


def batch(base_offset: int, count: int = 1) -> bytes:
    return bytes(build_batch([NewRecord(b"x", None, 0)] * count, base_offset=base_offset))


def fetched(records: bytes = b"", error_code: int = 0) -> fetch.Response:
    """An answer to Fetch for the only partition."""
    partition = fetch.ResponsePartition(
        partition_index=0, error_code=error_code, high_watermark=10, records=records, aborted_transactions=[]
    )
    return fetch.Response(responses=[fetch.ResponseTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])])


def listed(request: list_offsets.Request) -> list_offsets.Response:
    """The log begins at 0 and ends at 10."""
    timestamp = request.topics[0].partitions[0].timestamp
    partition = list_offsets.ResponsePartition(partition_index=0, offset=0 if timestamp == -2 else 10)
    return list_offsets.Response(topics=[list_offsets.ResponseTopic(name=TOPIC, partitions=[partition])])


def script(broker: ScriptedBroker, *answers: Message) -> None:
    """Answer Fetch requests so, one after the other, then with one record at a time."""
    coming = list(answers)

    def answer(request: fetch.Request) -> Message:
        return coming.pop(0) if coming else fetched(batch(request.topics[0].partitions[0].fetch_offset))

    broker.handlers |= {ApiKey.FETCH: answer, ApiKey.LIST_OFFSETS: listed}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
@asynchronous
async def test_an_error_that_passes_is_overcome_by_asking_who_leads(code: ErrorCode) -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, fetched(error_code=code), fetched(error_code=code))
        async with client.consumer([PARTITION], start=3) as consumer:
            asked_before = len(broker.asked_for(metadata.Request))
            assert (await anext(consumer)).offset == 3
            assert len(broker.asked_for(metadata.Request)) > asked_before


@asynchronous
async def test_a_partition_that_moves_is_followed_to_its_new_leader() -> None:
    async with ScriptedBroker(node_id=1) as old, ScriptedBroker(node_id=2) as new, Client(old.address) as client:
        old.cluster = new.cluster = [old, new]
        script(old, fetched(batch(0)))
        script(new)
        async with client.consumer([PARTITION]) as consumer:
            assert (await anext(consumer)).offset == 0
            old.leader_id = 2
            old.handlers[ApiKey.FETCH] = lambda _: fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            async with asyncio.timeout(20):
                while not new.asked_for(fetch.Request):
                    await anext(consumer)
            position = new.asked_for(fetch.Request)[0].topics[0].partitions[0].fetch_offset
            async for record in consumer:
                if record.offset == position + 5:
                    break


@asynchronous
async def test_a_connection_that_breaks_is_made_anew() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker)
        serve = broker.handlers[ApiKey.FETCH]
        refusals = [1, 2, 3]

        def sometimes(request: fetch.Request) -> Message | bytes | None:
            if refusals:
                refusals.pop()
                raise Hangup
            return serve(request)

        broker.handlers[ApiKey.FETCH] = sometimes
        async with client.consumer([PARTITION]) as consumer:
            assert [(await anext(consumer)).offset for _ in range(3)] == [0, 1, 2]


@asynchronous
async def test_an_error_that_does_not_pass_is_told_and_reading_goes_on_when_it_is_gone() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, fetched(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        async with client.consumer([PARTITION]) as consumer:
            with pytest.raises(RequestError, match=r"fetching from partition t-0.*TOPIC_AUTHORIZATION_FAILED"):
                await anext(consumer)
            assert (await anext(consumer)).offset == 0


@asynchronous
async def test_an_error_that_should_pass_but_stays_is_told_in_time() -> None:
    async with ScriptedBroker() as broker, Client(broker.address, timeout_ms=300) as client:
        script(broker)
        broker.handlers[ApiKey.FETCH] = lambda _: fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        async with client.consumer([PARTITION]) as consumer:
            with pytest.raises(RequestError, match="NOT_LEADER_OR_FOLLOWER"):
                await consumer.poll(timeout_ms=10_000)


@asynchronous
async def test_a_partition_without_a_leader_is_waited_for() -> None:
    async with ScriptedBroker() as broker:
        leaders = [-1, -1, -1, NODE_ID]

        def moving(request: metadata.Request) -> metadata.Response:
            response = broker.on_metadata(request)
            for topic in response.topics:
                topic.partitions[0].leader_id = leaders.pop(0) if len(leaders) > 1 else leaders[0]
            return response

        broker.handlers[ApiKey.METADATA] = moving
        script(broker)
        async with Client(broker.address) as client, client.consumer([PARTITION]) as consumer:
            assert (await anext(consumer)).offset == 0
            assert leaders == [NODE_ID]


@asynchronous
async def test_a_damaged_batch_is_told_with_its_place_and_nothing_is_skipped() -> None:
    damaged = bytearray(batch(0) + batch(1))
    damaged[-2] ^= 1
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, fetched(bytes(damaged)))
        async with client.consumer([PARTITION]) as consumer:
            assert (await anext(consumer)).offset == 0
            with pytest.raises(ClientError, match="the batch at offset 1 of partition t-0 cannot be read"):
                await anext(consumer)
            assert (await anext(consumer)).offset == 1


@asynchronous
async def test_bytes_that_are_no_batches_are_told() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, fetched(b"\0" * 100))
        async with client.consumer([PARTITION]) as consumer:
            with pytest.raises(ClientError, match="what partition t-0 holds at offset 0 cannot be read"):
                await anext(consumer)


@asynchronous
async def test_topics_are_asked_for_by_id_where_there_are_ids_and_by_name_where_not() -> None:
    for metadata_max, fetch_version in ((metadata.Request.versions[1], fetch.Request.versions[1]), (9, 12)):
        async with ScriptedBroker() as broker:
            broker.ranges[ApiKey.METADATA] = (0, metadata_max)
            script(broker)
            async with Client(broker.address) as client, client.consumer([PARTITION]) as consumer:
                assert (await anext(consumer)).topic == TOPIC
            assert (ApiKey.FETCH, fetch_version) in broker.versions
        request = broker.asked_for(fetch.Request)[0]
        assert (request.session_id, request.session_epoch) == (0, -1)
        assert (request.topics[0].topic, request.topics[0].topic_id) in (("", TOPIC_ID), (TOPIC, bytes(16)))


@asynchronous
async def test_an_offset_that_is_gone_leads_to_the_start_of_the_log() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        async with client.consumer([PARTITION], start=99) as consumer:
            assert (await anext(consumer)).offset == 0
