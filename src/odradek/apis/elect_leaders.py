"""ElectLeaders (key 43): the preferred replica leads again, or any that is alive (KIP-460). Partition by partition."""

from __future__ import annotations

from odradek.apis.clustered import Outcome, call_each
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.controller.image import ClusterImage
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import elect_leaders as messages

VERSIONS = Versions(0, 2)
_PREFERRED, _UNCLEAN = 0, 1


async def handle(context: Context, request: messages.Request) -> messages.Response:
    """Hold an election for each partition; for all that there are if none are named."""
    metadata = context.broker.metadata
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return messages.Response(error_code=ErrorCode.INVALID_REQUEST)
    unclean = request.election_type == _UNCLEAN
    asked = request.topic_partitions
    wanted = (
        [(name, index) for name, topic in metadata.image.topics.items() for index in topic.partitions]
        if asked is None
        else [(topic.topic, index) for topic in asked for index in topic.partitions]
    )
    # Most of all partitions have the leader that they should have: the controller need not be asked about those.
    settled = {key for key in wanted if asked is None and _is_settled(metadata.image, *key, unclean=unclean)}
    asking = [key for key in wanted if key not in settled]
    outcomes = await call_each(
        metadata,
        "elect",
        [{"topic": name, "partition": index, "unclean": unclean} for name, index in asking],
        request.timeout_ms,
    )
    found = dict(zip(asking, outcomes, strict=True))
    needless = Outcome(ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message)
    topics: dict[str, messages.ResponseTopic] = {}
    for name, index in wanted:
        code, message = found.get((name, index), needless)
        topic = topics.setdefault(name, messages.ResponseTopic(topic=name, partition_result=[]))
        topic.partition_result.append(
            messages.ResponsePartition(partition_id=index, error_code=code, error_message=message)
        )
    return messages.Response(replica_election_results=list(topics.values()))


def _is_settled(image: ClusterImage, name: str, index: int, *, unclean: bool) -> bool:
    partition = image.topics[name].partitions[index]
    return partition.leader >= 0 and (unclean or partition.leader == partition.replicas[0])


API = Api(ApiKey.ELECT_LEADERS, VERSIONS, messages.Request, handle)
