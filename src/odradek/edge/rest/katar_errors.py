"""What Katar's door answers when the broker refuses something: as the other doors do, and 422 for what cannot be."""

from __future__ import annotations

from odradek.edge.rest import errors
from odradek.edge.routing import RequestError
from odradek.wire.errors import ErrorCode, PeerError

_UNPROCESSABLE = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.POLICY_VIOLATION,
    }
)


def problem_of(error: PeerError) -> RequestError:
    """The status and the text for a client."""
    if error.code in _UNPROCESSABLE:
        return RequestError(422, error.message)
    if error.code is ErrorCode.TOPIC_DELETION_DISABLED:
        return RequestError(403, error.message)
    if error.code is ErrorCode.NOT_CONTROLLER:
        return RequestError(503, error.message)
    return errors.problem_of(error)
