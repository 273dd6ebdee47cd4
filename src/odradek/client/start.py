"""Where reading begins: the start, the end, so many records from either, an offset, or a time. Pure.

The text form is what people type: `start`, `end`, `+10` (ten behind the start), `-10` (ten before the end), `1234` (an
offset), `@1700000000000` (the first record at or after that time, in milliseconds since 1970).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# Special timestamps of ListOffsets.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

OFFSET_MAX = 2**63 - 1


class Start(NamedTuple):
    """A place in a partition: an offset, or a timestamp to look up and a number of records to go on from there."""

    offset: int | None = None
    timestamp: int = EARLIEST
    shift: int = 0

    def __str__(self) -> str:
        if self.offset is not None:
            return str(self.offset)
        if self.timestamp >= 0:
            return f"@{self.timestamp}"
        if self.shift:
            return f"{self.shift:+d}"
        return "start" if self.timestamp == EARLIEST else "end"


StartLike: TypeAlias = Start | str | int


def parse_start(given: StartLike) -> Start:
    """Read a place as people write it; a number is an offset."""
    if isinstance(given, Start):
        return given
    text = str(given)
    if text == "start":
        return Start(timestamp=EARLIEST)
    if text == "end":
        return Start(timestamp=LATEST)
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-", "@") else ("", text)
    if isinstance(given, int) and given < 0:
        raise ValueError(f"an offset is not negative, as {given} is")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > OFFSET_MAX:
        raise ValueError(
            f"{text!r} is no place to start at: write start, end, +n, -n, an offset, or @milliseconds since 1970"
        )
    number = int(digits)
    if sign == "@":
        return Start(timestamp=number)
    if sign == "":
        return Start(offset=number)
    return Start(timestamp=EARLIEST, shift=number) if sign == "+" else Start(timestamp=LATEST, shift=-number)
