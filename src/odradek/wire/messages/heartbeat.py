"""Heartbeat (key 12): a classic member says that it is alive, and learns of rebalances.

Static members since version 3 (KIP-345).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, int16, int32, string


class Request(Message, key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    """A member says that it lives on in its generation."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)


class Response(Message, key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    """Whether the member may go on as it is."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
