"""What is checked and written into batches before a log takes them in."""

from __future__ import annotations

from odradek.disk.interface import Buffer
from odradek.log.config import LogConfig
from odradek.log.errors import LogError
from odradek.log.segment import Mark
from odradek.model import Offset
from odradek.records.compression import CODEC_MAX
from odradek.records.errors import BatchTooLargeError, InvalidRecordError, UnsupportedCodecError
from odradek.records.header import (
    CODEC_MASK,
    LENGTH_OVERHEAD,
    NO_PRODUCER_ID,
    BatchHeader,
    check_batch,
    stamp_log_append_time,
    stamp_offset,
)


def writable(data: bytes | memoryview) -> bytearray | memoryview:
    """The same bytes where they can be stamped: as they are if they may be changed, else a copy."""
    return data if isinstance(data, memoryview) and not data.readonly else bytearray(data)


def split(data: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """The batches in some bytes, each whole and with a right CRC."""
    view = memoryview(data)
    batches = []
    at = 0
    while at < len(view):
        header = check_batch(view, at)
        batches.append((header, view[at : at + header.size_bytes]))
        at += header.size_bytes
    if not batches:
        raise InvalidRecordError("there is no batch in these bytes")
    return batches


def split_new(data: Buffer, config: LogConfig) -> list[tuple[BatchHeader, memoryview]]:
    """The batches that a producer sent, each of which may be taken in."""
    batches = split(data)
    for header, _ in batches:
        check_new(header, config)
    return batches


def have_gaps(batches: list[tuple[BatchHeader, memoryview]], next_offset: Offset, directory: str) -> bool:
    """Whether the batches of a leader leave out offsets from `next_offset` on; those that go back are refused."""
    gaps = False
    for header, _ in batches:
        if header.base_offset < next_offset:
            raise LogError(f"{directory} continues at {next_offset}; the leader sent {header.base_offset}")
        gaps |= header.base_offset > next_offset
        next_offset = header.next_offset
    return gaps


def assign_offsets(batches: list[tuple[BatchHeader, memoryview]], first: Offset, leader_epoch: int) -> list[Mark]:
    """Stamp batches with the offsets from `first` on, and say where each went."""
    marks, at, offset = [], 0, first
    for header, batch in batches:
        stamp_offset(batch, offset, leader_epoch)
        marks.append(Mark(at, offset, offset + header.last_offset_delta, header.max_timestamp))
        offset += header.last_offset_delta + 1
        at += len(batch)
    return marks


def marks_of(batches: list[tuple[BatchHeader, memoryview]]) -> list[Mark]:
    """Where batches lie that have their offsets already."""
    marks, at = [], 0
    for header, batch in batches:
        marks.append(Mark(at, header.base_offset, header.last_offset, header.max_timestamp))
        at += len(batch)
    return marks


def check_new(header: BatchHeader, config: LogConfig) -> None:
    """Refuse what the CRC does not: too large, an unknown codec, offsets and records that do not match."""
    attributes, last_delta, records = header.attributes, header.last_offset_delta, header.record_count
    if (
        records == last_delta + 1
        and attributes & CODEC_MASK <= CODEC_MAX
        and header.batch_length <= config.max_message_bytes - LENGTH_OVERHEAD
        and (header.producer_id == NO_PRODUCER_ID or _is_sequenced(header))
    ):
        return
    if header.producer_id != NO_PRODUCER_ID and not _is_sequenced(header):
        raise InvalidRecordError(
            f"producer id {header.producer_id}, epoch {header.producer_epoch} and sequence {header.base_sequence}"
            " do not go together"
        )
    if header.size_bytes > config.max_message_bytes:
        raise BatchTooLargeError(
            f"a batch of {header.size_bytes} bytes is over max.message.bytes = {config.max_message_bytes}"
        )
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"the batch has {header.record_count} records for {header.last_offset_delta + 1} offsets"
        )
    raise UnsupportedCodecError(f"there is no codec {header.codec}")


def _is_sequenced(header: BatchHeader) -> bool:
    """Whether a producer's batch has all that is needed to recognise it; a marker needs no sequence."""
    return header.producer_id >= 0 and header.producer_epoch >= 0 and (header.base_sequence >= 0 or header.is_control)


def stamp_times(data: bytearray | memoryview, now_ms: int) -> None:
    """Give all records the broker's time (message.timestamp.type=LogAppendTime)."""
    for _, batch in split(data):
        stamp_log_append_time(batch, now_ms)
