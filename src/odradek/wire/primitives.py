"""The parts of Kafka's wire format that generated code calls when a plain inline expression will not do.

Unsigned varints, runs of fixed-size numbers, skipping of unknown tagged fields (KIP-482), and the refusals:
functions that raise, so that the generated functions stay short. The common case is inlined by wire.compiler.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from odradek.wire.errors import DecodeError

ReadBuffer: TypeAlias = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
UVARINT_MAX = 2**32 - 1
UNKNOWN_TAGS_MAX = 128  # a struct; each costs its sender two bytes and us a turn of a loop
FEW = 9  # numbers in a run below this have their struct.Struct made beforehand


def encode_uvarint(value: int) -> bytes:
    """Write an unsigned number of at most 32 bits, seven bits a byte, lowest first."""
    if not 0 <= value <= UVARINT_MAX:
        raise ValueError(f"{value} does not fit into an unsigned varint: it holds 32 bits")
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(data: ReadBuffer, at: int) -> tuple[int, int]:
    """Read an unsigned number of at most 32 bits; return it and the position behind it.

    Bytes that end too soon are an IndexError, which the caller's outermost frame turns into a DecodeError.
    """
    value = shift = 0
    for position in range(at, at + UVARINT_BYTES_MAX):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                raise DecodeError(f"the varint at byte {at} does not fit into 32 bits")
            return value, position + 1
        shift += 7
    raise DecodeError(f"the varint at byte {at} takes more than {UVARINT_BYTES_MAX} bytes")


def decode_length(data: ReadBuffer, at: int, field: str) -> tuple[int, int]:
    """Read a compact length (one more than the real one) of a field that cannot be null."""
    value, at = decode_uvarint(data, at)
    if value == 0:
        raise DecodeError(f"{field} is null, which this version does not allow")
    return value, at


def skip_tags(data: ReadBuffer, at: int, count: int, struct_name: str) -> int:
    """Pass over tagged fields that we know nothing of; return the position behind them.

    That position may lie behind the data, which the caller has to look at.
    """
    if count > UNKNOWN_TAGS_MAX:
        refuse_tags(count, struct_name)
    for _ in range(count):
        _, at = decode_uvarint(data, at)
        length, at = decode_uvarint(data, at)
        at += length
    return at


def unpacker(code: str, count: int) -> Callable[[ReadBuffer, int], tuple[Any, ...]]:
    """Return a function that reads `count` numbers of one kind at a position."""
    return struct.Struct(f">{count}{code}").unpack_from


def pack_many(code: str, values: Sequence[Any]) -> bytes:
    """Write numbers of one kind, one behind the other."""
    return struct.pack(f">{len(values)}{code}", *values)


def few_unpackers(code: str) -> tuple[Callable[[ReadBuffer, int], tuple[Any, ...]], ...]:
    """Return the readers of 0, 1, 2, ... numbers of one kind, up to FEW."""
    return tuple(unpacker(code, count) for count in range(FEW))


def few_packers(code: str) -> tuple[Callable[..., bytes], ...]:
    """Return the writers of 0, 1, 2, ... numbers of one kind, up to FEW."""
    return tuple(struct.Struct(f">{count}{code}").pack for count in range(FEW))


def refuse_length(length: int, field: str) -> NoReturn:
    """Raise for a length below zero."""
    if length == -1:
        raise DecodeError(f"{field} is null, which this version does not allow")
    raise DecodeError(f"{field} has length {length}")


def refuse_count(count: int, field: str, bytes_left: int) -> NoReturn:
    """Raise for an array that cannot have as many elements as it claims."""
    raise DecodeError(f"{field} claims {count} elements, but only {max(bytes_left, 0)} bytes are left")


def refuse_tags(count: int, struct_name: str) -> NoReturn:
    """Raise for a struct with too many tagged fields that we do not know."""
    raise DecodeError(f"{struct_name} has {count} tagged fields: at most {UNKNOWN_TAGS_MAX} unknown ones are taken")


def refuse_tag_size(field: str) -> NoReturn:
    """Raise for a tagged field whose content is longer or shorter than the size before it says."""
    raise DecodeError(f"the tagged field {field} does not have the size that stands before it")


def refuse_uuid(value: object, field: str) -> NoReturn:
    """Raise for an id to be written that is not 16 bytes."""
    raise ValueError(f"{field} is {value!r}: an id has 16 bytes")
