"""Groups whose coordinator moves, loads and refuses; and members whom the group throws out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client import BrokerUnavailableError, Client, CommittedOffset, Consumer, RequestError, TopicPartition
from odradek.client.assignors import encode_assignment
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from odradek.wire.schema import Message
from tests.client.scripted import TOPIC, TOPIC_ID, Hangup, ScriptedBroker
from tests.client.support import asynchronous, until

PARTITION = TopicPartition(TOPIC, 0)
JOINED = join_group.Response(generation_id=1, member_id="me", leader="somebody", protocol_name="range")


def in_turn(*answers: Message | type[Hangup]) -> Callable[[Any], Message]:
    """Give these answers one after the other; the last one again and again."""
    coming = list(answers)

    def answer(_: Any) -> Message:
        given = coming.pop(0) if len(coming) > 1 else coming[0]
        if isinstance(given, type):
            raise given
        return given

    return answer


def committed(error_code: int = 0) -> offset_commit.Response:
    partition = offset_commit.ResponsePartition(partition_index=0, error_code=error_code)
    return offset_commit.Response(
        topics=[offset_commit.ResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])]
    )


def offsets(offset: int = 5, error_code: int = 0, partition_error: int = 0) -> offset_fetch.Response:
    partition = offset_fetch.ResponseGroupPartition(
        partition_index=0, committed_offset=offset, metadata=None, error_code=partition_error
    )
    topic = offset_fetch.ResponseGroupTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
    return offset_fetch.Response(
        groups=[offset_fetch.ResponseGroup(group_id="g", topics=[topic], error_code=error_code)]
    )


@asynchronous
async def test_a_coordinator_that_moved_is_looked_for_again() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        broker.handlers[ApiKey.OFFSET_COMMIT] = in_turn(
            committed(ErrorCode.NOT_COORDINATOR), committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), Hangup, committed()
        )
        await client.admin.set_group_offsets("g", {PARTITION: 5})
        assert len(broker.asked_for(offset_commit.Request)) == 4
        assert len(broker.asked_for(find_coordinator.Request)) == 3, "while it loads it is not looked for"


@asynchronous
async def test_offsets_that_a_transaction_holds_back_are_waited_for() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        broker.handlers[ApiKey.OFFSET_FETCH] = in_turn(
            offsets(partition_error=ErrorCode.UNSTABLE_OFFSET_COMMIT), offsets()
        )
        assert await client.admin.group_offsets("g") == {PARTITION: CommittedOffset(5)}


@asynchronous
async def test_a_refusal_for_good_is_told_with_the_group() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        broker.handlers[ApiKey.OFFSET_FETCH] = in_turn(offsets(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        with pytest.raises(RequestError, match=r"the offsets of group g.*GROUP_AUTHORIZATION_FAILED"):
            await client.admin.group_offsets("g")
        broker.handlers[ApiKey.OFFSET_COMMIT] = in_turn(committed(ErrorCode.OFFSET_METADATA_TOO_LARGE))
        with pytest.raises(RequestError, match="offsets of group g for partition t-0"):
            await client.admin.set_group_offsets("g", {PARTITION: 5})


@asynchronous
async def test_a_broker_of_old_is_asked_in_its_own_way() -> None:
    async with ScriptedBroker() as broker:
        broker.ranges |= {
            ApiKey.FIND_COORDINATOR: (0, 2), ApiKey.OFFSET_FETCH: (1, 7), ApiKey.OFFSET_COMMIT: (2, 7),
        }  # fmt: skip
        old = offset_fetch.ResponsePartition(partition_index=0, committed_offset=7, metadata="m")
        broker.handlers |= {
            ApiKey.OFFSET_FETCH: in_turn(
                offset_fetch.Response(topics=[offset_fetch.ResponseTopic(name=TOPIC, partitions=[old])])
            ),
            ApiKey.OFFSET_COMMIT: in_turn(committed()),
        }
        async with Client(broker.address) as client:
            assert await client.admin.group_offsets("g") == {PARTITION: CommittedOffset(7, -1, "m")}
            await client.admin.set_group_offsets("g", {PARTITION: 5})
        assert {(ApiKey.OFFSET_FETCH, 7), (ApiKey.OFFSET_COMMIT, 7), (ApiKey.FIND_COORDINATOR, 2)} <= set(
            broker.versions
        )


def with_group(broker: ScriptedBroker) -> None:
    """Let the broker have a group of one member, which is not the leader."""
    broker.handlers |= {
        ApiKey.JOIN_GROUP: in_turn(JOINED),
        ApiKey.SYNC_GROUP: in_turn(sync_group.Response(assignment=encode_assignment([PARTITION]))),
        ApiKey.HEARTBEAT: in_turn(heartbeat.Response()),
        ApiKey.LEAVE_GROUP: in_turn(leave_group.Response()),
        ApiKey.OFFSET_FETCH: in_turn(offsets()),
        ApiKey.OFFSET_COMMIT: in_turn(committed()),
        ApiKey.FETCH: in_turn(fetch.Response()),
    }


async def until_assigned(consumer: Consumer) -> None:
    """Poll until the consumer is a member with partitions."""
    async with asyncio.timeout(20):
        while not consumer.assignment:
            await consumer.poll(timeout_ms=100)


@asynchronous
async def test_the_id_that_a_first_join_is_given_is_used_for_the_second() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        with_group(broker)
        broker.handlers[ApiKey.JOIN_GROUP] = in_turn(
            join_group.Response(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"), JOINED
        )
        async with client.consumer(TOPIC, group="g") as consumer:
            await until_assigned(consumer)
            assert consumer.positions() == {PARTITION: 5}
        assert [request.member_id for request in broker.asked_for(join_group.Request)] == ["", "me"]
        assert broker.asked_for(leave_group.Request)[0].members[0].member_id == "me"


@pytest.mark.parametrize(
    ("code", "member_id"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, ""),
        (ErrorCode.ILLEGAL_GENERATION, "me"),
        (ErrorCode.REBALANCE_IN_PROGRESS, "me"),
    ],
)
@asynchronous
async def test_a_member_that_is_thrown_out_joins_again(code: ErrorCode, member_id: str) -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        with_group(broker)
        broker.handlers[ApiKey.HEARTBEAT] = in_turn(
            heartbeat.Response(), heartbeat.Response(error_code=code), heartbeat.Response()
        )
        history: list[str] = []
        async with client.consumer(
            TOPIC,
            group="g",
            heartbeat_interval_ms=10,
            on_assign=lambda _: history.append("+"),
            on_revoke=lambda _: history.append("-"),
        ) as consumer:
            async with asyncio.timeout(20):
                while len(history) < 3:
                    await consumer.poll(timeout_ms=10)
        assert history == ["+", "-", "+", "-"]
        assert [request.member_id for request in broker.asked_for(join_group.Request)] == ["", member_id]


@asynchronous
async def test_a_member_whose_place_was_taken_is_told() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        with_group(broker)
        broker.handlers[ApiKey.HEARTBEAT] = in_turn(heartbeat.Response(error_code=ErrorCode.FENCED_INSTANCE_ID))
        async with client.consumer(TOPIC, group="g", instance_id="one", heartbeat_interval_ms=10) as consumer:
            with pytest.raises(RequestError, match="FENCED_INSTANCE_ID"):
                async for _ in consumer:
                    pass


@asynchronous
async def test_heartbeats_go_on_over_a_coordinator_that_moves() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        with_group(broker)
        broker.handlers[ApiKey.HEARTBEAT] = in_turn(
            heartbeat.Response(error_code=ErrorCode.NOT_COORDINATOR), Hangup, heartbeat.Response()
        )
        async with client.consumer(TOPIC, group="g", heartbeat_interval_ms=10) as consumer:
            await until_assigned(consumer)
            await until(lambda: len(broker.asked_for(heartbeat.Request)) > 3)
            assert consumer.assignment == {PARTITION}
        assert len(broker.asked_for(join_group.Request)) == 1


@asynchronous
async def test_a_group_that_cannot_be_joined_is_an_error_in_time() -> None:
    async with ScriptedBroker() as broker, Client(broker.address, timeout_ms=300) as client:
        with_group(broker)
        broker.handlers[ApiKey.JOIN_GROUP] = in_turn(Hangup)
        async with client.consumer(TOPIC, group="g") as consumer:
            with pytest.raises(BrokerUnavailableError, match=broker.address):
                await consumer.poll(timeout_ms=20_000)
            broker.handlers[ApiKey.JOIN_GROUP] = in_turn(JOINED)
            await until_assigned(consumer)
            assert consumer.assignment == {PARTITION}


@asynchronous
async def test_a_poll_that_is_short_does_not_begin_a_long_join_again() -> None:
    async with ScriptedBroker() as broker, Client(broker.address) as client:
        with_group(broker)
        broker.handlers[ApiKey.JOIN_GROUP] = lambda _: None
        async with client.consumer(TOPIC, group="g") as consumer:
            for _ in range(5):
                assert await consumer.poll(timeout_ms=10) == []
            assert len(broker.asked_for(join_group.Request)) == 1
