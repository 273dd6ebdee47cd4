"""UnregisterBroker (key 64): let the cluster forget a broker that is gone for good (KIP-631)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, int16, int32, string


class Request(Message, key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0):
    """Forget this broker."""

    broker_id: int = int32()


class Response(Message, key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0):
    """Whether it is forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
