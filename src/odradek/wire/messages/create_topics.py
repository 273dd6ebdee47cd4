"""CreateTopics (key 19): new topics, with partitions, replicas and settings (KIP-4).

The answer describes the topic since version 5 (KIP-525) and has its id since 7 (KIP-516).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string, uuid


class RequestAssignment(Struct):
    """The brokers of one partition, when the caller chooses them."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class RequestConfig(Struct):
    """One setting of the new topic."""

    name: str = string()
    value: str | None = string(nullable=0)


class RequestTopic(Struct):
    """A topic to create."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[RequestAssignment] = array(RequestAssignment)
    configs: list[RequestConfig] = array(RequestConfig)


class Request(Message, key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5):
    """Create these topics, or only check whether it would work."""

    topics: list[RequestTopic] = array(RequestTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class ResponseConfig(Struct):
    """One setting as the new topic has it."""

    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    topic_id: bytes = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: list[ResponseConfig] | None = array(ResponseConfig, since=5, nullable=5)


class Response(Message, key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5):
    """The outcome, topic by topic."""

    throttle_time_ms: int = int32()
    topics: list[ResponseTopic] = array(ResponseTopic)
