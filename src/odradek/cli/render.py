"""How records are shown: by a format such as '%k %v', as JSON, or as the bytes they are. Pure.

Text is shown as it is, so that it can be piped on; control characters and bytes that are not UTF-8 are escaped, so
that a record can neither drive a terminal nor break a line.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from odradek.client.fetched import ConsumerRecord

Render: TypeAlias = Callable[[ConsumerRecord], bytes]

FORMAT_DEFAULT = "%v\\n"

_TOKEN = re.compile(r"%(?P<field>.)|\\x(?P<hex>[0-9A-Fa-f]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)|(?P<stray>.)", re.S)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r"}
_CARRIED_OVER = {"\t"}  # harmless, and what separates columns


def shown(data: bytes) -> bytes:
    """Bytes on one line, safe for a terminal: UTF-8 text as it is, the rest as escapes."""
    text = data.decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = "".join(character if _is_harmless(character) else _escaped(character) for character in text)
    return text.encode()


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in _CARRIED_OVER or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return _SHORT_ESCAPES.get(character) or "".join(f"\\x{byte:02x}" for byte in character.encode())


def _as_it_is(data: bytes) -> bytes:
    return data


def formatted(template: str, *, null: str, raw: bool) -> Render:
    """Make the function that shows a record by a template; a ValueError says what is wrong with that."""
    write = _as_it_is if raw else shown
    nothing = null.encode()
    pieces = [_piece(match, write, nothing) for match in _TOKEN.finditer(template)]
    if template == FORMAT_DEFAULT:  # most records are shown like that
        return lambda record: (nothing if record.value is None else write(record.value)) + b"\n"
    return lambda record: b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in pieces])


def _piece(match: re.Match[str], write: Callable[[bytes], bytes], null: bytes) -> bytes | Render:
    if match["text"] is not None:
        return match["text"].encode()
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"])
    if match["escape"] in _ESCAPES:
        return _ESCAPES[match["escape"]]
    if match["field"] == "%":
        return b"%"
    fields: dict[str, Render] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp,
        "k": lambda record: null if record.key is None else write(record.key),
        "v": lambda record: null if record.value is None else write(record.value),
        "h": partial(_headers, write=write, null=null),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "V": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    }
    if match["field"] in fields:
        return fields[match["field"]]
    raise ValueError(
        f"the format has {match[0]!r}, which means nothing: there are %{', %'.join(fields)}, %% and \\n, \\t, \\r, \\0,"
        " \\\\, \\xHH"
    )


def _headers(record: ConsumerRecord, *, write: Callable[[bytes], bytes], null: bytes) -> bytes:
    return b",".join(
        shown(name.encode()) + b"=" + (null if value is None else write(value)) for name, value in record.headers
    )


def as_json(record: ConsumerRecord) -> bytes:
    """One object on one line, which `odradek produce --json` takes again."""
    fields: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"key": name, **json_bytes("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields).encode() + b"\n"


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """A field of an object: text under its name, other bytes under `name_base64`."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


def joined(records: Iterable[ConsumerRecord], render: Render) -> bytes:
    """The output for some records."""
    return b"".join(map(render, records))
