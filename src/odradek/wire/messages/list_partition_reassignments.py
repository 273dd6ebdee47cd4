"""ListPartitionReassignments (key 46): the moves of partitions now under way (KIP-455)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string


class RequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class Request(Message, key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0):
    """List the moves of these partitions; of all if null."""

    timeout_ms: int = int32(default=60000)
    topics: list[RequestTopic] | None = array(RequestTopic, nullable=0, default=None)


class ResponsePartition(Struct):
    """One move: the brokers that come and those that go."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class ResponseTopic(Struct):
    """The moves in one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0):
    """The moves under way."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    topics: list[ResponseTopic] = array(ResponseTopic)
