"""A bound on how many databases are open at a time, for all logs of a store.

A table opens its database when it is needed and says so here; the one that was not used for longest is shut, unless
somebody is inside a call on it. It is opened again when it is needed again.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol

OPEN_MAX = 512
OPEN_MIN = 8
OPEN_USUAL = 64  # where nobody says how many descriptors there are
SHARE = 4  # of the descriptors that segments may have, one in so many
DESCRIPTORS_EACH = 8  # two connections with a database, a log and its index each, and a little room


class Shuttable(Protocol):
    """Something that can be opened again."""

    def shut(self) -> bool:
        """Close what is open; False, and nothing done, if somebody uses it at this moment."""


class OpenTables:
    """Those that are open, the one used least recently first."""

    def __init__(self, descriptors_max: int = 0) -> None:
        """Keep to a part of the descriptors that segments may have; 0: not known."""
        room = descriptors_max // SHARE // DESCRIPTORS_EACH if descriptors_max else OPEN_USUAL
        self.count_max = max(OPEN_MIN, min(room, OPEN_MAX))
        self._open: dict[Shuttable, None] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._open)

    def use(self, table: Shuttable) -> None:
        """Note that it is open and being used; shut another one if there are too many. Call it inside the use."""
        with self._lock:
            self._open.pop(table, None)
            self._open[table] = None
            excess = len(self._open) - self.count_max
            doomed = [other for other in self._open if other is not table][:excess] if excess > 0 else []
        for other in doomed:
            if other.shut():
                self.forget(other)

    def forget(self, table: Shuttable) -> None:
        """Note that it is closed."""
        with self._lock:
            self._open.pop(table, None)
