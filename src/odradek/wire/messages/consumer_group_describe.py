"""ConsumerGroupDescribe (key 69): groups of the new protocol with their members (KIP-848).

Member types (-1 unknown, 0 classic, 1 consumer) since version 1 (KIP-1099).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string, struct, uuid


class Request(Message, key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible=0):
    """Describe these groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ResponseTopic(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class ResponseAssignment(Struct):
    """An assignment, topic by topic."""

    topic_partitions: list[ResponseTopic] = array(ResponseTopic)


class ResponseMember(Struct):
    """A member, what it owns and what it shall own."""

    member_id: str = string()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=0, default=None)
    assignment: ResponseAssignment = struct(ResponseAssignment)
    target_assignment: ResponseAssignment = struct(ResponseAssignment)
    member_type: int = int8(since=1, default=-1)


class ResponseGroup(Struct):
    """One group, its epochs and its members."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ResponseMember] = array(ResponseMember)
    authorized_operations: int = int32(default=-(2**31))


class Response(Message, key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible=0):
    """The groups asked for."""

    throttle_time_ms: int = int32()
    groups: list[ResponseGroup] = array(ResponseGroup)
