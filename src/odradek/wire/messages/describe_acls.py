"""DescribeAcls (key 29): the access rules that match a filter (KIP-140). Pattern types since version 1 (KIP-290)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string


class Request(Message, key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2):
    """A filter; null matches anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0, default=None)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=0, default=None)
    host_filter: str | None = string(nullable=0, default=None)
    operation: int = int8()
    permission_type: int = int8()


class ResponseAcl(Struct):
    """One rule."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class ResponseResource(Struct):
    """A resource pattern and its rules."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[ResponseAcl] = array(ResponseAcl)


class Response(Message, key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2):
    """The rules found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resources: list[ResponseResource] = array(ResponseResource)
