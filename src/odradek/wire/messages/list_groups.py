"""ListGroups (key 16): the groups this broker coordinates.

Filter by state since version 4 (KIP-518), by type since 5 (KIP-848).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string


class Request(Message, key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3):
    """List the groups in these states and of these types; all if empty."""

    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


class ResponseGroup(Struct):
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


class Response(Message, key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3):
    """The groups found."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ResponseGroup] = array(ResponseGroup)
