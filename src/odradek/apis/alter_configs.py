"""AlterConfigs (key 33): replaces all settings that a topic has for itself, or the topics' defaults."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.configs import replace
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import alter_configs

VERSIONS = Versions(0, 2)


async def handle(context: Context, request: alter_configs.Request) -> alter_configs.Response:
    """Set each resource anew."""
    answers = []
    for resource in request.resources:
        answer = alter_configs.ResponseResource(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        configs = {config.name: config.value for config in resource.configs}
        try:
            await replace(
                context.broker, resource.resource_type, resource.resource_name, configs, request.validate_only
            )
        except PeerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return alter_configs.Response(responses=answers)


API = Api(ApiKey.ALTER_CONFIGS, VERSIONS, alter_configs.Request, handle)
