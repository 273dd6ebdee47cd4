"""ElectLeaders (key 43): a broker that stands alone leads what it has, so there is never anything to elect."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import elect_leaders as messages

VERSIONS = Versions(0, 2)


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Say of each partition why no election is held; of all partitions if none are named."""
    wanted = (
        [(topic.name, list(topic.partitions)) for topic in context.broker.topics.values()]
        if request.topic_partitions is None
        else [(topic.topic, list(topic.partitions)) for topic in request.topic_partitions]
    )
    return messages.Response(
        replica_election_results=[
            messages.ResponseTopic(topic=name, partition_result=[_result(context, name, index) for index in indexes])
            for name, indexes in wanted
        ]
    )


def _result(context: Context, name: str, index: int) -> messages.ResponsePartition:
    try:
        context.broker.partition(name, index)
    except PeerError as error:
        return messages.ResponsePartition(partition_id=index, error_code=error.code, error_message=error.message)
    return messages.ResponsePartition(partition_id=index, error_code=ErrorCode.ELECTION_NOT_NEEDED)


API = Api(ApiKey.ELECT_LEADERS, VERSIONS, messages.Request, handle)
