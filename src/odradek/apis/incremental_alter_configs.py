"""IncrementalAlterConfigs (key 44): sets, deletes, appends to and subtracts from single settings (KIP-339)."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.configs import Change, change
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import incremental_alter_configs

VERSIONS = Versions(0, 1)


async def handle(context: Context, request: incremental_alter_configs.Request) -> incremental_alter_configs.Response:
    """Change each resource."""
    answers = []
    for resource in request.resources:
        answer = incremental_alter_configs.ResponseResource(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
        try:
            await change(context.broker, resource.resource_type, resource.resource_name, changes, request.validate_only)
        except PeerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return incremental_alter_configs.Response(responses=answers)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, VERSIONS, incremental_alter_configs.Request, handle)
