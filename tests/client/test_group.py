"""Members of a classic group, against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.client import Client, ClientError, Consumer, NewRecord, RequestError, TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.conftest import Broker
from tests.client.support import asynchronous, until, until_async

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50, "max_wait_ms": 50}


class Member:
    """A consumer that reads, commits and writes down what it sees, in a task of its own."""

    def __init__(self, client: Client, topics: str | Sequence[str], group: str, **options: Any) -> None:
        self.values: list[bytes | None] = []
        self.history: list[tuple[str, int]] = []  # "+" or "-", and the number of partitions
        self.consumer = client.consumer(
            topics, group=group, on_assign=self.assigned, on_revoke=self.revoked, **(QUICK | options)
        )
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """Write it down."""
        self.history.append(("+", len(partitions)))

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        """Write it down, and commit: this is the last chance."""
        self.history.append(("-", len(partitions)))
        await self.consumer.commit()

    @property
    def partitions(self) -> list[int]:
        """What it has now."""
        return sorted(partition.partition for partition in self.consumer.assignment)

    async def _run(self) -> None:
        async with self.consumer as consumer:
            while not self._stop.is_set():
                self.values += [record.value for record in await consumer.poll(10, 50)]

    async def leave(self) -> None:
        """Close it in good order."""
        self._stop.set()
        await self._task

    async def die(self) -> None:
        """End without a word to the group."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def send(client: Client, topic: str, values: range, partitions: int) -> None:
    async with client.producer() as producer:
        for number in values:
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def values(numbers: range) -> list[bytes]:
    return sorted(b"%d" % number for number in numbers)


@asynchronous
async def test_members_share_the_partitions_and_see_every_record_once(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 4)
        await send(client, topic, range(40), 4)
        first = Member(client, topic, group)
        await until(lambda: len(first.values) == 40)
        assert first.partitions == [0, 1, 2, 3]
        second = Member(client, topic, group)
        await until(lambda: len(second.partitions) == len(first.partitions) == 2)
        assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
        await send(client, topic, range(40, 80), 4)
        await until(lambda: len(first.values) + len(second.values) == 80)
        await second.leave()
        await until(lambda: first.partitions == [0, 1, 2, 3])
        await send(client, topic, range(80, 100), 4)
        await until(lambda: len(first.values) + len(second.values) >= 100)
        await first.leave()
        assert sorted(value or b"" for value in first.values + second.values) == values(range(100))
        assert first.history == [("+", 4), ("-", 4), ("+", 2), ("-", 2), ("+", 4), ("-", 4)]
        lags = (await client.admin.group_lag(group)).values()
        assert [lag.lag for lag in lags] == [0, 0, 0, 0]


@asynchronous
async def test_a_member_that_dies_loses_its_partitions_when_its_session_is_over(
    broker: Broker, topic: str, group: str
) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 2)
        first = Member(client, topic, group)
        async with Client(broker.bootstrap_servers) as other:
            second = Member(other, topic, group, session_timeout_ms=6_000)
            await until(lambda: len(first.partitions) == len(second.partitions) == 1)
            membership = second.consumer._membership
            assert membership is not None
            membership._member_id = ""  # so that closing does not leave the group
            await second.die()
        await until(lambda: first.partitions == [0, 1])
        await first.leave()


@asynchronous
async def test_a_consumer_that_does_not_poll_leaves_and_comes_back(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 2)
        lazy = client.consumer(topic, group=group, max_poll_interval_ms=300, **QUICK)
        async with lazy:
            await until_async(lambda: _has(lazy, 2))

            async def is_empty() -> bool:
                return (await client.admin.describe_group(group)).state == "Empty"

            await until_async(is_empty)
            await until_async(lambda: _has(lazy, 2))
            assert (await client.admin.describe_group(group)).state == "Stable"


async def _has(consumer: Consumer, count: int) -> bool:
    await consumer.poll(timeout_ms=10)
    return len(consumer.assignment) == count


@asynchronous
async def test_a_topic_that_grows_is_shared_out_again(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers, metadata_max_age_ms=50) as client:
        await client.admin.create_topic(topic, 1)
        member = Member(client, [topic, f"{topic}-later"], group)
        await until(lambda: len(member.partitions) == 1)
        await client.admin.add_partitions(topic, 3)
        await until(lambda: len(member.partitions) == 3)
        await client.admin.create_topic(f"{topic}-later", 2)
        await until(lambda: len(member.partitions) == 5)
        await member.leave()


@asynchronous
async def test_what_a_member_processed_can_be_committed_until_it_polls_again(
    broker: Broker, topic: str, group: str
) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 2)
        await send(client, topic, range(10), 2)
        seen: list[bytes | None] = []
        async with client.consumer(topic, group=group, **QUICK) as slow:
            while len(seen) < 10:
                seen += [record.value for record in await slow.poll(10, 50)]
            second = Member(client, topic, group)

            async def is_rebalancing() -> bool:
                return (await client.admin.describe_group(group)).state == "PreparingRebalance"

            await until_async(is_rebalancing)
            await slow.commit()
            await until_async(lambda: _has(slow, 1))
            await until(lambda: len(second.partitions) == 1)
            assert second.values == []
            await second.leave()


@asynchronous
async def test_a_commit_after_the_group_has_moved_on_is_refused(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 2)
        async with client.consumer(topic, group=group, **QUICK) as consumer:
            await until_async(lambda: _has(consumer, 2))
            membership = consumer._membership
            assert membership is not None
            membership._generation -= 1
            with pytest.raises(RequestError) as raised:
                await consumer.commit()
            assert raised.value.code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
            await until(lambda: membership.needs_join)
            await until_async(lambda: _has(consumer, 2))
            await consumer.commit()


@asynchronous
async def test_a_static_member_keeps_its_place_over_a_restart(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 2)
        other = Member(client, topic, group)
        first = Member(client, topic, group, instance_id="one")
        await until(lambda: len(other.partitions) == len(first.partitions) == 1)
        had, changes = first.partitions, len(other.history)
        await first.leave()
        again = Member(client, topic, group, instance_id="one")
        await until(lambda: again.partitions == had)
        assert len(other.history) == changes, "the others were not disturbed"
        await again.leave()
        await other.leave()


@asynchronous
async def test_members_with_the_roundrobin_assignor_share_topics_evenly(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        topics = [topic, f"{topic}-b", f"{topic}-c"]
        for name in topics:
            await client.admin.create_topic(name, 1)
        members = [Member(client, topics, group, assignors=["roundrobin"]) for _ in range(3)]
        await until(lambda: [len(member.partitions) for member in members] == [1, 1, 1])
        description = await client.admin.describe_group(group)
        assert (description.state, description.assignor, len(description.members)) == ("Stable", "roundrobin", 3)
        await asyncio.gather(*(member.leave() for member in members))


@asynchronous
async def test_a_group_is_read_to_the_end_and_left(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 3)
        await send(client, topic, range(30), 3)
        for expected in (30, 0):
            async with client.consumer(topic, group=group, follow=False, commit_on_close=True, **QUICK) as consumer:
                assert len([record async for record in consumer]) == expected


@asynchronous
async def test_an_error_in_a_listener_reaches_the_one_who_polls(broker: Broker, topic: str, group: str) -> None:
    def fail(_: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 1)
        async with client.consumer(topic, group=group, on_assign=fail, **QUICK) as consumer:
            with pytest.raises(ZeroDivisionError):
                await consumer.poll(timeout_ms=10_000)


@asynchronous
async def test_a_session_that_the_broker_does_not_allow_is_an_error_and_no_loop(
    broker: Broker, topic: str, group: str
) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 1)
        async with client.consumer(topic, group=group, session_timeout_ms=1) as consumer:
            with pytest.raises(ClientError, match="INVALID_SESSION_TIMEOUT"):
                await consumer.poll(timeout_ms=10_000)


@asynchronous
async def test_eight_members_come_and_go_and_nothing_is_missed(broker: Broker, topic: str, group: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 8)
        members = [Member(client, topic, group) for _ in range(4)]
        everyone = list(members)
        async with client.producer() as producer:
            for round_ in range(4):
                records = [
                    NewRecord(b"%d" % number, b"%d" % number) for number in range(100 * round_, 100 * round_ + 100)
                ]
                await producer.send_many(topic, records)
                members.append(Member(client, topic, group))
                everyone.append(members[-1])
                await until(lambda: sum(len(member.partitions) for member in members) == 8)
                await members.pop(0).leave()
        await until(lambda: sum(len(member.partitions) for member in members) == 8)

        async def is_done() -> bool:
            for member in members:
                await member.consumer.commit()
            lags = await client.admin.group_lag(group)
            return len(lags) == 8 and all(lag.lag == 0 for lag in lags.values())

        await until_async(is_done)
        await asyncio.gather(*(member.leave() for member in members))
        seen = [value or b"" for member in everyone for value in member.values]
        assert sorted(set(seen)) == values(range(400))
