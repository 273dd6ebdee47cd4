"""DeleteGroups (key 42): remove empty groups and their positions (KIP-229)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string


class Request(Message, key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    """Delete these groups."""

    groups_names: list[str] = array(string)


class ResponseResult(Struct):
    """The outcome for one group."""

    group_id: str = string()
    error_code: int = int16()


class Response(Message, key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    """The outcome, group by group."""

    throttle_time_ms: int = int32()
    results: list[ResponseResult] = array(ResponseResult)
