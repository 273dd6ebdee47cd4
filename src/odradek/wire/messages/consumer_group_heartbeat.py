"""ConsumerGroupHeartbeat (key 68): a member's whole life in a group of the new protocol (KIP-848).

Joins (epoch 0), lives on and leaves (epoch -1, static -2). What is null has not changed since the last heartbeat.
Regular expressions since version 1, where the client makes its member id itself (KIP-1082).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string, struct, uuid


class RequestTopic(Struct):
    """Partitions of one topic that the member owns."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class Request(Message, key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0):
    """The member, its epoch and what it has to say."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable=1, default=None)
    server_assignor: str | None = string(nullable=0, default=None)
    topic_partitions: list[RequestTopic] | None = array(RequestTopic, nullable=0, default=None)


class ResponseTopic(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ResponseAssignment(Struct):
    """The partitions the member shall own."""

    topic_partitions: list[ResponseTopic] = array(ResponseTopic)


class Response(Message, key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0):
    """The member's epoch, and its assignment if that changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    member_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ResponseAssignment | None = struct(ResponseAssignment, nullable=0, default=None)
