"""DeleteAcls (key 31): remove the access rules that match filters (KIP-140).

Pattern types since version 1 (KIP-290).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string


class RequestFilter(Struct):
    """A filter; null matches anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0, default=None)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=0, default=None)
    host_filter: str | None = string(nullable=0, default=None)
    operation: int = int8()
    permission_type: int = int8()


class Request(Message, key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2):
    """Delete what these filters match."""

    filters: list[RequestFilter] = array(RequestFilter)


class ResponseMatchingAcl(Struct):
    """A rule that matched, and whether it is gone."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class ResponseFilterResult(Struct):
    """The outcome for one filter, in the order of the request."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    matching_acls: list[ResponseMatchingAcl] = array(ResponseMatchingAcl)


class Response(Message, key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2):
    """The outcome, filter by filter."""

    throttle_time_ms: int = int32()
    filter_results: list[ResponseFilterResult] = array(ResponseFilterResult)
