"""SyncGroup (key 14): the leader brings the assignment of a generation, everybody takes theirs."""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.classic_types import SyncAnswer, SyncRequest
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import sync_group

VERSIONS = Versions(0, 5)

_PROTOCOL_SINCE = 5  # KIP-559: the member says which protocol it believes in


def handle(context: Context, request: sync_group.Request) -> Awaitable[sync_group.Response]:
    """Wait for the assignment; it is on stable storage before anybody gets theirs."""
    sync = SyncRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        # Copied at once: the buffer that the request lies in is not ours for longer than this call.
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    return _sync(context, request.group_id, sync)


async def _sync(context: Context, group_id: str, sync: SyncRequest) -> sync_group.Response:
    try:
        if context.version >= _PROTOCOL_SINCE and None in (sync.protocol_type, sync.protocol_name):
            raise PeerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        answer = await context.groups.sync(group_id, sync)
    except PeerError as error:
        answer = SyncAnswer(error=error.code)
    return sync_group.Response(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


API = Api(ApiKey.SYNC_GROUP, VERSIONS, sync_group.Request, handle)
