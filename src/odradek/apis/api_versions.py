"""ApiVersions (key 18): what is served, taken from what is registered. An unknown version is answered as version 0."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_versions

VERSIONS = Versions(0, 4)
# Clients look for this to know whether the consumer protocol (KIP-848) is on.
_GROUP_FEATURE = "group.version"


def handle(context: Context, _: api_versions.Request) -> api_versions.Response:
    """List every API with its versions."""
    return api_versions.Response(
        api_keys=_listed(context.door.served),
        supported_features=[
            api_versions.ResponseSupportedFeature(name=_GROUP_FEATURE, min_version=0, max_version=1),
        ],
        finalized_features_epoch=0,
        finalized_features=[
            api_versions.ResponseFinalizedFeature(name=_GROUP_FEATURE, max_version_level=1, min_version_level=1),
        ],
    )


def unsupported_version_answer(served: Mapping[ApiKey, Versions]) -> api_versions.Response:
    """What a client of the future gets, in version 0's form (KIP-511)."""
    return api_versions.Response(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_listed(served))


def _listed(served: Mapping[ApiKey, Versions]) -> list[api_versions.ResponseApiKey]:
    return [
        api_versions.ResponseApiKey(api_key=key, min_version=versions.low, max_version=versions.high)
        for key, versions in sorted(served.items())
    ]


API = Api(ApiKey.API_VERSIONS, VERSIONS, api_versions.Request, handle)
