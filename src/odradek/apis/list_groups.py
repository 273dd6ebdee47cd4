"""ListGroups (key 16): all groups of either protocol, filtered by state (KIP-518) and by type (KIP-848)."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import list_groups

VERSIONS = Versions(0, 5)


def handle(context: Context, request: list_groups.Request) -> list_groups.Response:
    """List what passes the filters; an empty filter passes all, and letter case does not matter.

    While some groups are loading there is no list, as in Kafka: clients ask again.
    """
    try:
        context.groups.check_all_loaded()
    except PeerError as refused:
        return list_groups.Response(error_code=refused.code)
    states = {state.casefold() for state in request.states_filter}
    types = {kind.casefold() for kind in request.types_filter}
    return list_groups.Response(
        groups=[
            list_groups.ResponseGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state,
                group_type=group.kind,
            )
            for group in context.groups.groups.each()
            if (not states or group.state.casefold() in states) and (not types or group.kind in types)
        ]
    )


API = Api(ApiKey.LIST_GROUPS, VERSIONS, list_groups.Request, handle)
