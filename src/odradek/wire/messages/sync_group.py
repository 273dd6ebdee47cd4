"""SyncGroup (key 14): the leader hands in the assignments, each member takes its own.

Assignments stay undecoded here. Static members since version 3 (KIP-345), the protocol's name since 5 (KIP-559).
"""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, Struct, array, data, int16, int32, string


class RequestAssignment(Struct):
    """What the leader assigned to one member."""

    member_id: str = string()
    assignment: ReadBuffer = data()


class Request(Message, key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4):
    """Hand in assignments (as the leader) and ask for one's own."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None)
    protocol_name: str | None = string(since=5, nullable=5, default=None)
    assignments: list[RequestAssignment] = array(RequestAssignment)


class Response(Message, key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4):
    """The member's own assignment."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None)
    protocol_name: str | None = string(since=5, nullable=5, default=None)
    assignment: ReadBuffer = data()
