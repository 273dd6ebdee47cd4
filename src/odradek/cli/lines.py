"""Makes records of lines: cuts pieces of input into lines, and a line into key and value, or reads it as JSON. Pure.

What cannot be read is a LineError, which says what is wrong with the line; which line it was is known to the caller.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, cast

from odradek.model import PARTITION_MAX
from odradek.records.record import Header

LINE_BYTES_MAX = 16 * 2**20
TIMESTAMP_MAX = 2**63 - 1
_FIELDS = frozenset({
    "key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp", "topic", "offset",
})  # fmt: skip


class LineError(Exception):
    """A line is no record."""


class LineRecord(NamedTuple):
    """What a line says; None where it leaves that open."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


Parse: TypeAlias = Callable[[bytes], LineRecord]


class Splitter:
    """Cuts pieces of input into lines. What is left of the last piece is at most one line."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that are complete now, without their ends."""
        first, *others = piece.split(b"\n")
        self._rest.append(first)
        self._rest_bytes += len(first)
        if self._rest_bytes > LINE_BYTES_MAX:
            raise LineError(f"it has more than {LINE_BYTES_MAX >> 20} MiB, which is more than a record can be")
        if not others:
            return []
        lines = [b"".join(self._rest), *others]
        last = lines.pop()
        self._rest, self._rest_bytes = [last], len(last)
        return lines

    def end(self) -> list[bytes]:
        """The last line, if it had no end."""
        last = b"".join(self._rest)
        self._rest, self._rest_bytes = [], 0
        return [last] if last else []


def plain(separator: bytes | None, null: bytes | None) -> Parse:
    """A reader of lines that are a value, or a key, a separator and a value; `null` is the word for nothing."""

    def parse(line: bytes) -> LineRecord:
        key: bytes | None = None
        value: bytes | None = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise LineError(f"it has no key: {separator.decode(errors='backslashreplace')!r} does not occur in it")
        if null is not None:
            key, value = (None if part == null else part for part in (key, value))
        return LineRecord(value, key)

    return parse


def from_json(line: bytes) -> LineRecord:
    """Read an object with value, and perhaps key, headers, partition and timestamp."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise LineError(f"it is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise LineError('it is not a JSON object such as {"key": "a", "value": "b"}')
    unknown = sorted(given.keys() - _FIELDS)
    if unknown:
        raise LineError(f"it has a field {unknown[0]!r}, which means nothing: there are {', '.join(sorted(_FIELDS))}")
    if "value" not in given and "value_base64" not in given:
        raise LineError('it has no "value" (null makes a tombstone)')
    return LineRecord(
        _content(given, "value"),
        _content(given, "key"),
        tuple(_headers(given.get("headers"))),
        _number(given, "partition", PARTITION_MAX),
        _number(given, "timestamp", TIMESTAMP_MAX),
    )


def _content(given: dict[str, object], name: str) -> bytes | None:
    """Text as it is, bytes by base64, null as null; any other JSON as its text."""
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        if name in given:
            raise LineError(f'it has both "{name}" and "{name}_base64"')
        try:
            return base64.b64decode(cast("str", encoded), validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise LineError(f'its "{name}_base64" is not base64') from None
    content = given.get(name)
    if content is None:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LineError(f'its "{name}" has half a surrogate pair, which cannot be written as UTF-8') from None


def _headers(given: object) -> Iterable[Header]:
    """`{"name": "value"}`, or `[{"key": "name", "value": "value"}]`, which allows a name twice."""
    if given is None:
        return
    items: Sequence[object] = (
        [{"key": name, "value": value} for name, value in given.items()]
        if isinstance(given, dict)
        else given
        if isinstance(given, list)
        else [given]
    )
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str):
            raise LineError('its headers are neither {"name": "value"} nor [{"key": "name", "value": "value"}]')
        yield Header(item["key"], _content(item, "value"))


def _number(given: dict[str, object], name: str, high: int) -> int | None:
    number = given.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= high:
        raise LineError(f'its "{name}" is not a whole number from 0 to {high}')
    return number
