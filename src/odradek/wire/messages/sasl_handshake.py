"""SaslHandshake (key 17): choose a SASL mechanism (KIP-43).

After version 0 the tokens follow as bare frames, after version 1 inside SaslAuthenticate (KIP-152).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, array, int16, string


class Request(Message, key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None):
    """The mechanism the client wants."""

    mechanism: str = string()


class Response(Message, key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None):
    """Whether it is offered, and all that are."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)
