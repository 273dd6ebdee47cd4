"""A bound on how many databases are open at a time, for all logs of a store.

A table opens its database when it is needed and says so here; the one that was not used for longest is shut, unless
somebody is inside a call on it. It is opened again when it is needed again.
"""

from __future__ import annotations

from itertools import islice
from threading import Lock
from typing import Protocol

OPEN_MAX = 1024
OPEN_MIN = 8
OPEN_USUAL = 64  # where nobody says how many descriptors there are
UNKNOWN = 1 << 62  # descriptors
SHARE = 4  # of the descriptors that segments may have, one in so many


class Shuttable(Protocol):
    """Something that can be opened again."""

    descriptors: int  # that it has open, about

    def shut(self) -> bool:
        """Close what is open; False, and nothing done, if somebody uses it at this moment."""


class OpenTables:
    """Those that are open, the one used least recently first."""

    def __init__(self, descriptors_max: int = 0) -> None:
        """Keep to a part of the descriptors that segments may have; 0: not known."""
        self.count_max = OPEN_MAX if descriptors_max else OPEN_USUAL
        self._room = descriptors_max // SHARE if descriptors_max else UNKNOWN
        self._taken = 0
        self._open: dict[Shuttable, None] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._open)

    def use(self, table: Shuttable) -> None:
        """Note that it is open and being used; shut another one if there are too many. Call it inside the use."""
        with self._lock:
            if table in self._open:
                del self._open[table]
            else:
                self._taken += table.descriptors
            self._open[table] = None
            doomed = [*islice(self._open, self._excess())]
        for other in doomed:
            if other is not table and other.shut():
                self.forget(other)

    def _excess(self) -> int:
        """How many must be shut, the oldest first."""
        count, taken = len(self._open), self._taken
        for table in self._open:
            if count <= OPEN_MIN or (count <= self.count_max and taken <= self._room):
                break
            count, taken = count - 1, taken - table.descriptors
        return len(self._open) - count

    def forget(self, table: Shuttable) -> None:
        """Note that it is closed."""
        with self._lock:
            if table in self._open:
                del self._open[table]
                self._taken -= table.descriptors
