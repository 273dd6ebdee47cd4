"""Heartbeat (key 12): a classic member is alive, and learns whether its group rebalances."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import heartbeat

VERSIONS = Versions(0, 4)


def handle(context: Context, request: heartbeat.Request) -> heartbeat.Response:
    """Answer at once."""
    try:
        error = context.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except PeerError as refused:
        error = refused.code
    return heartbeat.Response(error_code=error)


API = Api(ApiKey.HEARTBEAT, VERSIONS, heartbeat.Request, handle)
