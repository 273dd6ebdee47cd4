"""Reads the records of a v2 batch, strictly: what does not fit exactly is refused, never guessed at.

It is the one place that goes record by record, so the common one- and two-byte numbers are decoded in line:
a call for each would double its time. Follows Kafka's documentation, "Record" and "Record Header".
"""

from collections.abc import Iterator

from odradek.records.buffers import ReadBuffer
from odradek.records.compression import codec_from_id, decompress
from odradek.records.errors import InvalidRecordError
from odradek.records.header import HEADER_BYTES, BatchHeader, check_batch, check_frame
from odradek.records.record import Header, Record
from odradek.records.varint import INT64_MAX, INT64_MIN, decode_varint, decode_varlong

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
RECORD_BODY_BYTES_MIN = 6  # attributes, two deltas, two lengths and the number of headers, a byte each
NULL = 0x01  # the varint of -1, the length of what is not there


def parse_batch(
    data: ReadBuffer, at: int = 0, *, size_max: int = DECOMPRESSED_BYTES_MAX, check_crc: bool = False
) -> list[Record]:
    """Return the records of a batch with their absolute offsets; a compressed one may grow to size_max bytes."""
    header = check_batch(data, at) if check_crc else check_frame(data, at)
    payload = _plain_payload(data, at, header, size_max)
    try:
        return _parse_records(header, payload)
    except IndexError:
        raise _cut_off(header) from None


def iter_keys(
    data: ReadBuffer, at: int = 0, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[int, int, bytes | None, bool]]:
    """Yield offset, timestamp, key and whether the value is null; values and headers are passed over unread."""
    header = check_frame(data, at)
    payload = _plain_payload(data, at, header, size_max)
    try:
        for offset, timestamp, key, value_at, _ in _iter_fronts(header, payload):
            yield offset, timestamp, key, payload[value_at] == NULL
    except IndexError:
        raise _cut_off(header) from None


def iter_values(
    data: ReadBuffer, at: int = 0, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, timestamp and value, a null one as no bytes; keys and headers are passed over.

    Nothing but the batch's plain bytes is held, whatever the number of its records.
    """
    header = check_frame(data, at)
    payload = _plain_payload(data, at, header, size_max)
    try:
        for offset, timestamp, _, value_at, end in _iter_fronts(header, payload):
            byte = payload[value_at]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), value_at + 1
            else:
                length, at = decode_varint(payload, value_at)
            if at + length >= end or length < -1:
                raise _invalid(offset, f"says {length} bytes of value, {end - at} are left")
            yield offset, timestamp, payload[at : at + length] if length > 0 else b""
    except IndexError:
        raise _cut_off(header) from None


def _plain_payload(data: ReadBuffer, at: int, header: BatchHeader, size_max: int) -> bytes:
    """Return the records' bytes as one object of its own: slices of bytes cost half of those of a memoryview."""
    stored = memoryview(data)[at + HEADER_BYTES : at + header.size_bytes]
    # An emptied batch has nothing behind its head, whatever codec its attributes name.
    if header.record_count == 0 or header.codec == 0:
        payload = bytes(stored)
    else:
        payload = decompress(codec_from_id(header.codec), stored, size_max)
    if header.record_count * (1 + RECORD_BODY_BYTES_MIN) > len(payload):
        raise InvalidRecordError(
            f"the batch at offset {header.base_offset} says that it holds {header.record_count} records,"
            f" but has only {len(payload)} bytes for them"
        )
    return payload


def _iter_fronts(  # noqa: PLR0912, PLR0915 - numbers are decoded in line, see above
    header: BatchHeader, payload: bytes
) -> Iterator[tuple[int, int, bytes | None, int, int]]:
    """Yield offset, timestamp, key, and where the rest of the record (its value and headers) starts and ends."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.uses_log_append_time else None
    last_delta, previous_delta = header.last_offset_delta, -1
    size = len(payload)
    end = 0
    for _ in range(header.record_count):
        at = end
        byte = payload[at]
        if byte >= 0x80 and payload[at + 1] < 0x80:
            byte = (byte & 0x7F) | (payload[at + 1] << 7)
            length = (byte >> 1) ^ -(byte & 1)
            at += 2
        else:
            length, at = decode_varint(payload, at)
        end = at + length
        if length < RECORD_BODY_BYTES_MIN or end > size:
            raise _invalid(base_offset + previous_delta + 1, f"says {length} bytes, {size - at} are left")
        at += 1  # attributes: none are defined

        byte = payload[at]
        if byte < 0x80:
            timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
            at += 1
        else:
            delta, at = decode_varlong(payload, at)
            timestamp = base_timestamp + delta
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise _invalid(base_offset + previous_delta + 1, f"has the timestamp {timestamp}, more than 64 bits")

        byte = payload[at]
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
            at += 1
        elif payload[at + 1] < 0x80:
            byte = (byte & 0x7F) | (payload[at + 1] << 7)
            delta = (byte >> 1) ^ -(byte & 1)
            at += 2
        else:
            delta, at = decode_varint(payload, at)
        if not previous_delta < delta <= last_delta:
            raise _invalid(base_offset + previous_delta + 1, f"has the offset delta {delta}")
        previous_delta = delta

        byte = payload[at]
        if byte == NULL:
            key = None
            at += 1
        else:
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                length, at = decode_varint(payload, at)
            stop = at + length
            if length < 0 or stop > end:
                raise _invalid(base_offset + delta, f"says {length} bytes of key, {end - at} are left")
            key = payload[at:stop]
            at = stop
        if at + 2 > end:
            raise _invalid(base_offset + delta, f"has no room for a value: it ends at byte {end}, the key at {at}")
        yield base_offset + delta, timestamp if append_time is None else append_time, key, at, end
    if end != size:
        raise InvalidRecordError(f"{size - end} bytes follow the last record of the batch at offset {base_offset}")


def _parse_records(header: BatchHeader, payload: bytes) -> list[Record]:
    records: list[Record] = []
    append, make = records.append, tuple.__new__  # what Record() does, less a call
    for offset, timestamp, key, value_at, end in _iter_fronts(header, payload):
        at = value_at
        byte = payload[at]
        if byte == NULL:
            value = None
            at += 1
        else:
            if byte >= 0x80 and payload[at + 1] < 0x80:
                byte = (byte & 0x7F) | (payload[at + 1] << 7)
                length = (byte >> 1) ^ -(byte & 1)
                at += 2
            else:
                length, at = decode_varint(payload, at)
            stop = at + length
            if length < 0 or stop > end:
                raise _invalid(offset, f"says {length} bytes of value, {end - at} are left")
            value = payload[at:stop]
            at = stop

        headers: tuple[Header, ...] = ()
        if payload[at]:
            headers, at = _parse_headers(offset, payload, at, end)
        else:
            at += 1
        if at != end:
            raise _invalid(offset, f"ends at byte {at} instead of {end}")
        append(make(Record, (offset, timestamp, key, value, headers)))
    return records


def _parse_headers(offset: int, payload: bytes, at: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, at = decode_varint(payload, at)
    # A header takes two bytes at least; a count beyond that is refused before the loop follows it.
    if not 0 <= 2 * count <= end - at:
        raise _invalid(offset, f"says {count} headers, {end - at} bytes are left")
    headers = []
    for _ in range(count):
        length, at = decode_varint(payload, at)
        stop = at + length
        if length < 0 or stop > end:
            raise _invalid(offset, f"says {length} bytes of header name, {end - at} are left")
        try:
            name = payload[at:stop].decode()
        except UnicodeDecodeError:
            raise _invalid(offset, "has a header name that is not UTF-8") from None
        if payload[stop] == NULL:
            value = None
            at = stop + 1
        else:
            length, at = decode_varint(payload, stop)
            stop = at + length
            if length < 0 or stop > end:
                raise _invalid(offset, f"says {length} bytes of header value, {end - at} are left")
            value = payload[at:stop]
            at = stop
        headers.append(Header(name, value))
    return tuple(headers), at


def _invalid(offset: int, fault: str) -> InvalidRecordError:
    return InvalidRecordError(f"the record at offset {offset} {fault}")


def _cut_off(header: BatchHeader) -> InvalidRecordError:
    return InvalidRecordError(f"the batch at offset {header.base_offset} ends inside a record")
