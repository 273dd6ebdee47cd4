"""What the commands share when they speak to a person: tables, progress, safe text, errors.

Rich is imported only when there is a terminal to draw on: it takes longer to import than most commands take to run.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class CommandError(Exception):
    """A command cannot go on; the message is one line for the person who typed it."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def is_terminal(stream: TextIO | None = None) -> bool:
    """Tell whether a person is watching: standard output unless another stream is named."""
    stream = sys.stdout if stream is None else stream
    return stream is not None and not stream.closed and stream.isatty()


def escape(text: str) -> str:
    """Make control characters visible, so that data can neither drive the terminal nor break a line."""
    if text.isprintable():
        return text
    return "".join(character if _is_harmless(character) else _escaped(character) for character in text)


def _is_harmless(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"  # all kinds of spaces


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: drawn with headings on a terminal, otherwise one plain line a row with its columns aligned."""
    cells = [[escape(cell) for cell in row] for row in rows]
    if is_terminal():
        _draw_table(headings, cells)
        return
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw_table(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    from rich import box  # noqa: PLC0415 (see the module's docstring)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        drawn.add_column(heading, overflow="fold", style="bold" if number == 0 else None)
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))  # Text, since a plain string's [brackets] would be markup
    Console().print(drawn)


@contextmanager
def progress(total_bytes: int, label: str) -> Iterator[Callable[[int], None]]:
    """Draw a bar on standard error while the block runs, if that is a terminal; the block calls `advance(bytes)`."""
    if not is_terminal(sys.stderr):
        yield _advance_nothing
        return
    from rich.console import Console  # noqa: PLC0415 (see the module's docstring)
    from rich.markup import escape as without_markup  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    # Rich would send what is printed meanwhile to stderr, too, even if stdout is a file.
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=is_terminal()) as bar:
        task = bar.add_task(without_markup(escape(label)), total=total_bytes)
        yield lambda count: bar.advance(task, count)


def _advance_nothing(_: int) -> None:
    """Stand in for the bar when nobody watches."""
