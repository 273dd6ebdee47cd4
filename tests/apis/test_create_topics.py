"""CreateTopics of every version: made, only checked, or refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.apis import create_topics as creating
from odradek.model import OFFSETS_TOPIC
from odradek.settings_rows import SETTINGS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import create_topics
from odradek.wire.messages.create_topics import RequestAssignment, RequestConfig, RequestTopic
from tests.apis.houses import Visitor, versions, visiting
from tests.client.support import asynchronous

WITH_DETAILS, WITH_IDS = 5, 7


def topic(name: str, count: int = 1, replicas: int = 1, **fields: Any) -> RequestTopic:
    return RequestTopic(name=name, num_partitions=count, replication_factor=replicas, **fields)


async def ask(
    visitor: Visitor, *topics: RequestTopic, version: int = 7, validate_only: bool = False
) -> list[create_topics.ResponseTopic]:
    asked = create_topics.Request(topics=list(topics), validate_only=validate_only)
    answer = await visitor.ask(creating.API, version, asked, create_topics.Response)
    assert [each.name for each in answer.topics] == [each.name for each in topics]
    return answer.topics


@pytest.mark.parametrize("version", versions(creating.API))
@asynchronous
async def test_every_version_makes_topics(version: int) -> None:
    async with visiting(settings={"num.partitions": 3}) as visitor:
        configs = [RequestConfig(name="retention.ms", value="1000"), RequestConfig(name="flush", value=None)]
        told = await ask(visitor, topic("a", 2, configs=configs), topic("b", -1, -1), version=version)
        assert [each.error_code for each in told] == [0, 0]
        made = visitor.broker.topics
        assert (len(made["a"].partitions), len(made["b"].partitions)) == (2, 3)
        assert made["a"].overrides == {"retention.ms": "1000"}
        if version >= WITH_DETAILS:
            assert [(each.num_partitions, each.replication_factor) for each in told] == [(2, 1), (3, 1)]
            settings = {each.name: each for each in told[0].configs or ()}
            assert set(settings) == {name for name, row in SETTINGS.items() if row.scope == "topic"}
            assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("1000", 1)
            assert (settings["flush"].value, settings["flush"].config_source) == ("group", 5)
        if version >= WITH_IDS:
            assert [each.topic_id for each in told] == [made["a"].id, made["b"].id]


@pytest.mark.parametrize("version", versions(creating.API))
@asynchronous
async def test_every_version_can_only_check(version: int) -> None:
    async with visiting() as visitor:
        told = await ask(visitor, topic("a", 2), topic("../x"), version=version, validate_only=True)
        assert [each.error_code for each in told] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert told[1].error_message
        assert visitor.broker.topics == {}
        if version >= WITH_DETAILS:
            assert told[0].num_partitions == 2


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a.b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(OFFSETS_TOPIC), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("new", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("new", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("new", 100), ErrorCode.INVALID_PARTITIONS),
        (topic("new", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", configs=[RequestConfig(name="unknown", value="1")]), ErrorCode.INVALID_CONFIG),
        (topic("new", configs=[RequestConfig(name="flush", value="never")]), ErrorCode.INVALID_CONFIG),
        (topic("new", 1, -1, assignments=[RequestAssignment(broker_ids=[1])]), ErrorCode.INVALID_REQUEST),
        (
            topic("new", -1, -1, assignments=[RequestAssignment(partition_index=1, broker_ids=[1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic("new", -1, -1, assignments=[RequestAssignment(broker_ids=[1, 2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (topic("new", -1, -1, assignments=[RequestAssignment(broker_ids=[])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@asynchronous
async def test_what_cannot_be_made_is_refused_alone(wanted: RequestTopic, code: ErrorCode) -> None:
    async with visiting(settings={"partitions.max": 50}) as visitor:
        await visitor.broker.create_topic("there", 1, {})
        await visitor.broker.create_topic("a_b", 1, {})
        refused, good = await ask(visitor, wanted, topic("good"))
        assert (refused.error_code, good.error_code) == (code, 0)
        assert refused.error_message
        assert sorted(visitor.broker.topics) == ["a_b", "good", "there"]


@asynchronous
async def test_partitions_can_be_assigned_to_the_one_broker() -> None:
    async with visiting() as visitor:
        assignments = [RequestAssignment(partition_index=index, broker_ids=[1]) for index in (1, 0)]
        (told,) = await ask(visitor, topic("new", -1, -1, assignments=assignments))
        assert (told.error_code, told.num_partitions) == (0, 2)


@asynchronous
async def test_a_topic_that_is_named_twice_is_made_not_even_once() -> None:
    async with visiting() as visitor:
        told = await ask(visitor, topic("twice"), topic("once"), topic("twice", 2))
        assert [each.error_code for each in told] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
        assert list(visitor.broker.topics) == ["once"]
