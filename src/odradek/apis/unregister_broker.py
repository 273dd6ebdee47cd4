"""UnregisterBroker (key 64): the cluster forgets a broker that is gone for good (KIP-631)."""

from __future__ import annotations

from odradek.apis.clustered import CALL_TIMEOUT_MS_MAX, call_one
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.messages import unregister_broker as messages

VERSIONS = Versions(0, 0)


async def handle(context: Context, request: messages.Request) -> messages.Response:
    """Have the controller forget it."""
    args = {"broker_id": request.broker_id}
    code, message = await call_one(context.broker.metadata, "unregister-broker", args, CALL_TIMEOUT_MS_MAX)
    return messages.Response(error_code=code, error_message=message)


API = Api(ApiKey.UNREGISTER_BROKER, VERSIONS, messages.Request, handle)
