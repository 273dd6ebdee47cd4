"""DescribeConfigs (key 32): the settings of topics, brokers and other resources (KIP-133).

Where a value comes from since version 1 (KIP-226), its type and documentation since 3 (KIP-569).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class RequestResource(Struct):
    """One resource; null keys ask for all its settings."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable=0)


class Request(Message, key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4):
    """Describe the settings of these resources."""

    resources: list[RequestResource] = array(RequestResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class ResponseSynonym(Struct):
    """Another place that sets the same thing, by precedence."""

    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


class ResponseConfig(Struct):
    """One setting with its value and source."""

    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[ResponseSynonym] = array(ResponseSynonym)
    config_type: int = int8(since=3)
    documentation: str | None = string(since=3, nullable=3, default=None)


class ResponseResult(Struct):
    """The settings of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[ResponseConfig] = array(ResponseConfig)


class Response(Message, key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4):
    """The settings, resource by resource."""

    throttle_time_ms: int = int32()
    results: list[ResponseResult] = array(ResponseResult)
