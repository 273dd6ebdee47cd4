"""How the commands show lists: a drawn table on a terminal, `name key=value ...` lines for programs otherwise.

Also how they say things beside their output, on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from odradek.cli.terminal import escape, is_terminal, table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def show(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: a table on a terminal, else a line each, its first cell and then `heading=cell` for the others."""
    if is_terminal():
        table(headings, rows)
        return
    for first, *others in rows:
        pairs = (f"{name}={cell}" for name, cell in zip(headings[1:], others, strict=True))
        print(escape(" ".join((first, *pairs))))


def tell(text: str) -> None:
    """Say something that is not the output, in one line on standard error."""
    print(escape(text), file=sys.stderr, flush=True)


def counted(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_bytes(number: float) -> str:
    """A size for people: `1.5 MiB`."""
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"
