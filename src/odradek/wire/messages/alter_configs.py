"""AlterConfigs (key 33): replace all the settings of a resource (KIP-133).

IncrementalAlterConfigs changes single ones.
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class RequestConfig(Struct):
    """One setting."""

    name: str = string()
    value: str | None = string(nullable=0)


class RequestResource(Struct):
    """A resource and all that shall be set on it."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[RequestConfig] = array(RequestConfig)


class Request(Message, key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2):
    """Replace the settings of these resources, or only check them."""

    resources: list[RequestResource] = array(RequestResource)
    validate_only: bool = boolean()


class ResponseResource(Struct):
    """The outcome for one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()


class Response(Message, key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2):
    """The outcome, resource by resource."""

    throttle_time_ms: int = int32()
    responses: list[ResponseResource] = array(ResponseResource)
