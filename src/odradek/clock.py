"""Time as an argument: whoever needs the hour is given a clock.

`SystemClock` is the machine's; `ManualClock` stands still until a test moves it.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time to those who must not ask the machine themselves."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC: what records are stamped with."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970, as set."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        self._now_ms += ms
