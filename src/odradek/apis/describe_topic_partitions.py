"""DescribeTopicPartitions (key 75): topics in the order of their names, a page of partitions at a time (KIP-966)."""

from __future__ import annotations

from odradek.apis.authorized import TOPIC_OPERATIONS
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.apis.whereabouts import partitions as partitions_of
from odradek.model import topic_name_problem
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_topic_partitions as messages

VERSIONS = Versions(0, 0)
_PAGE_MAX = 2000


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Describe topics from the cursor on, until the page is full."""
    broker = context.broker
    names = sorted({topic.name for topic in request.topics} or broker.topics)
    begin = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            begin = max(request.cursor.partition_index, 0)
    left = min(request.response_partition_limit, _PAGE_MAX) if request.response_partition_limit > 0 else _PAGE_MAX
    topics: list[messages.ResponseTopic] = []
    for name in names:
        if left <= 0:
            cursor = messages.ResponseCursor(topic_name=name, partition_index=begin)
            return messages.Response(topics=topics, next_cursor=cursor)
        described = _describe(context, name, begin, left)
        topics.append(described)
        left -= len(described.partitions)
        end = begin + len(described.partitions)
        topic = broker.metadata.image.topics.get(name)
        if topic is not None and begin < end < topic.partition_count:
            cursor = messages.ResponseCursor(topic_name=name, partition_index=end)
            return messages.Response(topics=topics, next_cursor=cursor)
        begin = 0
    return messages.Response(topics=topics)


def _describe(context: Context, name: str, begin: int, count: int) -> messages.ResponseTopic:
    topic, image = context.broker.topics.get(name), context.broker.metadata.image.topics.get(name)
    if topic is None or image is None:
        bad_name = topic_name_problem(name) is not None
        code = ErrorCode.INVALID_TOPIC_EXCEPTION if bad_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return messages.ResponseTopic(name=name, error_code=code)
    return messages.ResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            messages.ResponsePartition(
                error_code=where.error,
                partition_index=where.partition,
                leader_id=where.leader,
                leader_epoch=where.leader_epoch,
                replica_nodes=where.replicas,
                isr_nodes=where.isr,
                eligible_leader_replicas=[],  # never null, although they may be: Java's admin client fails on that
                last_known_elr=[],
                offline_replicas=where.offline,
            )
            for where in partitions_of(context, image, begin, count)
        ],
    )


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, VERSIONS, messages.Request, handle)
