"""SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152).

How long the session may last since version 1 (KIP-368).
"""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, data, int16, int64, string


class Request(Message, key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2):
    """The client's token."""

    auth_bytes: ReadBuffer = data()


class Response(Message, key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2):
    """The server's token, or why it refuses."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    auth_bytes: ReadBuffer = data()
    session_lifetime_ms: int = int64(since=1)
