"""DescribeQuorum (key 55): the quorum of the metadata log, which is this broker alone (KIP-836)."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_quorum as messages

VERSIONS = Versions(0, 2)
_METADATA_TOPIC = "__cluster_metadata"


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Describe the one partition that has a quorum."""
    topics = [
        messages.ResponseTopic(
            topic_name=topic.topic_name,
            partitions=[_describe(context, topic.topic_name, wanted.partition_index) for wanted in topic.partitions],
        )
        for topic in request.topics
    ]
    listener = messages.ResponseListener(name="PLAINTEXT", host=context.host, port=context.port)
    node = messages.ResponseNode(node_id=context.broker.node_id, listeners=[listener])
    return messages.Response(topics=topics, nodes=[node])


def _describe(context: Context, topic: str, index: int) -> messages.ResponsePartition:
    answer = messages.ResponsePartition(partition_index=index)
    if topic != _METADATA_TOPIC or index != 0:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    broker, now_ms = context.broker, context.broker.clock.now_ms()
    answer.leader_id = broker.node_id
    answer.leader_epoch = broker.metadata_epoch
    answer.high_watermark = broker.metadata_end
    answer.current_voters = [
        messages.ResponseReplica(
            replica_id=broker.node_id,
            log_end_offset=broker.metadata_end,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
    ]
    return answer


API = Api(ApiKey.DESCRIBE_QUORUM, VERSIONS, messages.Request, handle)
