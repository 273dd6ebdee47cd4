"""FindCoordinator (key 10): on a single node, this broker coordinates every group.

Transactions are not served; a client that asks for their coordinator is told so, instead of being left to try for ever.
"""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import find_coordinator

VERSIONS = Versions(0, 6)

_BATCHED_SINCE = 4
_GROUP, _TRANSACTION = 0, 1
# Clients try again after most errors; after this one they give up and show the message.
_ERRORS = {_TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_REFUSALS = {_TRANSACTION: "Transactions are not served here."}
_NOBODY = -1


def handle(context: Context, request: find_coordinator.Request) -> find_coordinator.Response:
    """Name this broker; transactions and share groups (key type 2) have no coordinator here."""
    is_known = request.key_type == _GROUP
    error = ErrorCode.NONE if is_known else _ERRORS.get(request.key_type, ErrorCode.INVALID_REQUEST)
    refusal = _REFUSALS.get(request.key_type, f"There is no coordinator for keys of type {request.key_type}.")
    message = None if is_known else refusal
    node_id = context.broker.node_id if is_known else _NOBODY
    host = context.host if is_known else ""
    port = context.port if is_known else _NOBODY
    if context.version < _BATCHED_SINCE:
        return find_coordinator.Response(error_code=error, error_message=message, node_id=node_id, host=host, port=port)
    coordinators = [
        find_coordinator.ResponseCoordinator(
            key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message
        )
        for key in request.coordinator_keys
    ]
    return find_coordinator.Response(coordinators=coordinators)


API = Api(ApiKey.FIND_COORDINATOR, VERSIONS, find_coordinator.Request, handle)
