"""DescribeTopicPartitions (key 75): topics page by page (KIP-966)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, string, struct, uuid


class RequestTopic(Struct):
    """One topic."""

    name: str = string()


class RequestCursor(Struct):
    """The partition the page starts at."""

    topic_name: str = string()
    partition_index: int = int32()


class Request(Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0):
    """Describe these topics from the cursor on."""

    topics: list[RequestTopic] = array(RequestTopic)
    response_partition_limit: int = int32(default=2000)
    cursor: RequestCursor | None = struct(RequestCursor, nullable=0, default=None)


class ResponsePartition(Struct):
    """Leader and replicas of one partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable=0, default=None)
    last_known_elr: list[int] | None = array(int32, nullable=0, default=None)
    offline_replicas: list[int] = array(int32)


class ResponseTopic(Struct):
    """One topic and its partitions."""

    error_code: int = int16()
    name: str | None = string(nullable=0)
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[ResponsePartition] = array(ResponsePartition)
    topic_authorized_operations: int = int32(default=-(2**31))


class ResponseCursor(Struct):
    """The partition the next page starts at."""

    topic_name: str = string()
    partition_index: int = int32()


class Response(Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0):
    """One page, and the cursor to the next if there is more."""

    throttle_time_ms: int = int32()
    topics: list[ResponseTopic] = array(ResponseTopic)
    next_cursor: ResponseCursor | None = struct(ResponseCursor, nullable=0, default=None)
