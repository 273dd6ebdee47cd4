"""DescribeGroups (key 15): classic groups with their members; groups of the other protocol are unknown here."""

from __future__ import annotations

from odradek.apis.authorized import GROUP_OPERATIONS
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import State
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import describe_groups

VERSIONS = Versions(0, 6)

_NOT_FOUND_SINCE = 6  # KIP-1043; before, an unknown group is a dead one
_NOT_ASKED = -(2**31)


def handle(context: Context, request: describe_groups.Request) -> describe_groups.Response:
    """Describe each group; what it may be used for is told only to those who ask."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else _NOT_ASKED
    return describe_groups.Response(groups=[_describe(context, group_id, operations) for group_id in request.groups])


def _describe(context: Context, group_id: str, operations: int) -> describe_groups.ResponseGroup:
    try:
        context.groups.check_served(group_id, may_be_nameless=True)
    except PeerError as refused:
        return describe_groups.ResponseGroup(error_code=refused.code, error_message=refused.message, group_id=group_id)
    group = context.groups.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        is_error = context.version >= _NOT_FOUND_SINCE
        return describe_groups.ResponseGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
            error_message=f"There is no classic group {group_id}." if is_error else None,
            group_id=group_id,
            group_state=State.DEAD,
            authorized_operations=operations,
        )
    return describe_groups.ResponseGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group.state is State.STABLE else "",
        members=_members(group),
        authorized_operations=operations,
    )


def _members(group: ClassicGroup) -> list[describe_groups.ResponseMember]:
    is_stable = group.state is State.STABLE  # otherwise what they subscribe to and have may be about to change
    return [
        describe_groups.ResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.all()
    ]


API = Api(ApiKey.DESCRIBE_GROUPS, VERSIONS, describe_groups.Request, handle)
