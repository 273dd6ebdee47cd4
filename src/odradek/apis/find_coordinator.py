"""FindCoordinator (key 10): a group is looked after by the leader of its partition of `__consumer_offsets`.

Transactions are not served; a client that asks for their coordinator is told so, instead of being left to try for ever.
"""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.apis.whereabouts import endpoints
from odradek.broker.offsets_topic import coordinator_of
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import find_coordinator

VERSIONS = Versions(0, 6)

_BATCHED_SINCE = 4
_GROUP, _TRANSACTION = 0, 1
# Clients try again after most errors; after this one they give up and show the message.
_ERRORS = {_TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_REFUSALS = {_TRANSACTION: "Transactions are not served here."}
_NOBODY = -1


async def handle(context: Context, request: find_coordinator.Request) -> find_coordinator.Response:
    """Name the coordinator of each key; transactions and share groups (key type 2) have none here."""
    if context.version < _BATCHED_SINCE:
        found = await _find(context, request.key_type, request.key)
        return find_coordinator.Response(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    coordinators = [await _find(context, request.key_type, key) for key in request.coordinator_keys]
    return find_coordinator.Response(coordinators=coordinators)


async def _find(context: Context, key_type: int, key: str) -> find_coordinator.ResponseCoordinator:
    answer = find_coordinator.ResponseCoordinator(key=key, node_id=_NOBODY, host="", port=_NOBODY)
    try:
        if key_type != _GROUP:
            refusal = _REFUSALS.get(key_type, f"There is no coordinator for keys of type {key_type}.")
            raise PeerError(_ERRORS.get(key_type, ErrorCode.INVALID_REQUEST), refusal)
        node_id = await coordinator_of(context.broker, key)
        for endpoint in endpoints(context):
            if endpoint.node_id == node_id:
                answer.node_id, answer.host, answer.port = node_id, endpoint.host, endpoint.port
                return answer
        raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group's partition has no leader now.")
    except PeerError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


API = Api(ApiKey.FIND_COORDINATOR, VERSIONS, find_coordinator.Request, handle)
