"""OffsetForLeaderEpoch (key 23): where a leader's epoch ended (KIP-101).

Consumers find with it whether a log was cut below them (KIP-320). Versions 0 and 1, for followers only, are gone.
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string


class RequestPartition(Struct):
    """The epoch to look up in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class RequestTopic(Struct):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4):
    """Look up the ends of these epochs."""

    replica_id: int = int32(since=3, default=-2)
    topics: list[RequestTopic] = array(RequestTopic)


class ResponsePartition(Struct):
    """The greatest known epoch up to the one asked for, and its end."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class ResponseTopic(Struct):
    """The ends in one topic."""

    topic: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4):
    """The ends found."""

    throttle_time_ms: int = int32()
    topics: list[ResponseTopic] = array(ResponseTopic)
