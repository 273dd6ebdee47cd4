"""Allow-lists: the tests of a suite that must pass, one name a line. They may only grow.

A list is read and judged here; what a test does is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.compat.outcome import Result

DIRECTORY = Path(__file__).parent / "allow"
NOT = "# not "


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results of a run beside its allow-list."""

    broken: Sequence[Result]  # allowed, run, and not green: the run fails
    missing: Sequence[str]  # allowed, but the suite has no such test (judged only if the whole suite was run)
    new: Sequence[str]  # green and not in the list yet

    @property
    def good(self) -> bool:
        """Whether every allowed test that should have run is green."""
        return not self.broken and not self.missing


def read(file: Path) -> list[str]:
    """The names in a list; a missing list is an empty one. Lines that begin with # are for people."""
    if not file.exists():
        return []
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def kept_out(file: Path) -> set[str]:
    """The names that a list refuses, by a line `# not NAME: why`: green or red by chance."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {line.removeprefix(NOT).partition(":")[0].strip() for line in lines if line.startswith(NOT)}


def judge(allowed: Collection[str], results: Sequence[Result], *, whole: bool) -> Verdict:
    """Hold results against a list; `whole` says that no test was left out on purpose."""
    ran = {result.name for result in results}
    return Verdict(
        broken=[result for result in results if result.name in allowed and not result.green],
        missing=sorted(set(allowed) - ran) if whole else [],
        new=sorted(result.name for result in results if result.green and result.name not in allowed),
    )


def add(file: Path, names: Iterable[str]) -> None:
    """Write a list with more names in it; nothing that was there goes, comments come first."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    head = [line for line in text.splitlines() if line.startswith("#")]
    lines = head + sorted({*read(file), *names} - kept_out(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
