"""How `odradek log dump` shows records and batches: plain lines, safe for a terminal and without loss, or JSON."""

from __future__ import annotations

import base64
import json

from odradek.records.build import read_control
from odradek.records.compression import Codec
from odradek.records.errors import RecordError
from odradek.records.header import NO_PRODUCER_ID, BatchHeader
from odradek.records.record import Record

_HEADER_FIELDS = (
    "base_offset", "last_offset", "record_count", "size_bytes", "leader_epoch", "producer_id", "producer_epoch",
    "base_sequence", "base_timestamp", "max_timestamp",
)  # fmt: skip
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _shown(data: bytes | None) -> str:
    """A payload on one line, safe for a terminal and without loss: see the help of `dump`."""
    if data is None:
        return "-"
    if data in (b"", b"-", b'""'):
        return {b"": '""', b"-": "\\x2d", b'""': '\\x22"'}[data]
    text = data.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return _SHORT_ESCAPES.get(character) or "".join(f"\\x{byte:02x}" for byte in character.encode())


def plain_record(record: Record) -> str:
    """A record on one line."""
    return f"{record.offset} {_shown(record.key).replace(' ', chr(92) + 'x20')} {_shown(record.value)}\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """A field of an object: text under its name, other bytes under `name_base64`."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


def json_record(partition: str, header: BatchHeader, record: Record) -> str:
    """A record as an object on one line."""
    fields: dict[str, object] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    fields |= _json_bytes("key", record.key) | _json_bytes("value", record.value)
    fields["headers"] = [{"key": key, **_json_bytes("value", value)} for key, value in record.headers]
    if header.is_control:
        try:
            fields["control"] = read_control(record)[0].name.lower()
        except RecordError:
            fields["control"] = "unknown"
    return json.dumps(fields) + "\n"


def _codec(header: BatchHeader) -> str:
    return Codec(header.codec).label if header.codec in set(Codec) else f"unknown-{header.codec}"


def _flags(header: BatchHeader) -> dict[str, bool]:
    return {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.has_delete_horizon,
        "append_time": header.uses_log_append_time,
    }


def plain_batch(position: int, header: BatchHeader, crc_ok: bool) -> str:
    """A batch's header on one line."""
    producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
    return (
        f"position={position} offsets={header.base_offset}..{header.last_offset} count={header.record_count}"
        f" size={header.size_bytes} codec={_codec(header)} epoch={header.leader_epoch}"
        f" producer={'-' if header.producer_id == NO_PRODUCER_ID else producer}"
        f" flags={','.join(name for name, is_set in _flags(header).items() if is_set) or '-'}"
        f" timestamps={header.base_timestamp}..{header.max_timestamp} crc={'ok' if crc_ok else 'BAD'}\n"
    )


def json_batch(partition: str, path: str, position: int, header: BatchHeader, crc_ok: bool) -> str:
    """A batch's header as an object on one line."""
    fields: dict[str, object] = {"partition": partition, "file": path, "position": position}
    fields |= {name: getattr(header, name) for name in _HEADER_FIELDS}
    return json.dumps(fields | {"codec": _codec(header)} | _flags(header) | {"crc_ok": crc_ok}) + "\n"
