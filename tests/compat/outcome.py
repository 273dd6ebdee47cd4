"""What became of one foreign test, and the few words a suite needs to tell it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Outcome(Enum):
    """How a test ended; only PASSED is green."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"
    EMPTY = "empty"  # the suite says passed, but the test did nothing: it stepped over all of its own parts
    NOT_RUN = "not run"  # the suite's bound on time was reached first


RED = frozenset({Outcome.FAILED, Outcome.TIMED_OUT})


@dataclass(frozen=True, slots=True)
class Result:
    """One test of a suite."""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    log: Path | None = None
    tries: int = 1

    @property
    def green(self) -> bool:
        """Whether it passed."""
        return self.outcome is Outcome.PASSED
