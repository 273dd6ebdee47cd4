"""Records into the objects of a channel, and back. Nothing here touches a store.

An object is one or more Kafka record batches, one after another, with true offsets (the sequences); keys and values
are byte for byte what was published. The records of an object lie in one slice and are in ascending order, but their
sequences may have gaps: what came in between lies in another slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from odradek.objects.errors import DamagedObjectError
from odradek.objects.keys import object_key, slice_start
from odradek.objects.spec import ChannelSpec
from odradek.records.build import rebuild_batch
from odradek.records.compression import codec_from_name
from odradek.records.errors import RecordError
from odradek.records.header import (
    HEADER_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    iter_headers,
)
from odradek.records.parse import parse_batch
from odradek.records.record import Header, Record

BATCH_BYTES = 4 * 1024 * 1024  # of a batch before compression: what a reader must hold at once
DECOMPRESSED_BYTES_MAX = 1024 * 1024 * 1024  # a record is never split, so a batch is as large as the largest record
OFFSET_DELTA_MAX = 2**31 - 1
_RECORD_OVERHEAD_BYTES = 16  # lengths, deltas and attributes of a record, about


class Message(NamedTuple):
    """A record of a channel; the fields are those of a log's record, and the sequence is its offset."""

    sequence: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def offset(self) -> int:
        """The sequence, by the name that a log's record has for it."""
        return self.sequence


@dataclass(frozen=True, slots=True)
class SliceObject:
    """An object to be PUT."""

    key: str
    data: bytes
    first: int
    last: int
    count: int
    slice_end_ms: int


def cut(spec: ChannelSpec, publisher: str, messages: Sequence[Message]) -> list[SliceObject]:
    """Sort messages, ascending by sequence, into the objects of their slices; by the first sequence of each."""
    objects = [
        build_object(spec, publisher, start_ms, run)
        for start_ms, in_slice in by_slice(spec, messages).items()
        for run in split(in_slice, spec.slice_bytes)
    ]
    return sorted(objects, key=lambda one: one.first)


def by_slice(spec: ChannelSpec, messages: Sequence[Message]) -> dict[int, list[Message]]:
    """The messages of each slice, by the time at which it begins; the slices in the order of their first sequences."""
    slices: dict[int, list[Message]] = {}
    from_ms, to_ms, append = 0, -1, None  # of the slice of the last message: mostly that of the next one
    for message in messages:
        if append is None or not from_ms <= message[1] < to_ms:
            from_ms = slice_start(spec, message[1])
            to_ms = from_ms + spec.slice_ms
            append = slices.setdefault(from_ms, []).append
        append(message)
    return slices


def split(messages: list[Message], bytes_max: int) -> list[list[Message]]:
    """Runs of messages of at most so many bytes; one that is larger is alone."""
    runs: list[list[Message]] = []
    start = size = 0
    for index, message in enumerate(messages):
        bytes_now = size_of(message)
        if size + bytes_now > bytes_max and index > start:
            runs.append(messages[start:index])
            start, size = index, 0
        size += bytes_now
    runs.append(messages[start:])
    return runs


def size_of(message: Message) -> int:
    """The bytes of a message before compression, about."""
    _, _, key, value, headers = message
    size = _RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, header_value in headers:
        size += 2 + len(name) + len(header_value or b"")
    return size


def build_object(spec: ChannelSpec, publisher: str, start_ms: int, messages: list[Message]) -> SliceObject:
    """Write the messages of one slice, ascending and not empty, as one object."""
    codec = int(codec_from_name(spec.compression))
    data = b"".join(_build_batch(run, codec) for part in split(messages, BATCH_BYTES) for run in _within_reach(part))
    first, last = messages[0].sequence, messages[-1].sequence
    slice_ = start_ms % spec.window_ms
    key = object_key(spec.name, start_ms - slice_, slice_, publisher, first)
    return SliceObject(key, data, first, last, len(messages), start_ms + spec.slice_ms)


def read_object(data: bytes) -> list[Message]:
    """The messages of an object, ascending by sequence; every byte is checked."""
    messages: list[Message] = []
    make = tuple.__new__
    end = 0
    try:
        for at, header in iter_headers(data):
            records = parse_batch(data, at, size_max=DECOMPRESSED_BYTES_MAX, check_crc=True)
            messages += [make(Message, record) for record in records]
            end = at + header.size_bytes
    except RecordError as error:
        raise DamagedObjectError(f"an object of a channel is damaged: {error}") from None
    if end != len(data) or not messages:
        raise DamagedObjectError(f"an object of a channel is damaged: it is cut off at byte {end} of {len(data)}")
    return messages


def _within_reach(messages: list[Message]) -> list[list[Message]]:
    """A batch has 32 bits for how far its offsets lie from the first: mostly all are in reach of one another."""
    if messages[-1].sequence - messages[0].sequence <= OFFSET_DELTA_MAX:
        return [messages]
    middle = len(messages) // 2
    return _within_reach(messages[:middle]) + _within_reach(messages[middle:])


def _build_batch(messages: list[Message], codec: int) -> bytearray:
    records = cast(list[Record], messages)  # all its fields by its names: copies would cost as much as the rest
    first, last = messages[0], messages[-1]
    header = BatchHeader(
        base_offset=first.offset,
        batch_length=HEADER_BYTES,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=last.offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=first.timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=len(records),
    )
    return rebuild_batch(header, records)
