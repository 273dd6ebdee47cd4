"""Producing to a real broker."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client import (
    BufferFullError,
    Client,
    ClientError,
    ConsumerRecord,
    Delivery,
    Header,
    NewRecord,
    RequestError,
    TopicPartition,
)
from odradek.client.partitioner import partition_of_key
from odradek.records.compression import Codec
from odradek.wire.errors import ErrorCode
from tests.client.conftest import Broker
from tests.client.support import asynchronous, until_async


async def everything(client: Client, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, partition by partition."""
    async with client.consumer(topic, follow=False) as consumer:
        records = [record async for record in consumer]
    return sorted(records, key=lambda record: (record.partition, record.offset))


@asynchronous
async def test_a_record_comes_back_with_all_it_was_sent_with(broker: Broker, topic: str) -> None:
    headers = [("trace", b"1"), ("trace", None), ("", b"")]
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer() as producer:
            delivery = await producer.send(topic, b"value", key=b"key", headers=headers, timestamp=1_600_000_000_123)
            await producer.send(topic, None, key=b"tombstone")
            await producer.send(topic, b"")
        first, second, third = await everything(client, topic)
    assert delivery == Delivery(topic, 0, 0, 1_600_000_000_123)
    assert (first.key, first.value, first.timestamp) == (b"key", b"value", 1_600_000_000_123)
    assert first.headers == tuple(Header(name, value) for name, value in headers)
    assert (second.key, second.value) == (b"tombstone", None)
    assert (third.key, third.value, third.offset) == (None, b"", 2)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
@asynchronous
async def test_every_codec_comes_back_as_it_went(broker: Broker, topic: str, codec: Codec) -> None:
    values = [bytes([number % 256]) * (number * 37 % 2000) for number in range(300)]
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer(codec=codec) as producer:
            assert await producer.send_many(topic, [NewRecord(value) for value in values]) == 300
        assert [record.value for record in await everything(client, topic)] == values


@asynchronous
async def test_a_key_goes_where_javas_producer_would_put_it(broker: Broker, topic: str) -> None:
    keys = [b"key-%d" % number for number in range(50)]
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 7)
        async with client.producer() as producer:
            deliveries = await asyncio.gather(*(producer.send(topic, b"x", key=key) for key in keys))
    assert [delivery.partition for delivery in deliveries] == [partition_of_key(key, 7) for key in keys]


@asynchronous
async def test_records_without_a_key_reach_every_partition_in_large_pieces(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 4)
        async with client.producer(batch_bytes=2_000) as producer:
            await producer.send_many(topic, (NewRecord(bytes(100)) for _ in range(1_000)))
        wanted = {TopicPartition(topic, index): "end" for index in range(4)}
        ends = [info.offset for info in (await client.admin.list_offsets(wanted)).values()]
    assert sum(ends) == 1_000
    assert min(ends) > 0


@asynchronous
async def test_a_partition_can_be_chosen_but_must_exist(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 2)
        async with client.producer() as producer:
            assert (await producer.send(topic, b"x", key=b"k", partition=1)).partition == 1
            with pytest.raises(RequestError, match="it has partitions 0 to 1"):
                await producer.send(topic, b"x", partition=2)
            await client.admin.add_partitions(topic, 3)
            assert (await producer.send(topic, b"x", partition=2)).partition == 2


@asynchronous
async def test_partitions_that_a_topic_gets_later_are_used(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with (
            Client(broker.bootstrap_servers, metadata_max_age_ms=10) as producing,
            producing.producer(batch_bytes=1) as producer,
        ):
            await producer.send(topic, b"x")
            await client.admin.add_partitions(topic, 2)

            async def reaches_the_new_one() -> bool:
                return (await producer.send(topic, b"x")).partition == 1

            await until_async(reaches_the_new_one)


@asynchronous
async def test_a_topic_is_made_by_the_first_record(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client, client.producer() as producer:
        deliveries = await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(20)))
        assert sorted((delivery.partition, delivery.offset) for delivery in deliveries) == sorted(
            {(delivery.partition, delivery.offset) for delivery in deliveries}
        )


@asynchronous
async def test_records_keep_their_order_from_the_very_first_on(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client, client.producer(batch_bytes=500) as producer:
        futures = []
        for number in range(2_000):
            futures.append(producer.send_soon(topic, b"%d" % number, key=b"same"))
            if number % 100 == 0:
                await asyncio.wait([futures[-1]], timeout=0.001)
        await producer.flush()
        assert all(future.done() for future in futures)
        deliveries = [future.result() for future in futures]
    assert [delivery.offset for delivery in deliveries] == list(range(2_000))


@pytest.mark.parametrize("acks", ["all", 1, 0])
@asynchronous
async def test_every_kind_of_acknowledgement_delivers(broker: Broker, topic: str, acks: str | int) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer(acks=acks) as producer:  # type: ignore[arg-type]
            delivery = await producer.send(topic, b"x")
            assert delivery.offset == (-1 if acks == 0 else 0)
        async with client.consumer(topic) as consumer:
            assert (await anext(consumer)).value == b"x"


@asynchronous
async def test_lingering_gathers_records_and_a_flush_ends_it(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer(linger_ms=20_000) as producer:
            futures = [producer.send_soon(topic, b"x") for _ in range(10)]
            await asyncio.wait(futures, timeout=0.1)
            assert not any(future.done() for future in futures)
            await producer.flush()
            assert [future.result().offset for future in futures] == list(range(10))


@asynchronous
async def test_a_full_buffer_holds_senders_back_and_loses_nothing(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer(buffer_bytes=10_000, linger_ms=200) as producer:
            with pytest.raises(BufferFullError, match=r"await producer\.room\(\)"):
                for _ in range(1_000):
                    producer.send_soon(topic, bytes(1_000))
            await producer.room()
            producer.send_soon(topic, bytes(1_000))
            deliveries = await asyncio.gather(*(producer.send(topic, bytes(1_000)) for _ in range(100)))
            with pytest.raises(ValueError, match="raise buffer_bytes"):
                await producer.send(topic, bytes(10_001))
        assert len({delivery.offset for delivery in deliveries}) == 100


@asynchronous
async def test_a_sender_that_gives_up_waiting_for_room_leaves_it_to_others(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer(buffer_bytes=5_000) as producer:
            tasks = [asyncio.create_task(producer.send(topic, bytes(4_000))) for _ in range(6)]
            await asyncio.wait([tasks[0]], return_when=asyncio.FIRST_COMPLETED)
            tasks[4].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(outcome, Delivery) for outcome in outcomes) == 5
            await producer.send(topic, bytes(4_900))


@asynchronous
async def test_a_record_that_the_topic_does_not_take_fails_with_the_brokers_words(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 1, {"max.message.bytes": "1000"})
        async with client.producer() as producer:
            with pytest.raises(RequestError) as raised:
                await producer.send(topic, bytes(2_000))
            assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
            futures = [producer.send_soon(topic, bytes(200)) for _ in range(20)]
            await producer.flush()
            assert [future.result().offset for future in futures] == list(range(20)), "batches are halved, in order"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": "text"}, TypeError),
        ({"value": b"", "key": 5}, TypeError),
        ({"value": b"", "headers": [(b"name", b"")]}, TypeError),
        ({"value": b"", "headers": [("name", "text")]}, TypeError),
        ({"value": b"", "headers": [("\ud800", b"")]}, ValueError),
        ({"value": b"", "timestamp": -1}, ValueError),
        ({"value": b"", "timestamp": 2**63}, ValueError),
    ],
)
@asynchronous
async def test_what_is_no_record_is_refused_before_it_is_sent(
    broker: Broker, topic: str, arguments: dict[str, object], error: type[Exception]
) -> None:
    async with Client(broker.bootstrap_servers) as client, client.producer() as producer:
        with pytest.raises(error):
            await producer.send(topic, **arguments)  # type: ignore[arg-type]
        with pytest.raises(ClientError, match="a topic's name consists of"):
            await producer.send("no/topic", b"x")


@asynchronous
async def test_settings_that_make_no_sense_are_refused(broker: Broker) -> None:
    async with Client(broker.bootstrap_servers) as client:
        with pytest.raises(ValueError, match='needs acks="all"'):
            client.producer(acks=1, idempotent=True)
        with pytest.raises(ValueError, match="acks is"):
            client.producer(acks=2)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="positive"):
            client.producer(batch_bytes=0)
        with pytest.raises(ValueError, match="leaves no time to send"):
            client.producer(linger_ms=500, delivery_timeout_ms=500)
        with pytest.raises(Exception, match="compression codec 'brotli' does not exist"):
            client.producer(codec="brotli")
    with pytest.raises(RuntimeError, match="not started"):
        Client(broker.bootstrap_servers).producer()
