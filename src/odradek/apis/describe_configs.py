"""DescribeConfigs (key 32): every setting of a topic or of the broker, its value, its source, its documentation."""

from __future__ import annotations

import asyncio

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.configs import Entry, ResourceType, Source, describe
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import describe_configs

VERSIONS = Versions(1, 4)
_ADDRESSES = "advertised.listeners"
_STRING = 2


async def handle(context: Context, request: describe_configs.Request) -> describe_configs.Response:
    """Describe each resource."""
    results = []
    for resource in request.resources:
        result = describe_configs.ResponseResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            entries = describe(
                context.broker, resource.resource_type, resource.resource_name, resource.configuration_keys
            )
            result.configs = [_config(entry, request) for entry in entries]
            if resource.resource_type == ResourceType.BROKER:
                result.configs += _addresses(context, resource.configuration_keys)
        except PeerError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        await asyncio.sleep(0)  # many resources must not hold up the others
    return describe_configs.Response(results=results)


def _addresses(context: Context, wanted: list[str] | None) -> list[describe_configs.ResponseConfig]:
    """The door's address under the name by which Kafka's tools look for it."""
    if wanted is not None and _ADDRESSES not in wanted:
        return []
    value = f"PLAINTEXT://{context.host}:{context.port}"
    return [
        describe_configs.ResponseConfig(
            name=_ADDRESSES, value=value, read_only=True, config_source=Source.STATIC_BROKER, config_type=_STRING
        )
    ]


def _config(entry: Entry, request: describe_configs.Request) -> describe_configs.ResponseConfig:
    name = entry.setting.name
    synonyms = entry.synonyms if request.include_synonyms else []
    return describe_configs.ResponseConfig(
        name=name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[
            describe_configs.ResponseSynonym(name=name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.config_type,
        documentation=entry.setting.summary if request.include_documentation else None,
    )


API = Api(ApiKey.DESCRIBE_CONFIGS, VERSIONS, describe_configs.Request, handle)
