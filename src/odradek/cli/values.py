"""Reads what people write on a command line: numbers, sizes, durations, times, places in a log. For argparse's `type`.

A text that makes no sense is an ArgumentTypeError, which says what to write instead.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import datetime

from odradek.client.start import OFFSET_MAX, Start, parse_start
from odradek.clock import SystemClock

_DURATION_UNITS_MS = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
_SIZE_UNITS = {
    "": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
}  # fmt: skip
_DURATION_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|min|[smhdw])")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_SIZE = re.compile(r"([0-9]{1,18})\s*([A-Za-z]*)")


def number(low: int = 0, high: int = OFFSET_MAX) -> Callable[[str], int]:
    """A reader of whole numbers within bounds."""

    def read(text: str) -> int:
        if re.fullmatch(r"-?[0-9]{1,19}", text) and low <= int(text) <= high:
            return int(text)
        bounds = f"from {low} on" if high == OFFSET_MAX else f"from {low} to {high}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {bounds}")

    return read


def assignment(text: str) -> tuple[str, str]:
    """`name=value`; the value may be empty."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    return name.strip(), value


def size(text: str) -> int:
    """A number of bytes, perhaps with a unit: `512`, `1KiB`, `2MB`."""
    match = _SIZE.fullmatch(text.strip())
    factor = None if match is None else _SIZE_UNITS.get(match[2].lower())
    if match is None or factor is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write bytes, or a unit as in 1KiB or 2MB")
    return int(match[1]) * factor


def seconds(text: str) -> float:
    """A duration in seconds, perhaps with a unit: `10`, `0.5`, `500ms`, `1h30m`."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    return _duration_ms(text) / 1000


def _duration_ms(text: str) -> int:
    if not _DURATION.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write one as in 500ms, 30s, 15m, 1h30m or 7d")
    return round(sum(float(count) * _DURATION_UNITS_MS[unit] for count, unit in _DURATION_PART.findall(text)))


def moment(text: str) -> int:
    """A time in milliseconds since 1970: given as such, as an ISO time, or as so long ago (`-1h`)."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    if text.startswith("-"):
        found = SystemClock().now_ms() - _duration_ms(text[1:])
    else:
        try:
            found = round(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a time: write 2026-01-31T12:00 (local time, or with Z or +02:00), milliseconds since"
                " 1970, or how long ago, as in -1h"
            ) from None
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970, where Kafka's time begins")
    return found


def place(text: str) -> Start:
    """A place in a log: `start`, `end`, `+n`, `-n`, an offset, or `@` and a time."""
    if text.startswith("@"):
        return Start(timestamp=moment(text[1:]))
    try:
        return parse_start(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no place in a log: write start, end, +n (behind the first n records), -n (the last n),"
            " an offset, or @TIME"
        ) from None
