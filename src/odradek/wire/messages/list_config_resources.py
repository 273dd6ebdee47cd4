"""ListConfigResources (key 74): the resources that have settings.

Only client metrics in version 0 (KIP-1000), any type from version 1 on (KIP-1142).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string


class Request(Message, key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0):
    """List the resources of these types; all if empty."""

    resource_types: list[int] = array(int8, since=1)


class ResponseConfigResource(Struct):
    """One resource."""

    resource_name: str = string()
    resource_type: int = int8(since=1, default=16)


class Response(Message, key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0):
    """The resources found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ResponseConfigResource] = array(ResponseConfigResource)
