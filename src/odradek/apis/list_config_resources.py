"""ListConfigResources (key 74): what has settings here. Version 0 asks for client metrics only, which have none."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.configs import ResourceType
from odradek.wire.api import ApiKey
from odradek.wire.messages import list_config_resources as messages

VERSIONS = Versions(0, 1)
_FIRST_WITH_TYPES = 1


def handle(context: Context, request: messages.Request) -> messages.Response:
    """List topics and the broker, or those of the types asked for."""
    if context.version < _FIRST_WITH_TYPES:
        return messages.Response()
    names = {ResourceType.TOPIC: list(context.broker.topics), ResourceType.BROKER: [str(context.broker.node_id)]}
    return messages.Response(
        config_resources=[
            messages.ResponseConfigResource(resource_name=name, resource_type=kind)
            for kind, each in names.items()
            if not request.resource_types or kind in request.resource_types
            for name in each
        ]
    )


API = Api(ApiKey.LIST_CONFIG_RESOURCES, VERSIONS, messages.Request, handle)
