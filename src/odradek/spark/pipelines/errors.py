"""What is wrong with a pipeline, in words for the one who wrote it: every mistake with its file, line and key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple, TypeAlias

from odradek.spark.errors import SparkError

Path: TypeAlias = tuple[str | int, ...]  # where a key stands: ("sources", "orders", "topic")


class PipelineError(SparkError):
    """A pipeline cannot be read, checked or run; the text says why."""


class ParameterError(PipelineError):
    """A parameter of a ready pipeline has a value with which nothing can be built."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class Problem(NamedTuple):
    """One mistake, and the key that it is about."""

    path: Path
    message: str
    line: int | None = None

    def located(self, line: int | None) -> Problem:
        """The same mistake with the line at which it stands."""
        return Problem(self.path, self.message, line)


class PipelineFileError(PipelineError):
    """A file has mistakes, all of which are listed."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(set(problems), key=lambda problem: (problem.line or 0, str(problem.path))))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """One line a mistake: `file:line: key: what is wrong`."""
        return [
            ": ".join(
                part
                for part in (
                    self.file if problem.line is None else f"{self.file}:{problem.line}",
                    dotted(problem.path),
                    problem.message,
                )
                if part
            )
            for problem in self.problems
        ]


def dotted(path: Path) -> str:
    """A key as it could be written in the file: `sources.orders.topic`, `spark."spark.ui.port"`."""
    return ".".join(str(part) if _is_bare(str(part)) else f'"{part}"' for part in path)


def _is_bare(part: str) -> bool:
    return part.replace("_", "").replace("-", "").isalnum() and part.isascii()


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'topic'?`, or nothing."""
    known = {one.lower(): one for one in names}
    matches = get_close_matches(name.lower(), known, n=1)
    return f"; did you mean '{known[matches[0]]}'?" if matches else ""


def listed(names: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
