"""DeleteTopics (key 20): by name, and by id from version 6 on (KIP-516)."""

from __future__ import annotations

from odradek.apis.clustered import change_timeout_ms
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import delete_topics

VERSIONS = Versions(1, 6)


async def handle(context: Context, request: delete_topics.Request) -> delete_topics.Response:
    """Delete each topic."""
    wanted = request.topics or [delete_topics.RequestTopic(name=name) for name in request.topic_names]
    answers = []
    for each in wanted:
        answer = delete_topics.ResponseTopic(name=each.name, topic_id=each.topic_id)
        try:
            await _delete(context, each, answer, change_timeout_ms(request.timeout_ms))
        except PeerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return delete_topics.Response(responses=answers)


async def _delete(
    context: Context, wanted: delete_topics.RequestTopic, answer: delete_topics.ResponseTopic, timeout_ms: int
) -> None:
    broker = context.broker
    if wanted.name is None:
        topic = broker.topic_by_id(wanted.topic_id)
        if topic is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    else:
        topic = broker.topic(wanted.name)
    answer.name, answer.topic_id = topic.name, topic.id
    await broker.delete_topic(topic.name, topic.id, timeout_ms=timeout_ms)


API = Api(ApiKey.DELETE_TOPICS, VERSIONS, delete_topics.Request, handle)
