"""DescribeClientQuotas (key 48): the quotas that match a filter (KIP-546). Match types: 0 exact, 1 default, 2 any."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, float64, int8, int16, int32, string


class RequestComponent(Struct):
    """A condition on one part of the entity."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=0)


class Request(Message, key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1):
    """A filter; strict means that an entity has no further parts."""

    components: list[RequestComponent] = array(RequestComponent)
    strict: bool = boolean()


class ResponseEntity(Struct):
    """One part of an entity; a null name is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class ResponseValue(Struct):
    """One quota."""

    key: str = string()
    value: float = float64()


class ResponseEntry(Struct):
    """An entity and its quotas."""

    entity: list[ResponseEntity] = array(ResponseEntity)
    values: list[ResponseValue] = array(ResponseValue)


class Response(Message, key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1):
    """The entities found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    entries: list[ResponseEntry] | None = array(ResponseEntry, nullable=0)
