"""OffsetDelete (key 47): forget a group's offsets of topics that none of its members reads (KIP-496)."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.model import TopicPartition
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import offset_delete

VERSIONS = Versions(0, 0)


async def handle(context: Context, request: offset_delete.Request) -> offset_delete.Response:
    """Forget what may be forgotten; an error of the group leaves all as it was."""
    known, unknown = _sort_out(context, request)
    try:
        outcomes = await _delete(context, request.group_id, known) if known else {}
    except PeerError as refused:
        return offset_delete.Response(error_code=refused.code)
    outcomes |= dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    topics = [
        offset_delete.ResponseTopic(
            name=topic.name,
            partitions=[
                offset_delete.ResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=outcomes[TopicPartition(topic.name, partition.partition_index)],
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return offset_delete.Response(topics=topics)


def _sort_out(context: Context, request: offset_delete.Request) -> tuple[list[TopicPartition], list[TopicPartition]]:
    known: list[TopicPartition] = []
    unknown: list[TopicPartition] = []
    for requested in request.topics:
        topic = context.broker.metadata.image.topics.get(requested.name)
        for partition in requested.partitions:
            where = TopicPartition(requested.name, partition.partition_index)
            exists = topic is not None and where.partition in topic.partitions
            (known if exists else unknown).append(where)
    return known, unknown


async def _delete(context: Context, group_id: str, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    context.groups.check_served(group_id, may_be_nameless=True)
    outcomes, written = context.groups.offsets.delete(group_id, partitions)
    error = ErrorCode.NONE if written is None else await written
    if error is not ErrorCode.NONE:
        raise PeerError(error)
    return outcomes


API = Api(ApiKey.OFFSET_DELETE, VERSIONS, offset_delete.Request, handle)
