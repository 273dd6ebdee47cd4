"""JoinGroup (key 11): enter a classic group; the answer waits until the group has agreed on a generation."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.classic_types import JoinAnswer, JoinRequest, Proposal
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import join_group

VERSIONS = Versions(0, 9)

logger = logging.getLogger(__name__)

_MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394
_PROTOCOL_NULLABLE_SINCE = 7  # KIP-559
_SKIP_ASSIGNMENT_SINCE = 9  # KIP-814


def handle(context: Context, request: join_group.Request) -> Awaitable[join_group.Response]:
    """Join, and wait for the others; the reason that a client gives (version 8) goes into the log."""
    if request.reason:
        logger.info("client %r joins group %r: %.255r", context.client_id, request.group_id, request.reason)
    return _join(context, request, _join_request(context, request))


async def _join(context: Context, request: join_group.Request, join: JoinRequest) -> join_group.Response:
    try:
        answer = await context.groups.join(request.group_id, join)
    except PeerError as error:
        answer = JoinAnswer(error=error.code, member_id=request.member_id)
    protocol_name = answer.protocol_name
    if protocol_name is None and context.version < _PROTOCOL_NULLABLE_SINCE:
        protocol_name = ""
    return join_group.Response(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            join_group.ResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in answer.members
        ],
    )


def _join_request(context: Context, request: join_group.Request) -> JoinRequest:
    instance_id = request.group_instance_id
    has_rebalance_timeout = request.rebalance_timeout_ms >= 0  # version 0 has one timeout for both
    return JoinRequest(
        member_id=request.member_id,
        instance_id=instance_id,
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # as Kafka writes an address
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        # Copied at once: the buffer that the request lies in is not ours for longer than the call of `handle`.
        proposals=tuple(Proposal(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        fresh_member_id="" if request.member_id else context.groups.fresh_member_id(context.client_id, instance_id),
        must_know_its_id=context.version >= _MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=context.version >= _SKIP_ASSIGNMENT_SINCE,
    )


API = Api(ApiKey.JOIN_GROUP, VERSIONS, join_group.Request, handle)
