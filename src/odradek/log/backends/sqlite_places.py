"""Where the records of a batch lie, for the view `records` of a sqlite segment.

A batch that is compressed has its records beside it, decompressed. What is a broker's own marker, too large, or not
made of records as it should be has no places: it is served like any other batch and only not shown in the view.
"""

from __future__ import annotations

from odradek.records.compression import codec_from_id, decompress
from odradek.records.errors import RecordError
from odradek.records.header import HEADER_BYTES, BatchHeader, read_header
from odradek.records.varint import decode_varint, decode_varlong

PLAIN_BYTES_MAX = 16 << 20  # of one batch, decompressed: it is stored


def places_of(data: bytes) -> tuple[str, bytes | None] | None:
    """The places of a batch's records as JSON, and its decompressed records if it is compressed; None: not shown.

    A place is [offset - base_offset, timestamp - max_timestamp, key at, key bytes, value at, value bytes], counted from
    1 as sqlite's substr does; -1 bytes stand for null.
    """
    header = read_header(data)
    if header.is_control or not header.record_count:
        return None
    try:
        if not header.codec:
            return _places(header, data, HEADER_BYTES), None
        plain = bytes(decompress(codec_from_id(header.codec), memoryview(data)[HEADER_BYTES:], PLAIN_BYTES_MAX))
        return _places(header, plain, 0), plain
    except (RecordError, IndexError):
        return None


def _places(header: BatchHeader, data: bytes, at: int) -> str:
    base, append_time = header.base_timestamp - header.max_timestamp, header.uses_log_append_time
    places = []
    for _ in range(header.record_count):
        length, at = decode_varint(data, at)
        end = at + length
        timestamp, at = decode_varlong(data, at + 1)
        offset, at = decode_varint(data, at)
        key_bytes, key_at = decode_varint(data, at)
        value_bytes, value_at = decode_varint(data, key_at + max(0, key_bytes))
        if value_at + max(0, value_bytes) > end or end > len(data):
            raise IndexError("a record is longer than it says")
        delta = 0 if append_time else base + timestamp
        places.append(f"[{offset},{delta},{key_at + 1},{key_bytes},{value_at + 1},{value_bytes}]")
        at = end
    return f"[{','.join(places)}]"
