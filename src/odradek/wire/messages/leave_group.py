"""LeaveGroup (key 13): one member leaves a group, or several are removed from it.

Several members since version 3 (KIP-345), with a reason since 5 (KIP-800).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string


class RequestMember(Struct):
    """One who leaves, by member id or by instance id."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=0, default=None)
    reason: str | None = string(since=5, nullable=5, default=None)


class Request(Message, key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4):
    """These members leave."""

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[RequestMember] = array(RequestMember, since=3)


class ResponseMember(Struct):
    """The outcome for one of them."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=0, default=None)
    error_code: int = int16()


class Response(Message, key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4):
    """The outcome for the group and for each member."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[ResponseMember] = array(ResponseMember, since=3)
