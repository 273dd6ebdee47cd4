"""CreatePartitions of every version: topics grow, or it is said why they do not."""

from __future__ import annotations

import pytest

from odradek.apis import create_partitions as growing
from odradek.model import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import create_partitions
from odradek.wire.messages.create_partitions import RequestAssignment, RequestTopic
from tests.apis.houses import Visitor, versions, visiting
from tests.client.support import asynchronous


def topic(name: str, count: int, *brokers: list[int]) -> RequestTopic:
    assignments = [RequestAssignment(broker_ids=each) for each in brokers] if brokers else None
    return RequestTopic(name=name, count=count, assignments=assignments)


async def ask(
    visitor: Visitor, *topics: RequestTopic, version: int = 3, validate_only: bool = False
) -> list[create_partitions.ResponseResult]:
    asked = create_partitions.Request(topics=list(topics), validate_only=validate_only)
    answer = await visitor.ask(growing.API, version, asked, create_partitions.Response)
    assert [each.name for each in answer.results] == [each.name for each in topics]
    return answer.results


@pytest.mark.parametrize("version", versions(growing.API))
@asynchronous
async def test_every_version_lets_topics_grow_or_only_checks(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 1, {})
        (checked,) = await ask(visitor, topic("orders", 3), version=version, validate_only=True)
        assert (checked.error_code, len(visitor.broker.topics["orders"].partitions)) == (0, 1)
        good, bad = await ask(visitor, topic("orders", 3), topic("unknown", 3), version=version)
        assert (good.error_code, good.error_message) == (0, None)
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and bad.error_message
        assert sorted(visitor.broker.topics["orders"].partitions) == [0, 1, 2]
        await visitor.house.produce("orders", b"in the new one", partition=2)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("orders", 2), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", 1000), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", 4, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", 3, [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", 3, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(OFFSETS_TOPIC, 3), ErrorCode.INVALID_REQUEST),
    ],
)
@asynchronous
async def test_what_cannot_be_is_refused(wanted: RequestTopic, code: ErrorCode) -> None:
    async with visiting(settings={"partitions.max": 100}) as visitor:
        await visitor.broker.create_topic("orders", 2, {})
        await visitor.broker.create_topic(OFFSETS_TOPIC, 2, {}, internal=True)
        for validate_only in (True, False):
            (told,) = await ask(visitor, wanted, validate_only=validate_only)
            assert told.error_code == code and told.error_message
        assert len(visitor.broker.topics["orders"].partitions) == 2


@asynchronous
async def test_new_partitions_can_be_assigned_to_the_one_broker_and_a_topic_is_named_once() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 1, {})
        (told,) = await ask(visitor, topic("orders", 3, [1], [1]))
        assert (told.error_code, len(visitor.broker.topics["orders"].partitions)) == (0, 3)
        twice = await ask(visitor, topic("orders", 4), topic("orders", 5))
        assert [each.error_code for each in twice] == [ErrorCode.INVALID_REQUEST] * 2
        assert len(visitor.broker.topics["orders"].partitions) == 3
