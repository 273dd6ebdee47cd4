"""JoinGroup (key 11): enter a classic consumer group, or re-enter it for a rebalance.

The metadata of a protocol stays undecoded here. A member id is given out first since version 4 (KIP-394); static
members since 5 (KIP-345), the protocol type in the answer since 7 (KIP-559), a reason since 8 (KIP-800).
"""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, Struct, array, boolean, data, int16, int32, string


class RequestProtocol(Struct):
    """One assignor the member knows, with its subscription."""

    name: str = string()
    metadata: ReadBuffer = data()


class Request(Message, key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6):
    """Let this member in."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    protocol_type: str = string()
    protocols: list[RequestProtocol] = array(RequestProtocol)
    reason: str | None = string(since=8, nullable=8, default=None)


class ResponseMember(Struct):
    """A member with its subscription; only the leader is told of them."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    metadata: ReadBuffer = data()


class Response(Message, key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6):
    """The generation, its leader and the protocol that was chosen."""

    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=7, default=None)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[ResponseMember] = array(ResponseMember)
