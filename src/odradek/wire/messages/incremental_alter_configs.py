"""IncrementalAlterConfigs (key 44): change single settings of a resource (KIP-339).

Operations: 0 set, 1 delete, 2 append, 3 subtract.
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class RequestConfig(Struct):
    """One change of one setting."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


class RequestResource(Struct):
    """A resource and the changes to it."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[RequestConfig] = array(RequestConfig)


class Request(Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1):
    """Apply these changes, or only check them."""

    resources: list[RequestResource] = array(RequestResource)
    validate_only: bool = boolean()


class ResponseResource(Struct):
    """The outcome for one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()


class Response(Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1):
    """The outcome, resource by resource."""

    throttle_time_ms: int = int32()
    responses: list[ResponseResource] = array(ResponseResource)
