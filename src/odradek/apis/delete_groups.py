"""DeleteGroups (key 42): remove empty groups of either protocol with their offsets (KIP-229)."""

from __future__ import annotations

import asyncio

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import delete_groups

VERSIONS = Versions(0, 2)


async def handle(context: Context, request: delete_groups.Request) -> delete_groups.Response:
    """Remove them all, then wait for all: one flush serves them together."""
    begun = [(group_id, _begin(context, group_id)) for group_id in request.groups_names]
    return delete_groups.Response(
        results=[
            delete_groups.ResponseResult(
                group_id=group_id, error_code=outcome if isinstance(outcome, ErrorCode) else await outcome
            )
            for group_id, outcome in begun
        ]
    )


def _begin(context: Context, group_id: str) -> ErrorCode | asyncio.Future[ErrorCode]:
    try:
        return context.groups.delete_group(group_id)
    except PeerError as refused:
        return refused.code


API = Api(ApiKey.DELETE_GROUPS, VERSIONS, delete_groups.Request, handle)
