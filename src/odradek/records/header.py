"""The 61 bytes at the head of a v2 record batch (Kafka's documentation, "Record Batch"), read and patched in place.

Nothing here looks at the records behind it. The CRC covers all from the attributes on, so that a broker may
write the base offset and the leader epoch into a producer's batch without touching it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek.records.buffers import ReadBuffer, WriteBuffer
from odradek.records.crc import crc32c
from odradek.records.errors import CorruptBatchError

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
# Bound once, for the hot path of an append: what it looks at (batch_length, magic, crc, attributes, last_offset_delta,
# max_timestamp, producer_id, record_count), and what it writes (base_offset, batch_length as it was, leader_epoch).
unpack_vitals = struct.Struct(">8xi4xbIhi8xqq6xi").unpack_from
stamp_head = struct.Struct(">qii").pack_into
LENGTH_OVERHEAD = 12  # batch_length counts what follows it: the size of a batch is 12 bytes more
BATCH_LENGTH_MIN = HEADER_BYTES - LENGTH_OVERHEAD
CRC_START = 21
CRC_COVERED = slice(CRC_START, None)  # of bytes that are one batch
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # KIP-534: base_timestamp holds the time from which tombstones may go

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1

_LEADER_EPOCH_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT, _PRODUCER_AT = 12, 17, 21, 35, 43
_new_tuple = tuple.__new__
_PRODUCER = struct.Struct(">qhi")
_INT16, _INT32, _UINT32, _INT64 = (struct.Struct(form) for form in (">h", ">i", ">I", ">q"))


class BatchHeader(NamedTuple):
    """The thirteen fields of a batch's head, in the order of the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int  # stays when compaction removes records: the batch keeps its range of offsets
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, from its first byte to its last."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The last offset that the batch takes, whether or not a record still stands there."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The compression as three raw bits, 0 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker of the broker instead of a client's records."""
        return bool(self.attributes & CONTROL)

    @property
    def uses_log_append_time(self) -> bool:
        """Whether max_timestamp, set by the broker, is the time of every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base_timestamp is the time from which tombstones may go (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; they run from 0 again after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(data: ReadBuffer, at: int = 0) -> BatchHeader:
    """Read a batch's head as it stands; only that 61 bytes are there is checked."""
    try:
        return BatchHeader._make(HEADER.unpack_from(data, at))
    except struct.error:
        left = max(0, len(data) - at)
        raise CorruptBatchError(f"batch at byte {at}: {left} bytes are left, its head takes 61") from None


def check_frame(data: ReadBuffer, at: int = 0) -> BatchHeader:
    """Read a batch's head and check all that can be without its CRC: magic, lengths, counts."""
    header = read_header(data, at)
    _check_magic_and_length(header, at)
    if at + header.size_bytes > len(data):
        raise CorruptBatchError(
            f"batch at byte {at} is cut off: it takes {header.size_bytes} bytes, {len(data) - at} are left"
        )
    if header.record_count < 0:
        raise CorruptBatchError(f"batch at byte {at} says that it holds {header.record_count} records")
    if header.last_offset_delta < 0:
        raise CorruptBatchError(f"batch at byte {at} ends {-header.last_offset_delta} offsets before it begins")
    return header


def check_batch(data: ReadBuffer, at: int = 0) -> BatchHeader:
    """Read a batch's head and check that the batch is whole: check_frame, and the CRC."""
    # The hot path of every append: what check_frame looks at is looked at here in one line, by position, and
    # check_frame is asked only to say what is wrong.
    try:
        header: BatchHeader = _new_tuple(BatchHeader, HEADER.unpack_from(data, at))
    except struct.error:
        return check_frame(data, at)
    end = at + header[1] + LENGTH_OVERHEAD
    if header[3] != MAGIC or header[1] < BATCH_LENGTH_MIN or end > len(data) or header[12] < 0 or header[6] < 0:
        return check_frame(data, at)
    crc = crc32c(memoryview(data)[at + CRC_START : end])
    if crc != header[4]:
        raise CorruptBatchError(
            f"batch at byte {at} (offset {header.base_offset}) has the CRC {header.crc:#010x}, its bytes {crc:#010x}"
        )
    return header


def iter_headers(data: ReadBuffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and head of each whole batch; stop before one that is cut off, as a fetch may end in one."""
    at = 0
    end = len(data)
    while at + HEADER_BYTES <= end:
        header = BatchHeader._make(HEADER.unpack_from(data, at))
        _check_magic_and_length(header, at)
        following = at + header.size_bytes
        if following > end:
            return
        yield at, header
        at = following


def stamp_offset(data: WriteBuffer, base_offset: int, leader_epoch: int, at: int = 0) -> None:
    """Write the offset and the epoch that the log assigns; both lie outside the CRC."""
    _INT64.pack_into(data, at, base_offset)
    _INT32.pack_into(data, at + _LEADER_EPOCH_AT, leader_epoch)


def stamp_producer(data: WriteBuffer, producer_id: int, epoch: int, base_sequence: int, at: int = 0) -> None:
    """Write who produced the batch, and the number of its first record; the CRC must be computed again."""
    _PRODUCER.pack_into(data, at + _PRODUCER_AT, producer_id, epoch, base_sequence)


def reseal(data: WriteBuffer, at: int = 0) -> None:
    """Compute the CRC again after a change to what it covers."""
    header = check_frame(data, at)
    _UINT32.pack_into(data, at + _CRC_AT, _crc_of(data, at, header))


def stamp_log_append_time(data: WriteBuffer, timestamp: int, at: int = 0) -> None:
    """Give every record of the batch the broker's time, without touching the records."""
    header = check_frame(data, at)
    _INT16.pack_into(data, at + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _INT64.pack_into(data, at + _MAX_TIMESTAMP_AT, timestamp)
    reseal(data, at)


def _check_magic_and_length(header: BatchHeader, at: int) -> None:
    if header.magic != MAGIC:
        raise CorruptBatchError(f"batch at byte {at} has the magic {header.magic}; only 2 is read here")
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatchError(f"batch at byte {at} has the length {header.batch_length}, the least is 49")


def _crc_of(data: ReadBuffer, at: int, header: BatchHeader) -> int:
    return crc32c(memoryview(data)[at + CRC_START : at + header.size_bytes])
