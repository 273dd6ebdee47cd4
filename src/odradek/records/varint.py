"""Zigzag varints, as Kafka writes the numbers inside a record (protocol guide, "varint" and "varlong").

Seven bits a byte, lowest first, the eighth bit says that more follow. Java accepts stray high bits in the
last byte; we refuse any encoding that does not fit the type, since no writer makes one.
"""

from odradek.records.buffers import ReadBuffer
from odradek.records.errors import InvalidRecordError

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10


def encode_varint(into: bytearray, value: int) -> None:
    """Append an int32 as a zigzag varint."""
    if not INT32_MIN <= value <= INT32_MAX:
        raise InvalidRecordError(f"{value} does not fit into a varint: it holds 32 bits")
    _encode(into, value)


def encode_varlong(into: bytearray, value: int) -> None:
    """Append an int64 as a zigzag varint."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise InvalidRecordError(f"{value} does not fit into a varlong: it holds 64 bits")
    _encode(into, value)


def decode_varint(data: ReadBuffer, at: int) -> tuple[int, int]:
    """Read an int32 at a position; return it and the position behind it."""
    try:
        first = data[at]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), at + 1
        second = data[at + 1]
        if second < 0x80:
            zigzag = (first & 0x7F) | (second << 7)
            return (zigzag >> 1) ^ -(zigzag & 1), at + 2
    except IndexError:
        raise InvalidRecordError(f"varint at byte {at} is cut off") from None
    return _decode_long(data, at, VARINT_BYTES_MAX, 32)


def decode_varlong(data: ReadBuffer, at: int) -> tuple[int, int]:
    """Read an int64 at a position; return it and the position behind it."""
    try:
        first = data[at]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), at + 1
        second = data[at + 1]
        if second < 0x80:
            zigzag = (first & 0x7F) | (second << 7)
            return (zigzag >> 1) ^ -(zigzag & 1), at + 2
    except IndexError:
        raise InvalidRecordError(f"varlong at byte {at} is cut off") from None
    return _decode_long(data, at, VARLONG_BYTES_MAX, 64)


def _encode(into: bytearray, value: int) -> None:
    # Python's >> keeps the sign, so one shift by 63 serves both widths.
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        into.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    into.append(zigzag)


def _decode_long(data: ReadBuffer, at: int, bytes_max: int, bits: int) -> tuple[int, int]:
    zigzag = 0
    available = min(bytes_max, len(data) - at)
    for index in range(available):
        byte = data[at + index]
        zigzag |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if zigzag >> bits:
                raise InvalidRecordError(f"number at byte {at} does not fit into {bits} bits")
            return (zigzag >> 1) ^ -(zigzag & 1), at + index + 1
    if available < bytes_max:
        raise InvalidRecordError(f"number at byte {at} is cut off")
    raise InvalidRecordError(f"number at byte {at} takes more than {bytes_max} bytes")


def _encoded(value: int) -> bytes:
    into = bytearray()
    _encode(into, value)
    return bytes(into)


# The builder takes lengths and deltas from here: an index costs a tenth of an encoding. 2,048 covers the
# lengths of ordinary records and the offsets of ordinary batches, for 80 KB of memory.
SMALL = 2048
SMALL_VARINTS: tuple[bytes, ...] = tuple(_encoded(value) for value in range(SMALL))
