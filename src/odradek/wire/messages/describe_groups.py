"""DescribeGroups (key 15): classic groups with their members.

Metadata and assignments stay undecoded here. Authorised operations since version 3 (KIP-430), static members since 4
(KIP-345), an error message since 6 (KIP-1043).
"""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, Struct, array, boolean, data, int16, int32, string


class Request(Message, key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5):
    """Describe these groups."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


class ResponseMember(Struct):
    """A member of the group, with its subscription and assignment."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: ReadBuffer = data()
    member_assignment: ReadBuffer = data()


class ResponseGroup(Struct):
    """One group, its state and its protocol."""

    error_code: int = int16()
    error_message: str | None = string(since=6, nullable=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[ResponseMember] = array(ResponseMember)
    authorized_operations: int = int32(since=3, default=-(2**31))


class Response(Message, key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5):
    """The groups asked for."""

    throttle_time_ms: int = int32(since=1)
    groups: list[ResponseGroup] = array(ResponseGroup)
