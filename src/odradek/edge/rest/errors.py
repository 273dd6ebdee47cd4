"""The one place where the broker's errors become statuses of HTTP."""

from __future__ import annotations

from odradek.broker.clients import TooManyFailuresError
from odradek.edge.routing import RequestError
from odradek.wire.errors import ErrorCode, PeerError

_STATUSES = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: 401,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.INCONSISTENT_CLUSTER_ID: 409,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.NOT_CONTROLLER: 421,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.BROKER_NOT_AVAILABLE: 503,
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
}


def problem_of(error: PeerError) -> RequestError:
    """What a client is told: errors that pass by themselves are 503, all others 400, but for those of the table."""
    status = _STATUSES.get(error.code, 503 if error.code.retriable else 400)
    if isinstance(error, TooManyFailuresError):
        return RequestError(status, error.message, (("retry-after", str(error.retry_after_seconds)),))
    return RequestError(status, error.message)
