"""DeleteTopics of every version: by name, by id, and what may not go."""

from __future__ import annotations

import pytest

from odradek.apis import delete_topics as deleting
from odradek.model import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import delete_topics
from odradek.wire.messages.delete_topics import RequestTopic
from tests.apis.houses import Visitor, versions, visiting
from tests.client.support import asynchronous

WITH_IDS, WITH_MESSAGES = 6, 5


async def ask(visitor: Visitor, version: int, *names: str) -> list[delete_topics.ResponseTopic]:
    asked = delete_topics.Request(topic_names=list(names), topics=[RequestTopic(name=name) for name in names])
    return (await visitor.ask(deleting.API, version, asked, delete_topics.Response)).responses


@pytest.mark.parametrize("version", versions(deleting.API))
@asynchronous
async def test_every_version_deletes_by_name(version: int) -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 2, {})
        await visitor.broker.create_topic("kept", 1, {})
        told = await ask(visitor, version, "orders", "unknown", "orders")
        assert [(each.name, each.error_code) for each in told] == [
            ("orders", 0),
            ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert bool(told[1].error_message) == (version >= WITH_MESSAGES)
        assert told[0].topic_id == (topic.id if version >= WITH_IDS else bytes(16))
        assert list(visitor.broker.topics) == ["kept"]


@asynchronous
async def test_version_6_deletes_by_id() -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {})
        asked = delete_topics.Request(
            topics=[RequestTopic(name=None, topic_id=each) for each in (topic.id, b"\7" * 16, topic.id)]
        )
        told = (await visitor.ask(deleting.API, 6, asked, delete_topics.Response)).responses
        assert [(each.name, each.topic_id, each.error_code) for each in told] == [
            ("orders", topic.id, 0),
            (None, b"\7" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
            (None, topic.id, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


@asynchronous
async def test_what_may_not_be_deleted_stays() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(OFFSETS_TOPIC, 1, {}, internal=True)
        (told,) = await ask(visitor, 6, OFFSETS_TOPIC)
        assert told.error_code == ErrorCode.INVALID_REQUEST
    async with visiting(settings={"delete.topic.enable": "false"}) as visitor:
        await visitor.broker.create_topic("orders", 1, {})
        (told,) = await ask(visitor, 6, "orders")
        assert told.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert "orders" in visitor.broker.topics
