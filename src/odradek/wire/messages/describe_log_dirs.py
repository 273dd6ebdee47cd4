"""DescribeLogDirs (key 35): what lies in each directory of logs, and how big it is (KIP-113).

The space of the volume since version 4 (KIP-827), cordoned directories since 5 (KIP-1066).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class RequestTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class Request(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible=2):
    """Describe these partitions; all if null."""

    topics: list[RequestTopic] | None = array(RequestTopic, nullable=0)


class ResponsePartition(Struct):
    """The size of one partition's log."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class ResponseTopic(Struct):
    """The logs of one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class ResponseResult(Struct):
    """One directory."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[ResponseTopic] = array(ResponseTopic)
    total_bytes: int = int64(since=4, default=-1)
    usable_bytes: int = int64(since=4, default=-1)
    is_cordoned: bool = boolean(since=5)


class Response(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible=2):
    """The directories."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[ResponseResult] = array(ResponseResult)
