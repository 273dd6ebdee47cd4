"""What clients are told when the log, the disk or their own records are at fault."""

from __future__ import annotations

import pytest

from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.disk.errors import DiskError, DiskFullError
from odradek.log.errors import (
    DamagedLogError,
    LogClosedError,
    LogDeletedError,
    LogError,
    LogStoppedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    StaleLeaderEpochError,
    StaleProducerEpochError,
)
from odradek.records.errors import BatchTooLargeError, CorruptBatchError, InvalidRecordError, UnsupportedCodecError
from odradek.wire.errors import ErrorCode, PeerError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptBatchError("crc"), ErrorCode.CORRUPT_MESSAGE),
        (InvalidRecordError("no key"), ErrorCode.INVALID_RECORD),
        (UnsupportedCodecError("7"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (BatchTooLargeError("large"), ErrorCode.MESSAGE_TOO_LARGE),
        (OffsetOutOfRangeError("orders-0", 9, 0, 5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (OutOfOrderSequenceError("gap"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (StaleProducerEpochError("old"), ErrorCode.INVALID_PRODUCER_EPOCH),
        (StaleLeaderEpochError("old"), ErrorCode.KAFKA_STORAGE_ERROR),
        (DamagedLogError("file", 3, "bits"), ErrorCode.KAFKA_STORAGE_ERROR),
        (LogClosedError("closed"), ErrorCode.KAFKA_STORAGE_ERROR),
        (LogStoppedError("orders-0", DiskFullError("append to", "f", "full")), ErrorCode.KAFKA_STORAGE_ERROR),
        (DiskError("read", "f", "I/O error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (LogError("other"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_each_error_has_its_code_and_its_words(error: Exception, code: ErrorCode) -> None:
    assert isinstance(error, CLIENT_FAULTS), "those who serve clients catch it"
    told = peer_error(error)
    assert (told.code, told.message) == (code, str(error))


def test_a_partition_that_was_deleted_is_unknown_rather_than_broken() -> None:
    told = peer_error(LogStoppedError("orders-0", LogDeletedError("it is deleted")))
    assert told.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told.code.retriable, "the topic may be made again"


def test_an_error_that_is_for_clients_already_stays_as_it_is() -> None:
    error = PeerError(ErrorCode.INVALID_PARTITIONS, "none")
    assert peer_error(error) is error
