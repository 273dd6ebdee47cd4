"""The deep check of a batch that comes from a client: all that the head's own check cannot see.

A broker pays for it where it has a reason (a compacted topic, a client it does not trust); the hot path is
content with header.check_batch. The rules are those of Kafka's LogValidator, with nothing repaired on the way.
"""

from odradek.records.buffers import ReadBuffer
from odradek.records.errors import InvalidRecordError, KeylessRecordsError
from odradek.records.header import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader, check_batch
from odradek.records.parse import parse_batch


def validate_batch(
    data: ReadBuffer, at: int = 0, *, size_max: int, keys_required: bool = False, control_allowed: bool = False
) -> BatchHeader:
    """Check a batch down to its last record; return its head, or raise what a client should be told."""
    header = check_batch(data, at)
    _check_attributes(header, control_allowed)
    _check_producer(header)
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"the batch holds {header.record_count} records, but its offsets make room for"
            f" {header.last_offset_delta + 1}: a producer's batch has no gaps"
        )
    keyless = []
    # Strictly increasing deltas, as many as there are offsets: parsing them proves that they run from 0 without a gap.
    for record in parse_batch(data, at, size_max=size_max):
        # A time far before 1970 and a delete horizon (KIP-534) may lie more than 64 bits apart: compaction would stop.
        if record.timestamp < NO_TIMESTAMP:
            raise InvalidRecordError(
                f"record {record.offset - header.base_offset} of the batch has the timestamp {record.timestamp};"
                " the least is 0, or -1 for none"
            )
        if keys_required and record.key is None:
            keyless.append(record.offset - header.base_offset)
    if keyless:
        raise KeylessRecordsError(keyless)
    return header


def _check_attributes(header: BatchHeader, control_allowed: bool) -> None:
    if header.is_control and not control_allowed:
        raise InvalidRecordError("the batch is marked as a control batch, which only brokers may write")
    if header.has_delete_horizon:
        raise InvalidRecordError("the batch has a delete horizon, which only compaction may set")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id <= NO_PRODUCER_ID:
        if header.is_transactional:
            raise InvalidRecordError("the batch belongs to a transaction, but names no producer id")
        return
    if header.producer_epoch < 0:
        raise InvalidRecordError(
            f"the batch of producer {header.producer_id} has the epoch {header.producer_epoch}; the least is 0"
        )
    # A marker is written by the broker on the producer's behalf and takes no sequence number (KIP-98).
    if header.base_sequence < 0 and not header.is_control:
        raise InvalidRecordError(
            f"the batch of producer {header.producer_id} has the sequence {header.base_sequence}; the least is 0"
        )
