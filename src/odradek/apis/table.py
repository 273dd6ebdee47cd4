"""Every API that is served. ApiVersions answers from this table; what is not in it does not exist for clients."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from odradek.apis import api_versions, fetch, init_producer_id, list_offsets, metadata, produce
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey

_MODULES = (api_versions, fetch, init_producer_id, list_offsets, metadata, produce)

APIS: Mapping[int, Api] = MappingProxyType({int(module.API.key): module.API for module in _MODULES})
SERVED: Mapping[ApiKey, Versions] = MappingProxyType({api.key: api.versions for api in APIS.values()})
