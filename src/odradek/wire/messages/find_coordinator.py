"""FindCoordinator (key 10): which broker looks after a group or a transactional id.

One key up to version 3, several from 4 on (KIP-699).
Key types: 0 group, 1 transaction (KIP-98), 2 share group (KIP-932).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string


class Request(Message, key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3):
    """Find the coordinators of these keys."""

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)


class ResponseCoordinator(Struct):
    """The coordinator of one key."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class Response(Message, key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3):
    """The broker (up to version 3), or one for each key."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1, default=None)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[ResponseCoordinator] = array(ResponseCoordinator, since=4)
