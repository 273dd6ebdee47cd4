"""Which topics a consumer of a classic group is subscribed to, as far as the coordinator needs to know.

The metadata that members send is theirs; only its oldest part, the list of topics, is read here. It opens every version
of the consumers' own protocol, so newer versions are no obstacle.
"""

from __future__ import annotations

from odradek.wire.errors import DecodeError
from odradek.wire.messages.consumer_protocol import Subscription

CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION_SIZE = 2


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics named in a member's metadata; None if it is not what consumers send."""
    if len(metadata) < _VERSION_SIZE:
        return None
    try:
        return frozenset(Subscription.decode(metadata, 0, _VERSION_SIZE).topics)
    except DecodeError:
        return None
