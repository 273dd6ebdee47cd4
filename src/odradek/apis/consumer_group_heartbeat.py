"""ConsumerGroupHeartbeat (key 68): a member of the consumer protocol joins, lives on and leaves by this (KIP-848).

In version 0 the broker makes up the member's id; since version 1 the client brings its own (KIP-1082).
"""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.assignors import Partitions, TopicIdPartition
from odradek.groups.consumer_records import partitions_by_topic
from odradek.groups.consumer_types import JOIN_EPOCH, Heartbeat
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import consumer_group_heartbeat as message

VERSIONS = Versions(0, 1)

_CLIENT_MAKES_MEMBER_ID_SINCE = 1


async def handle(context: Context, request: message.Request) -> message.Response:
    """Answer when all that the answer tells of is durable."""
    try:
        answer = await context.groups.live(request.group_id, _heartbeat(context, request))
    except PeerError as refused:
        return message.Response(error_code=refused.code, error_message=refused.message)
    if answer.error is not ErrorCode.NONE:
        return message.Response(error_code=answer.error, error_message=answer.error.message)
    return message.Response(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=context.groups.config.group_consumer_heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _heartbeat(context: Context, request: message.Request) -> Heartbeat:
    member_id = request.member_id
    is_nameless = not member_id and request.member_epoch == JOIN_EPOCH
    if is_nameless and context.version < _CLIENT_MAKES_MEMBER_ID_SINCE:
        member_id = context.groups.fresh_member_id(context.client_id, request.instance_id)
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else _owned(owned),
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # as Kafka writes an address
    )


def _owned(topics: list[message.RequestTopic]) -> Partitions:
    return frozenset(TopicIdPartition(topic.topic_id, partition) for topic in topics for partition in topic.partitions)


def _assignment(partitions: Partitions) -> message.ResponseAssignment:
    return message.ResponseAssignment(
        topic_partitions=[
            message.ResponseTopic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in partitions_by_topic(partitions).items()
        ]
    )


API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSIONS, message.Request, handle)
