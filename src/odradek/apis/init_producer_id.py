"""InitProducerId (key 22): an id for an idempotent producer, or the next epoch for one that has an id (KIP-360)."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import init_producer_id

VERSIONS = Versions(0, 5)
_NONE = -1


async def handle(context: Context, request: init_producer_id.Request) -> init_producer_id.Response:
    """Give out an id; a transactional one is refused, since transactions are not served."""
    if request.transactional_id is not None:
        return init_producer_id.Response(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=_NONE
        )
    try:
        # Whoever asks to go on with an id of its own gets a new one: nothing is lost by it, and no two share an epoch.
        producer_id = await context.broker.new_producer_id()
    except PeerError as error:
        return init_producer_id.Response(error_code=error.code, producer_epoch=_NONE)
    return init_producer_id.Response(producer_id=producer_id)


API = Api(ApiKey.INIT_PRODUCER_ID, VERSIONS, init_producer_id.Request, handle)
