"""OffsetFetch (key 9): the positions a group has committed.

One group up to version 7, several from 8 on (KIP-709): two layouts that share no struct. A null list of topics asks for
all. Stable offsets since version 7 (KIP-447), member epochs since 9 (KIP-848), topic ids since 10.
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class RequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class RequestGroupTopic(Struct):
    """Partitions of one topic, from version 8 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partition_indexes: list[int] = array(int32)


class RequestGroup(Struct):
    """One group and what is asked of it."""

    group_id: str = string()
    member_id: str | None = string(since=9, nullable=9, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[RequestGroupTopic] | None = array(RequestGroupTopic, nullable=0)


class Request(Message, key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6):
    """Give the committed positions of these groups."""

    group_id: str = string(until=7)
    topics: list[RequestTopic] | None = array(RequestTopic, until=7, nullable=2)
    groups: list[RequestGroup] = array(RequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class ResponsePartition(Struct):
    """One position, up to version 7; -1 if there is none."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


class ResponseTopic(Struct):
    """The positions in one topic, up to version 7."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class ResponseGroupPartition(Struct):
    """One position, from version 8 on; -1 if there is none."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


class ResponseGroupTopic(Struct):
    """The positions in one topic, from version 8 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[ResponseGroupPartition] = array(ResponseGroupPartition)


class ResponseGroup(Struct):
    """The positions of one group."""

    group_id: str = string()
    topics: list[ResponseGroupTopic] = array(ResponseGroupTopic)
    error_code: int = int16()


class Response(Message, key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6):
    """The positions found."""

    throttle_time_ms: int = int32(since=3)
    topics: list[ResponseTopic] = array(ResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[ResponseGroup] = array(ResponseGroup, since=8)
