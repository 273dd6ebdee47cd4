"""What a client is told when the log or its own records are at fault: one table, used by every door."""

from __future__ import annotations

from odradek.disk.errors import DiskError
from odradek.log.errors import (
    LogDeletedError,
    LogError,
    LogStoppedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    StaleProducerEpochError,
)
from odradek.records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    RecordError,
    UnsupportedCodecError,
)
from odradek.wire.errors import ErrorCode, PeerError

_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (  # the first that fits
    (CorruptBatchError, ErrorCode.CORRUPT_MESSAGE),
    (InvalidRecordError, ErrorCode.INVALID_RECORD),
    (UnsupportedCodecError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (BatchTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (StaleProducerEpochError, ErrorCode.INVALID_PRODUCER_EPOCH),
)

CLIENT_FAULTS = (LogError, DiskError, RecordError, PeerError)  # what `peer_error` understands


def peer_error(error: Exception) -> PeerError:
    """Turn an error of the log, the disk or of records into the one that the client gets."""
    if isinstance(error, PeerError):
        return error
    if isinstance(error, LogStoppedError) and isinstance(error.cause, LogDeletedError):
        return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition was deleted")
    for kind, code in _CODES:
        if isinstance(error, kind):
            return PeerError(code, str(error))
    return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
