"""A slow second encoder that follows the protocol guide field by field, to compare the generated code with."""

from __future__ import annotations

import struct
from typing import Any

from odradek.wire.fields import FIXED, Field
from odradek.wire.schema import Struct


def uvarint(value: int) -> bytes:
    """Write an unsigned varint."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def encode(value: Struct, version: int, flexible: bool) -> bytes:
    """Write a struct: ordinary fields in order, then the tagged ones that differ from their defaults."""
    out = b""
    tags: dict[int, bytes] = {}
    for field in value.fields:
        content = getattr(value, field.name)
        is_tagged = field.tag is not None and (field.tag_since is None or version >= field.tag_since)
        if version < field.since or (field.until is not None and version > field.until):
            continue
        if not is_tagged:
            out += encode_field(field, content, version, flexible)
        elif content != getattr(type(value)(), field.name):
            assert field.tag is not None
            tags[field.tag] = encode_field(field, content, version, flexible)
    if flexible:
        out += uvarint(len(tags))
        out += b"".join(uvarint(tag) + uvarint(len(body)) + body for tag, body in sorted(tags.items()))
    return out


def encode_field(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    """Write one value."""
    if field.kind in FIXED:
        return struct.pack(">" + FIXED[field.kind], value)
    if field.kind == "struct":
        mark = b"" if field.nullable is None or version < field.nullable else b"\xff" if value is None else b"\x01"
        return mark + (b"" if value is None else encode(value, version, flexible))
    wide = field.kind != "string"
    if value is None:
        return b"\0" if flexible else struct.pack(">i" if wide else ">h", -1)
    if field.kind == "array":
        assert field.element is not None
        body = b"".join(encode_field(field.element, item, version, flexible) for item in value)
    else:
        body = value.encode() if field.kind == "string" else bytes(value)
    length = len(value) if field.kind == "array" else len(body)
    return (uvarint(length + 1) if flexible else struct.pack(">i" if wide else ">h", length)) + body
