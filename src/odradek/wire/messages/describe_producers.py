"""DescribeProducers (key 61): the producers that a partition remembers (KIP-664)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string


class RequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class Request(Message, key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0):
    """Describe the producers of these partitions."""

    topics: list[RequestTopic] = array(RequestTopic)


class ResponseProducer(Struct):
    """One producer, and where its open transaction starts."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class ResponsePartition(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    active_producers: list[ResponseProducer] = array(ResponseProducer)


class ResponseTopic(Struct):
    """The producers of one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0):
    """The producers, partition by partition."""

    throttle_time_ms: int = int32()
    topics: list[ResponseTopic] = array(ResponseTopic)
