"""Producing to a broker that refuses, hangs up, moves and forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from odradek.client import BrokerUnavailableError, Client, ClientError, RequestError, TimedOutError
from odradek.records.header import check_batch
from odradek.records.parse import parse_batch
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import metadata, produce
from odradek.wire.schema import Message
from tests.client.scripted import PRODUCER_ID, TOPIC, Hangup, ScriptedBroker, batch_of, produced
from tests.client.support import asynchronous, until


def script(broker: ScriptedBroker, *answers: Message | Callable[[], Message | None] | None) -> None:
    """Answer Produce requests so, one after the other, and then with success."""
    coming = list(answers)

    def answer(_: produce.Request) -> Message | None:
        next_answer = coming.pop(0) if coming else produced(base_offset=len(broker.asked_for(produce.Request)))
        return next_answer() if callable(next_answer) else next_answer

    broker.handlers[ApiKey.PRODUCE] = answer


def hang_up() -> None:
    raise Hangup


def numbers(broker: ScriptedBroker) -> list[tuple[int, int, int]]:
    """Epoch, sequence and count of each batch that was sent."""
    headers = [check_batch(batch_of(request)) for request in broker.asked_for(produce.Request)]
    assert {header.producer_id for header in headers} == {PRODUCER_ID}
    return [(header.producer_epoch, header.base_sequence, header.record_count) for header in headers]


@asynchronous
async def test_a_retriable_refusal_is_retried_under_the_same_number_after_asking_who_leads() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        async with client.producer() as producer:
            delivery = await producer.send(TOPIC, b"x")
            asked_before = len(broker.asked_for(metadata.Request))
        assert delivery.offset == 2
        assert numbers(broker) == [(0, 0, 1), (0, 0, 1)]
        assert asked_before >= 3


@asynchronous
async def test_a_partition_that_moves_is_followed_to_its_new_leader() -> None:
    async with ScriptedBroker(node_id=1) as old, ScriptedBroker(node_id=2) as new, Client(old.address) as client:
        old.cluster = new.cluster = [old, new]
        script(old)
        script(new)
        async with client.producer() as producer:
            await producer.send(TOPIC, b"a")
            old.leader_id = 2
            script(old, *[produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 100)
            await producer.send(TOPIC, b"b")
            assert numbers(new) == [(0, 1, 1)]
            await producer.send(TOPIC, b"c")
            assert numbers(new) == [(0, 1, 1), (0, 2, 1)]


@asynchronous
async def test_a_connection_that_breaks_is_made_anew_and_the_batch_keeps_its_number() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, hang_up, hang_up)
        async with client.producer() as producer:
            assert (await producer.send(TOPIC, b"x")).offset == 3
        assert numbers(broker) == [(0, 0, 1)] * 3


@asynchronous
async def test_a_broker_that_lost_what_it_had_gets_the_rest_under_a_new_epoch() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, produced(), produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        async with client.producer() as producer:
            await producer.send(TOPIC, b"a")
            await producer.send(TOPIC, b"b")
            await producer.send(TOPIC, b"c")
        assert numbers(broker) == [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]


@asynchronous
async def test_a_broker_that_never_takes_the_numbers_is_given_up() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        broker.handlers[ApiKey.PRODUCE] = lambda _: produced(ErrorCode.UNKNOWN_PRODUCER_ID)
        async with client.producer() as producer:
            with pytest.raises(RequestError, match="UNKNOWN_PRODUCER_ID"):
                await producer.send(TOPIC, b"a")
        assert [epoch for epoch, _, _ in numbers(broker)] == [0, 1, 2, 3]


@asynchronous
async def test_a_duplicate_that_the_broker_knows_of_is_a_success() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, produced(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=-1))
        async with client.producer() as producer:
            assert (await producer.send(TOPIC, b"a")).offset == -1


@asynchronous
async def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        sizes = iter(range(100))

        def answer(request: produce.Request) -> produce.Response:
            is_large = check_batch(batch_of(request)).record_count > 2
            return produced(ErrorCode.MESSAGE_TOO_LARGE if is_large else 0, base_offset=next(sizes))

        broker.handlers[ApiKey.PRODUCE] = answer
        async with client.producer() as producer:
            futures = [producer.send_soon(TOPIC, b"%d" % number) for number in range(7)]
            await producer.flush()
        assert all(future.done() and future.exception() is None for future in futures)
        taken = [batch_of(request) for request in broker.asked_for(produce.Request)]
        kept = [batch for batch in taken if check_batch(batch).record_count <= 2]
        assert [record.value for batch in kept for record in parse_batch(batch)] == [b"%d" % n for n in range(7)]
        assert [check_batch(batch).base_sequence for batch in kept] == [0, 1, 3, 5]


@asynchronous
async def test_a_record_that_is_too_large_fails_and_the_next_one_does_not() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker, produced(ErrorCode.MESSAGE_TOO_LARGE, message="at most 1000 bytes"))
        async with client.producer() as producer:
            with pytest.raises(RequestError, match=r"producing to partition t-0: at most 1000 bytes") as raised:
                await producer.send(TOPIC, b"x" * 5000)
            assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
            await producer.send(TOPIC, b"small")
        assert numbers(broker) == [(0, 0, 1), (0, 0, 1)], "the number of the refused one is free"


@asynchronous
async def test_each_record_of_a_refused_batch_is_told_its_own_reason() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        bad = produce.ResponseRecordError(batch_index=1, batch_index_error_message="it has no key")
        script(broker, produced(ErrorCode.INVALID_RECORD, message="one was bad", record_errors=[bad]))
        async with client.producer() as producer:
            futures = [producer.send_soon(TOPIC, b"x") for _ in range(2)]
            await producer.flush()
        assert [str(future.exception()) for future in futures] == [
            "producing to partition t-0: one was bad (INVALID_RECORD)",
            "producing to partition t-0: it has no key (INVALID_RECORD)",
        ]


@asynchronous
async def test_five_requests_are_under_way_and_no_more() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        script(broker)
        async with client.producer(batch_bytes=100, delivery_timeout_ms=2_000) as producer:
            await producer.send(TOPIC, b"the connection works")
            broker.handlers[ApiKey.PRODUCE] = lambda _: None
            futures = [producer.send_soon(TOPIC, b"x" * 90) for _ in range(10)]
            await until(lambda: len(broker.asked_for(produce.Request)) == 6)
            await producer.flush()
            assert all(isinstance(future.exception(), ClientError) for future in futures)
        assert numbers(broker)[:6] == [(0, number, 1) for number in range(6)]


@asynchronous
async def test_five_requests_are_under_way_to_a_broker_however_many_partitions_it_leads() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        broker.partition_count = 10
        script(broker)
        async with client.producer(request_bytes_max=1, delivery_timeout_ms=1_000) as producer:
            await producer.send(TOPIC, b"the connection works", partition=0)
            broker.handlers[ApiKey.PRODUCE] = lambda _: None
            futures = [producer.send_soon(TOPIC, b"x", partition=number) for number in range(10)]
            await producer.flush()
            assert all(isinstance(future.exception(), ClientError) for future in futures)
        assert len(broker.asked_for(produce.Request)) == 6


@asynchronous
async def test_without_acks_nothing_is_waited_for() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        broker.handlers[ApiKey.PRODUCE] = lambda _: None
        async with client.producer(acks=0) as producer:
            assert (await producer.send(TOPIC, b"x")).offset == -1
        await until(lambda: len(broker.asked_for(produce.Request)) == 1)
        (request,) = broker.asked_for(produce.Request)
        assert request.acks == 0
        assert check_batch(batch_of(request)).producer_id == -1


@asynchronous
async def test_a_broker_that_dies_fails_the_records_with_its_address_and_in_time() -> None:
    async with ScriptedBroker() as broker:
        script(broker)
        client = Client(broker.address, timeout_ms=500)
        await client.start()
        producer = client.producer()
        await producer.start()
        await producer.send(TOPIC, b"x")
    started = asyncio.get_running_loop().time()
    with pytest.raises(BrokerUnavailableError, match=f"{broker.address} cannot be reached.*Is it running"):
        await producer.send(TOPIC, b"y")
    assert asyncio.get_running_loop().time() - started < 5
    await producer.close()
    await client.close()


@asynchronous
async def test_a_broker_that_falls_silent_fails_the_records_in_time() -> None:
    async with ScriptedBroker() as broker, Client(broker.address, timeout_ms=1_000) as client:
        broker.handlers[ApiKey.PRODUCE] = lambda _: None
        async with client.producer(delivery_timeout_ms=300) as producer:
            with pytest.raises(TimedOutError, match=f"{broker.address} did not answer Produce"):
                await producer.send(TOPIC, b"y")


@asynchronous
async def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    async with ScriptedBroker() as broker:
        broker.ranges[ApiKey.METADATA] = (0, 9)
        script(broker)
        async with Client(broker.address) as client, client.producer() as producer:
            await producer.send(TOPIC, b"x")
        (request,) = broker.asked_for(produce.Request)
        assert request.topic_data[0].name == TOPIC
        assert max(version for key, version in broker.versions if key == ApiKey.PRODUCE) == 12


@asynchronous
async def test_a_broker_with_topic_ids_is_asked_by_id() -> None:
    async with ScriptedBroker() as broker:
        script(broker)
        async with Client(broker.address) as client, client.producer() as producer:
            assert (await producer.send(TOPIC, b"x")).topic == TOPIC
        assert (ApiKey.PRODUCE, 13) in broker.versions


@asynchronous
async def test_what_cannot_be_sent_before_the_end_fails_when_the_producer_is_closed() -> None:
    async with ScriptedBroker() as broker, Client(broker.address, timeout_ms=400) as client:
        broker.handlers[ApiKey.PRODUCE] = lambda _: produced(ErrorCode.NOT_ENOUGH_REPLICAS)
        producer = client.producer()
        await producer.start()
        future = producer.send_soon(TOPIC, b"x")
        await producer.close()
        with pytest.raises(ClientError, match="NOT_ENOUGH_REPLICAS"):
            await future
        with pytest.raises(ClientError, match="not open"):
            producer.send_soon(TOPIC, b"y")
