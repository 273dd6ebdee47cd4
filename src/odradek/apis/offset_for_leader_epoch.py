"""OffsetForLeaderEpoch (key 23): where an epoch ended, so that a client can tell whether a log was cut (KIP-320)."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.leader_epoch import check_leader_epoch
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import offset_for_leader_epoch as messages

VERSIONS = Versions(2, 4)


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Look each epoch up."""
    topics = [
        messages.ResponseTopic(
            topic=topic.topic, partitions=[_look_up(context, topic.topic, wanted) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    return messages.Response(topics=topics)


def _look_up(context: Context, name: str, wanted: messages.RequestPartition) -> messages.ResponsePartition:
    answer = messages.ResponsePartition(partition=wanted.partition)
    try:
        partition = context.broker.partition(name, wanted.partition)
        check_leader_epoch(wanted.current_leader_epoch, partition.leader_epoch)
    except PeerError as error:
        answer.error_code = error.code
        return answer
    end = partition.log.epochs.end_of(wanted.leader_epoch, partition.log.next_offset)
    answer.leader_epoch, answer.end_offset = end
    return answer


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, VERSIONS, messages.Request, handle)
