"""AlterClientQuotas (key 49): set and remove quotas (KIP-546)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, float64, int16, int32, string


class RequestEntity(Struct):
    """One part of an entity; a null name is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class RequestOp(Struct):
    """A quota to set or to remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class RequestEntry(Struct):
    """An entity and the changes to its quotas."""

    entity: list[RequestEntity] = array(RequestEntity)
    ops: list[RequestOp] = array(RequestOp)


class Request(Message, key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1):
    """Apply these changes, or only check them."""

    entries: list[RequestEntry] = array(RequestEntry)
    validate_only: bool = boolean()


class ResponseEntity(Struct):
    """One part of an entity; a null name is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class ResponseEntry(Struct):
    """The outcome for one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    entity: list[ResponseEntity] = array(ResponseEntity)


class Response(Message, key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1):
    """The outcome, entity by entity."""

    throttle_time_ms: int = int32()
    entries: list[ResponseEntry] = array(ResponseEntry)
