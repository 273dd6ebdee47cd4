"""OffsetDelete (key 47): forget a group's positions in some partitions (KIP-496)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string


class RequestPartition(Struct):
    """One partition."""

    partition_index: int = int32()


class RequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible=None):
    """Forget these positions of the group."""

    group_id: str = string()
    topics: list[RequestTopic] = array(RequestTopic)


class ResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible=None):
    """The outcome for the group and each partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[ResponseTopic] = array(ResponseTopic)
