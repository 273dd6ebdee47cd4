"""CreateTopics (key 19): by numbers, or by naming the brokers of each partition."""

from __future__ import annotations

import asyncio
from collections import Counter

from odradek.apis.clustered import change_timeout_ms
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.configs import ResourceType, describe
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import create_topics

VERSIONS = Versions(2, 7)
_DEFAULT = -1


async def handle(context: Context, request: create_topics.Request) -> create_topics.Response:
    """Make each topic, or only check it."""
    names = Counter(topic.name for topic in request.topics)
    answers = []
    for wanted in request.topics:
        answer = create_topics.ResponseTopic(name=wanted.name)
        try:
            if names[wanted.name] > 1:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is named twice in one request")
            await _create(context, wanted, answer, request)
        except PeerError as error:
            answer.error_code, answer.error_message = error.code, error.message
            answer.configs = None
        answers.append(answer)
        await asyncio.sleep(0)  # many topics must not hold up the others
    return create_topics.Response(topics=answers)


async def _create(
    context: Context,
    wanted: create_topics.RequestTopic,
    answer: create_topics.ResponseTopic,
    request: create_topics.Request,
) -> None:
    broker = context.broker
    count, assignments = _partition_count(wanted), _assignments(wanted)
    overrides = {config.name: config.value for config in wanted.configs if config.value is not None}
    factor = wanted.replication_factor
    answer.num_partitions = broker.check_new_topic(wanted.name, count, overrides)
    result = await broker.change_topic(
        wanted.name,
        answer.num_partitions,
        overrides,
        factor,
        assignments,
        validate_only=request.validate_only,
        timeout_ms=change_timeout_ms(request.timeout_ms),
    )
    answer.replication_factor = int(result["replication_factor"])
    if request.validate_only:
        return
    topic = broker.topic(wanted.name)
    answer.topic_id = topic.id
    answer.configs = [
        create_topics.ResponseConfig(
            name=entry.setting.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
        )
        for entry in describe(broker, ResourceType.TOPIC, topic.name, None)
    ]


def _partition_count(wanted: create_topics.RequestTopic) -> int:
    """How many partitions are asked for, by number or by naming their brokers."""
    if not wanted.assignments:
        return wanted.num_partitions if wanted.num_partitions >= _DEFAULT else 0
    if wanted.num_partitions != _DEFAULT or wanted.replication_factor != _DEFAULT:
        raise PeerError(ErrorCode.INVALID_REQUEST, "give either numbers or an assignment of partitions to brokers")
    indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
    if indexes != list(range(len(indexes))):
        raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0 without a gap")
    return len(indexes)


def _assignments(wanted: create_topics.RequestTopic) -> dict[str, list[int]] | None:
    if not wanted.assignments:
        return None
    return {str(each.partition_index): list(each.broker_ids) for each in wanted.assignments}


API = Api(ApiKey.CREATE_TOPICS, VERSIONS, create_topics.Request, handle)
