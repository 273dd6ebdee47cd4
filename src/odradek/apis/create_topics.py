"""CreateTopics (key 19). This broker stands alone, so one replica is all that a partition can have."""

from __future__ import annotations

import asyncio
from collections import Counter

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.configs import ResourceType, describe
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import create_topics

VERSIONS = Versions(2, 7)
_DEFAULT = -1
_REPLICAS = 1


async def handle(context: Context, request: create_topics.Request) -> create_topics.Response:
    """Make each topic, or only check it."""
    names = Counter(topic.name for topic in request.topics)
    answers = []
    for wanted in request.topics:
        answer = create_topics.ResponseTopic(name=wanted.name)
        try:
            if names[wanted.name] > 1:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is named twice in one request")
            await _create(context, wanted, answer, request.validate_only)
        except PeerError as error:
            answer.error_code, answer.error_message = error.code, error.message
            answer.configs = None
        answers.append(answer)
        await asyncio.sleep(0)  # many topics must not hold up the others
    return create_topics.Response(topics=answers)


async def _create(
    context: Context, wanted: create_topics.RequestTopic, answer: create_topics.ResponseTopic, validate_only: bool
) -> None:
    broker = context.broker
    count = _partition_count(context, wanted)
    overrides = {config.name: config.value for config in wanted.configs if config.value is not None}
    answer.num_partitions = broker.check_new_topic(wanted.name, count, overrides)
    answer.replication_factor = _REPLICAS
    if validate_only:
        return
    topic = await broker.create_topic(wanted.name, count, overrides)
    answer.topic_id = topic.id
    answer.configs = [
        create_topics.ResponseConfig(
            name=entry.setting.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
        )
        for entry in describe(broker, ResourceType.TOPIC, topic.name, None)
    ]


def _partition_count(context: Context, wanted: create_topics.RequestTopic) -> int:
    """How many partitions are asked for, by number or by naming their brokers."""
    if wanted.assignments:
        if wanted.num_partitions != _DEFAULT or wanted.replication_factor != _DEFAULT:
            raise PeerError(ErrorCode.INVALID_REQUEST, "give either numbers or an assignment of partitions to brokers")
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0 without a gap")
        if any(assignment.broker_ids != [context.broker.node_id] for assignment in wanted.assignments):
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {context.broker.node_id} is the only one")
        return len(indexes)
    if wanted.replication_factor not in (_DEFAULT, _REPLICAS):
        raise PeerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{wanted.replication_factor} replicas are asked for, but there is 1 broker: use replication factor 1",
        )
    return wanted.num_partitions if wanted.num_partitions >= _DEFAULT else 0


API = Api(ApiKey.CREATE_TOPICS, VERSIONS, create_topics.Request, handle)
