"""AlterPartitionReassignments (key 45): there is one broker, so a partition can only stay with the one that has it."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import alter_partition_reassignments as messages

VERSIONS = Versions(0, 1)


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Agree to what is so already; refuse other brokers, and the end of moves that there are not."""
    topics = [
        messages.ResponseTopic(
            name=topic.name, partitions=[_outcome(context, topic.name, wanted) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    return messages.Response(allow_replication_factor_change=request.allow_replication_factor_change, responses=topics)


def _outcome(context: Context, name: str, wanted: messages.RequestPartition) -> messages.ResponsePartition:
    answer = messages.ResponsePartition(partition_index=wanted.partition_index)
    node = context.broker.node_id
    try:
        context.broker.partition(name, wanted.partition_index)
        if wanted.replicas is None:
            raise PeerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        if wanted.replicas != [node]:
            raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {node} is the only one")
    except PeerError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, VERSIONS, messages.Request, handle)
