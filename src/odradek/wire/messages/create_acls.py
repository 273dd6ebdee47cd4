"""CreateAcls (key 30): new access rules (KIP-140). Pattern types since version 1 (KIP-290)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string


class RequestCreation(Struct):
    """One rule to create."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class Request(Message, key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    """Create these rules."""

    creations: list[RequestCreation] = array(RequestCreation)


class ResponseResult(Struct):
    """The outcome for one rule, in the order of the request."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class Response(Message, key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    """The outcome, rule by rule."""

    throttle_time_ms: int = int32()
    results: list[ResponseResult] = array(ResponseResult)
