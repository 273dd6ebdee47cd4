"""What a client's batch must be before the log takes it: one batch, of records, as many as it says.

The log checks the CRC, the size and the producer's sequence when it appends; here is what only a stranger gets wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.log.config import LogConfig
from odradek.records.errors import InvalidRecordError, RecordError
from odradek.records.header import CONTROL, DELETE_HORIZON, TRANSACTIONAL, BatchHeader, check_batch, read_header
from odradek.records.validate import validate_batch
from odradek.records.walk import check_record_lengths
from odradek.wire.errors import ErrorCode, PeerError

_MAGIC_AT = 16
_MAGIC = 2
_NOT_FOR_CLIENTS = CONTROL | DELETE_HORIZON | TRANSACTIONAL


@dataclass(slots=True)
class Allowance:
    """What the batches of one request may cost together: looking into them holds up everybody else."""

    decompressed_bytes: int
    records: int


def check_produced(data: memoryview, config: LogConfig, allowed: Allowance) -> None:
    """Refuse bytes that are not exactly one good batch of a client; what the log checks itself may still be wrong."""
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] != _MAGIC:
        raise PeerError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"records of format {data[_MAGIC_AT]}; only format 2 is taken"
        )
    header = read_header(data)
    try:
        _check(data, header, config, allowed)
    except (RecordError, PeerError):
        check_batch(data)  # damaged on the way: then nothing else that is said of it counts
        raise


def _check(data: memoryview, header: BatchHeader, config: LogConfig, allowed: Allowance) -> None:
    if header.size_bytes != len(data):
        if header.size_bytes > len(data):
            check_batch(data)
        raise InvalidRecordError(f"{len(data)} bytes for one batch of {header.size_bytes}: send one batch a partition")
    if header.attributes & _NOT_FOR_CLIENTS:
        if header.is_transactional and not header.is_control:
            raise PeerError(ErrorCode.INVALID_TXN_STATE, "the batch belongs to a transaction that is not open")
        raise InvalidRecordError("control batches and delete horizons are the broker's to write")
    if header.size_bytes > config.max_message_bytes:
        return  # the log says so; it is not decompressed before
    if header.record_count <= 0:
        raise InvalidRecordError("a batch without records")
    size_bytes = check_record_lengths(data, 0, header, max(allowed.decompressed_bytes, 0), allowed.records)
    allowed.records -= header.record_count
    if header.codec:
        allowed.decompressed_bytes -= size_bytes
    if config.compacts:
        validate_batch(data, size_max=size_bytes, keys_required=True)
