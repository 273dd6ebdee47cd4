"""PushTelemetry (key 72): a client's metrics in OpenTelemetry's format (KIP-714). They stay undecoded here."""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, boolean, data, int8, int16, int32, uuid


class Request(Message, key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0):
    """The metrics of one client."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: ReadBuffer = data()


class Response(Message, key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0):
    """Whether they were taken."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
