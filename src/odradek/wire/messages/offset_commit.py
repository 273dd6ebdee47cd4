"""OffsetCommit (key 8): how far a group has come.

Member epochs of KIP-848 since version 9, topic ids since 10. Versions 0 and 1, from the days of ZooKeeper, are gone.
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class RequestPartition(Struct):
    """The position in one partition, with a free text of the client's."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string(nullable=0)


class RequestTopic(Struct):
    """A topic's positions: by name up to version 9, then by id."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8):
    """Store these positions for the group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=7, nullable=7, default=None)
    retention_time_ms: int = int64(until=4, default=-1)
    topics: list[RequestTopic] = array(RequestTopic)


class ResponsePartition(Struct):
    """Whether one position was stored."""

    partition_index: int = int32()
    error_code: int = int16()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8):
    """The outcome, partition by partition."""

    throttle_time_ms: int = int32(since=3)
    topics: list[ResponseTopic] = array(ResponseTopic)
