"""Consuming from a real broker, without a group or with one that only keeps offsets."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client import (
    Client,
    ClientError,
    CommittedOffset,
    NewRecord,
    RequestError,
    TopicPartition,
    UnknownTopicError,
)
from odradek.wire.errors import ErrorCode
from tests.client.conftest import Broker
from tests.client.support import asynchronous, until

START_MS = 1_700_000_000_000


async def fill(client: Client, topic: str, count: int, *, partitions: int = 1, batch_bytes: int = 200) -> None:
    """Make a topic with `count` records in each partition, a second apart, several to a batch."""
    await client.admin.create_topic(topic, partitions)
    async with client.producer(batch_bytes=batch_bytes) as producer:
        for partition in range(partitions):
            records = [NewRecord(b"%d" % number, None, START_MS + 1000 * number) for number in range(count)]
            await producer.send_many(topic, records, partition=partition)


@pytest.mark.parametrize(
    ("start", "first"),
    [("start", 0), ("+3", 3), ("-4", 16), (7, 7), ("13", 13), (f"@{START_MS + 5500}", 6), ("-100", 0), ("@0", 0)],
)
@asynchronous
async def test_reading_begins_where_it_was_told_to(broker: Broker, topic: str, start: str | int, first: int) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 20)
        async with client.consumer(topic, start=start, follow=False) as consumer:
            assert [record.offset async for record in consumer] == list(range(first, 20))


@pytest.mark.parametrize("start", ["end", "+100", f"@{START_MS + 10**9}"])
@asynchronous
async def test_reading_at_the_end_sees_what_comes_next(broker: Broker, topic: str, start: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 5)
        async with client.consumer(topic, start=start) as consumer, client.producer() as producer:
            assert await consumer.poll(timeout_ms=50) == []
            await producer.send(topic, b"new")
            record = await anext(consumer)
            assert (record.offset, record.value) == (5, b"new")


@asynchronous
async def test_records_of_all_partitions_come_each_in_order(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 50, partitions=5)
        async with client.consumer(topic, follow=False) as consumer:
            records = [record async for record in consumer]
            assert consumer.positions() == {TopicPartition(topic, index): 50 for index in range(5)}
            assert set((await consumer.lag()).values()) == {0}
    for index in range(5):
        assert [record.offset for record in records if record.partition == index] == list(range(50))


@asynchronous
async def test_certain_partitions_each_from_its_own_place(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 10, partitions=3)
        places = {TopicPartition(topic, 0): "-1", TopicPartition(topic, 2): 8}
        async with client.consumer(places, follow=False) as consumer:
            found = sorted([(record.partition, record.offset) async for record in consumer])
            assert consumer.assignment == set(places)
        assert found == [(0, 9), (2, 8), (2, 9)]
        async with client.consumer([TopicPartition(topic, 1)], follow=False) as consumer:
            assert len([record async for record in consumer]) == 10


@asynchronous
async def test_poll_takes_no_more_than_it_was_told_and_the_position_says_where(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 10)
        partition = TopicPartition(topic, 0)
        async with client.consumer(topic) as consumer:
            taken = await consumer.poll(4, 5_000)
            assert [record.offset for record in taken] == [0, 1, 2, 3]
            assert consumer.position(partition) == 4
            assert await consumer.lag() == consumer.known_lag() == {partition: 6}
            assert (await anext(consumer)).offset == 4
            assert consumer.position(partition) == 5
            assert [record.offset for record in await consumer.poll(100, 5_000)] == list(range(5, 10))
            assert await consumer.poll(100, 20) == []


@asynchronous
async def test_seeking_forgets_what_was_fetched_ahead(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 30)
        partition = TopicPartition(topic, 0)
        async with client.consumer(topic) as consumer:
            assert [record.offset for record in await consumer.poll(5, 5_000)] == [0, 1, 2, 3, 4]
            for place, offset in ((20, 20), ("start", 0), ("-2", 28), (f"@{START_MS + 11_000}", 11)):
                await consumer.seek(partition, place)
                assert consumer.position(partition) == offset
                assert (await anext(consumer)).offset == offset
            with pytest.raises(ClientError, match="is not assigned"):
                await consumer.seek(TopicPartition(topic, 9), 0)


@asynchronous
async def test_a_topic_that_does_not_exist_is_said_so(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        with pytest.raises(UnknownTopicError, match=f"topic {topic}: it does not exist"):
            async with client.consumer(topic):
                pass


@asynchronous
async def test_an_offset_that_is_gone_is_passed_over_or_reported(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 20)
        partition = TopicPartition(topic, 0)
        assert await client.admin.delete_records({partition: 12}) == {partition: 12}
        async with client.consumer(topic, start=3) as consumer:
            assert (await anext(consumer)).offset == 12
        async with client.consumer(topic, start=3, reset="end") as consumer, client.producer() as producer:
            await consumer.poll(timeout_ms=10)
            await until_position(consumer, partition, 20)
            await producer.send(topic, b"new")
            assert (await anext(consumer)).offset == 20
        async with client.consumer(topic, start=3, reset="error") as consumer:
            with pytest.raises(RequestError, match="at offset 3") as raised:
                await anext(consumer)
            assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            await consumer.seek(partition, 15)
            assert (await anext(consumer)).offset == 15


async def until_position(consumer: object, partition: TopicPartition, position: int) -> None:
    """Poll until the consumer has moved by itself."""
    async with asyncio.timeout(20):
        while consumer.position(partition) != position:  # type: ignore[attr-defined]
            assert await consumer.poll(timeout_ms=10) == []  # type: ignore[attr-defined]


@asynchronous
async def test_large_records_and_small_bounds_get_through(broker: Broker, topic: str) -> None:
    values = [bytes([number]) * 300_000 for number in range(10)]
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer() as producer:
            await producer.send_many(topic, [NewRecord(value) for value in values])
        bounds = {"fetch_bytes": 1_000, "partition_bytes": 1_000, "buffer_bytes": 2_000}
        async with client.consumer(topic, follow=False, **bounds) as consumer:  # type: ignore[arg-type]
            assert [record.value async for record in consumer] == values


@asynchronous
async def test_data_is_fetched_ahead_while_the_application_works(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        async with client.producer() as producer:
            await producer.send_many(topic, (NewRecord(bytes(1_000)) for _ in range(500)))
        async with client.consumer(topic, partition_bytes=20_000) as consumer:
            await anext(consumer)
            state = consumer._fetcher.states[TopicPartition(topic, 0)]
            await until(lambda: state.fetch_offset == 500)
            assert state.position == 1


@asynchronous
async def test_two_in_a_program_do_not_hold_each_other_up(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 1)
        async with client.consumer(topic, start="end", max_wait_ms=30_000) as idle, client.producer() as producer:
            waiting = asyncio.create_task(anext(idle))
            async with client.consumer(topic) as busy:
                assert (await anext(busy)).offset == 0
            await producer.send(topic, b"x")
            assert (await waiting).offset == 1


@asynchronous
async def test_partitions_that_a_topic_gets_later_are_read_from_their_first_record(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 1)
        async with (
            Client(broker.bootstrap_servers, metadata_max_age_ms=50) as watching,
            watching.consumer(topic, start="end") as consumer,
            client.producer() as producer,
        ):
            await client.admin.add_partitions(topic, 3)
            await producer.send(topic, b"new", partition=2)
            record = await anext(consumer)
            assert (record.partition, record.offset) == (2, 0)


@asynchronous
async def test_offsets_are_kept_for_a_group_that_nobody_has_joined(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 10)
        async with client.consumer([partition], group=group) as consumer:
            await consumer.poll(3, 5_000)
            await consumer.commit()
            assert await consumer.committed() == {partition: CommittedOffset(3)}
            await consumer.commit({partition: CommittedOffset(4, metadata="by hand")})
        async with client.consumer([partition], group=group, commit_on_close=True) as consumer:
            assert (await anext(consumer)).offset == 4
        assert (await client.admin.group_offsets(group))[partition].offset == 5
        async with client.consumer([partition]) as consumer:
            with pytest.raises(ClientError, match="without a group"):
                await consumer.commit()


@asynchronous
async def test_offsets_commit_themselves_if_that_is_asked_for(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 10)
        async with client.consumer([partition], group=group, auto_commit_ms=20) as consumer:
            await consumer.poll(6, 5_000)
            async with asyncio.timeout(20):
                while (await consumer.committed()).get(partition, CommittedOffset(0)).offset < 6:
                    await consumer.poll(0, 5)


@asynchronous
async def test_an_iteration_ends_when_the_consumer_is_closed(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await fill(client, topic, 1)
        async with client.consumer(topic) as consumer:
            assert (await anext(consumer)).offset == 0
        assert [record async for record in consumer] == []
        with pytest.raises(ClientError, match="not open"):
            await consumer.poll()


@asynchronous
async def test_settings_that_make_no_sense_are_refused(broker: Broker) -> None:
    async with Client(broker.bootstrap_servers) as client:
        with pytest.raises(ValueError, match="one or more topics"):
            client.consumer([])
        with pytest.raises(ValueError, match="one or more topics"):
            client.consumer(["a", TopicPartition("b", 0)])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="without a group"):
            client.consumer("a", auto_commit_ms=5)
        with pytest.raises(ValueError, match="isolation"):
            client.consumer("a", isolation="serializable")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="assignors"):
            client.consumer("a", group="g", assignors=["sticky"])
        with pytest.raises(ValueError, match="no place to start"):
            client.consumer("a", start="somewhere")
