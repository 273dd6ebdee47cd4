"""LeaveGroup (key 13): members of a classic group go, or an administrator removes static ones (KIP-345)."""

from __future__ import annotations

import logging

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.classic_types import Leaving, Left
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import leave_group

VERSIONS = Versions(0, 5)

logger = logging.getLogger(__name__)

_BATCHED_SINCE = 3


async def handle(context: Context, request: leave_group.Request) -> leave_group.Response:
    """Let them go; before version 3 the one member's error is that of the answer. Reasons go into the log."""
    is_batched = context.version >= _BATCHED_SINCE
    if is_batched:
        leaving = [Leaving(member.member_id, member.group_instance_id) for member in request.members]
        reasons = {member.reason for member in request.members if member.reason}
        if reasons:
            logger.info("client %r leaves group %r: %.255r", context.client_id, request.group_id, sorted(reasons))
    else:
        leaving = [Leaving(request.member_id, None)]
    try:
        results = await context.groups.leave(request.group_id, leaving)
    except PeerError as refused:
        if refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            return leave_group.Response(error_code=refused.code)
        results = [Left(*one, refused.code) for one in leaving]  # there is no such group
    if not is_batched:
        return leave_group.Response(error_code=results[0].error)
    return leave_group.Response(
        members=[
            leave_group.ResponseMember(
                member_id=left.member_id, group_instance_id=left.instance_id, error_code=left.error
            )
            for left in results
        ]
    )


API = Api(ApiKey.LEAVE_GROUP, VERSIONS, leave_group.Request, handle)
