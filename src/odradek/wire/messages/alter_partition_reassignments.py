"""AlterPartitionReassignments (key 45): move partitions to other brokers, or stop moving them (KIP-455).

Whether the number of replicas may change can be said since version 1 (KIP-860).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, string


class RequestPartition(Struct):
    """The brokers that shall have one partition; null stops the move."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable=0, default=None)


class RequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0):
    """Start or stop these moves."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[RequestTopic] = array(RequestTopic)


class ResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0):
    """The outcome, partition by partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    responses: list[ResponseTopic] = array(ResponseTopic)
