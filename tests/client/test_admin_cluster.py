"""Brokers, the quorum, elections and moves, told by a real broker that stands alone."""

from __future__ import annotations

import pytest

from odradek.client import Client, RequestError, TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.conftest import FOREIGN, Broker
from tests.client.support import asynchronous

alone = pytest.mark.skipif(bool(FOREIGN), reason="a foreign cluster may have more brokers")


@alone
@asynchronous
async def test_a_lone_broker_is_its_own_quorum(broker: Broker) -> None:
    async with Client(broker.bootstrap_servers) as client:
        (found,) = await client.admin.brokers()
        assert (str(found.address), found.is_fenced) == (broker.bootstrap_servers, False)
        quorum = await client.admin.quorum(found.node_id)
        assert quorum.leader_id == found.node_id
        assert [voter.node_id for voter in quorum.voters] == [found.node_id] == list(quorum.addresses)
        assert quorum.observers == [] and quorum.voters[0].end_offset >= quorum.high_watermark > 0


@alone
@asynchronous
async def test_elections_and_moves_have_an_outcome_for_each_partition(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic, 2)
        own = (await client.admin.brokers())[0].node_id
        first, second, unknown = (TopicPartition(topic, index) for index in (0, 1, 9))
        outcomes = await client.admin.elect_leaders([first, unknown])
        assert code(outcomes[first]) is ErrorCode.ELECTION_NOT_NEEDED
        assert code(outcomes[unknown]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert first in await client.admin.elect_leaders(None)
        moved = await client.admin.reassign({first: [own], second: [own + 1], unknown: None})
        assert moved[first] is None
        assert code(moved[second]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert f"moving {topic}-1: " in str(moved[second])
        assert code(moved[unknown]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.admin.moves() == {}


@alone
@asynchronous
async def test_a_broker_that_holds_something_or_is_not_there_is_not_unregistered(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await client.admin.create_topic(topic)
        own = (await client.admin.brokers())[0].node_id
        for node_id in (own, own + 1):
            with pytest.raises(RequestError, match=f"unregistering broker {node_id}: "):
                await client.admin.unregister_broker(node_id)


def code(error: RequestError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code
