"""DeleteRecords (key 21): move the start of logs forward (KIP-107)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string


class RequestPartition(Struct):
    """The offset to delete up to; -1 is the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class RequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2):
    """Delete what lies before these offsets."""

    topics: list[RequestTopic] = array(RequestTopic)
    timeout_ms: int = int32()


class ResponsePartition(Struct):
    """Where one log starts now."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2):
    """The outcome, partition by partition."""

    throttle_time_ms: int = int32()
    topics: list[ResponseTopic] = array(ResponseTopic)
