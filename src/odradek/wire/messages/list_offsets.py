"""ListOffsets (key 2): offsets by timestamp, or by a special negative one.

Special: -1 latest, -2 earliest, -3 greatest timestamp (KIP-734, version 7), -4 local log start (KIP-405, 8),
-5 last tiered offset (KIP-1005, 9), -6 first not yet tiered (KIP-1023, 11). Version 0, of many offsets, is gone.
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, int64, string


class RequestPartition(Struct):
    """The timestamp to look for in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1)
    timestamp: int = int64()


class RequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6):
    """Look up offsets, as seen under an isolation level."""

    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[RequestTopic] = array(RequestTopic)
    timeout_ms: int = int32(since=10)


class ResponsePartition(Struct):
    """The offset found, with its timestamp and epoch; -1 if none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


class ResponseTopic(Struct):
    """The offsets of one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6):
    """The offsets found."""

    throttle_time_ms: int = int32(since=2)
    topics: list[ResponseTopic] = array(ResponseTopic)
