"""GetTelemetrySubscriptions (key 71): which metrics a client shall push, and how often (KIP-714)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, array, boolean, int8, int16, int32, string, uuid


class Request(Message, key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0):
    """The client; an id of zeros asks for a new one."""

    client_instance_id: bytes = uuid()


class Response(Message, key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0):
    """What to push."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
