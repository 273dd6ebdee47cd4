"""What the benchmarks share: a description of the machine, medians, and a table of bars.

Every figure stands beside the same work done plainly in the same run: machines are noisy, ratios are less so.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROUNDS = 15


def machine(directory: Path) -> str:
    """One line on where this was measured."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB of memory, {_file_system(directory)}, "
        f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


def _file_system(directory: Path) -> str:
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown file system"
    resolved = str(directory.resolve())
    fitting = [(point, kind) for point, kind in mounts if resolved.startswith(point)]
    return max(fitting, key=lambda mount: len(mount[0]))[1]


def median(numbers: Iterable[float]) -> float:
    """The one in the middle."""
    return statistics.median(numbers)


def alternate(
    first: Callable[[], float], second: Callable[[], float], rounds: int = ROUNDS
) -> list[tuple[float, float]]:
    """Measure two ways in turns, each first in half of the rounds; give the pairs."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            b = second()
            pairs.append((first(), b))
        else:
            a = first()
            pairs.append((a, second()))
    return pairs


@dataclass
class Row:
    """One line of the result."""

    what: str
    ours: str
    beside: str
    ratio: str
    bar: str
    held: bool | None


class Results:
    """Collects rows, prints them, and knows whether every bar was held."""

    def __init__(self, title: str, directory: Path) -> None:
        self._table = Table(title=title, caption=machine(directory), title_justify="left", caption_justify="left")
        for column in ("what", "ours", "beside it", "ratio", "bar", ""):
            self._table.add_column(column, justify="left" if column == "what" else "right")
        self.failed = 0

    def add(self, row: Row) -> None:
        """Take a row, and say so at once: a benchmark takes its time."""
        mark = "" if row.held is None else "held" if row.held else "MISSED"
        self.failed += row.held is False
        self._table.add_row(row.what, row.ours, row.beside, row.ratio, row.bar, mark)
        print(f"  {row.what}: {row.ours}, beside {row.beside} {mark}", file=sys.stderr, flush=True)

    def show(self) -> int:
        """Print the table; the exit status says whether a bar was missed."""
        Console(width=None if sys.stdout.isatty() else 130).print(self._table)
        return 1 if self.failed else 0
