"""DescribeQuorum (key 55): the quorum of the metadata log (KIP-836), as the broker that was asked sees it.

Only its leader knows how far the others have come; to the rest their ends are -1. The voters' addresses (KIP-853) are
those of their HTTP doors, over which the quorum speaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_quorum as messages

VERSIONS = Versions(0, 2)
METADATA_TOPIC = "__cluster_metadata"
_UNKNOWN = -1


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Describe the one partition that has a quorum."""
    quorum = context.broker.metadata.quorum.describe()
    topics = [
        messages.ResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                _describe(context, quorum, topic.topic_name, wanted.partition_index) for wanted in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    nodes = [_node(context, int(voter), address) for voter, address in quorum["voters"].items()]
    return messages.Response(topics=topics, nodes=nodes)


def _describe(context: Context, quorum: Mapping[str, Any], topic: str, index: int) -> messages.ResponsePartition:
    if topic != METADATA_TOPIC or index != 0:
        return messages.ResponsePartition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    own = _own(context, quorum)
    known = {each["id"]: _replica(each) for each in quorum["replicas"]} | {own.replica_id: own}
    voters = [int(voter) for voter in quorum["voters"]]
    return messages.ResponsePartition(
        partition_index=index,
        leader_id=quorum["leader_id"],
        leader_epoch=quorum["epoch"],
        high_watermark=quorum["high_watermark"],
        current_voters=[known.get(voter) or _stranger(voter) for voter in voters],
        observers=[replica for node_id, replica in known.items() if node_id not in voters],
    )


def _own(context: Context, quorum: Mapping[str, Any]) -> messages.ResponseReplica:
    """The broker that was asked: a leader has what it wrote, so it is caught up now."""
    node_id = context.broker.node_id
    now_ms = context.broker.clock.now_ms() if quorum["leader_id"] == node_id else _UNKNOWN
    return messages.ResponseReplica(
        replica_id=node_id,
        log_end_offset=quorum["end_offset"],
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )


def _replica(found: Mapping[str, Any]) -> messages.ResponseReplica:
    return messages.ResponseReplica(
        replica_id=found["id"],
        log_end_offset=found["end_offset"],
        last_fetch_timestamp=found["last_fetch_ms"],
        last_caught_up_timestamp=found["last_caught_up_ms"],
    )


def _stranger(node_id: int) -> messages.ResponseReplica:
    return messages.ResponseReplica(replica_id=node_id, log_end_offset=_UNKNOWN)


def _node(context: Context, node_id: int, address: tuple[str, int] | None) -> messages.ResponseNode:
    """A voter; one without an HTTP door is this broker alone, which is where the client found it."""
    name, host, port = ("HTTP", *address) if address and address[1] else ("PLAINTEXT", context.host, context.port)
    listener = messages.ResponseListener(name=name, host=host, port=port)
    return messages.ResponseNode(node_id=node_id, listeners=[listener])


API = Api(ApiKey.DESCRIBE_QUORUM, VERSIONS, messages.Request, handle)
