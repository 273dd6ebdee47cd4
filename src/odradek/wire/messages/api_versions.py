"""ApiVersions (key 18): which APIs a broker speaks, in which versions (KIP-35).

The first request on a connection. Its response header is never flexible, so that a client of any age can read an
UNSUPPORTED_VERSION. Names of the client's software since version 3 (KIP-511), features as tagged fields (KIP-584).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class Request(Message, key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    """Ask for the APIs; from version 3 on the client says what it is."""

    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


class ResponseApiKey(Struct):
    """One API and its range of versions."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class ResponseSupportedFeature(Struct):
    """A feature this broker can take part in."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class ResponseFinalizedFeature(Struct):
    """A feature the whole cluster has agreed on."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class Response(Message, key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    """The APIs and the features."""

    error_code: int = int16()
    api_keys: list[ResponseApiKey] = array(ResponseApiKey)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[ResponseSupportedFeature] = array(ResponseSupportedFeature, since=3, tag=0)
    finalized_features_epoch: int = int64(since=3, default=-1, tag=1)
    finalized_features: list[ResponseFinalizedFeature] = array(ResponseFinalizedFeature, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
