"""Gives the room of deleted segments back to the disk: one thread for all databases, which ends when nothing is left.

A thread for each would be as many as there are partitions whenever retention goes through them all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock, Thread


class Sweeper:
    """Does one thing after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = Lock()
        self._thread: Thread | None = None

    def add(self, work: Callable[[], None]) -> None:
        """Do this, too, some time; it must not raise."""
        with self._lock:
            self._waiting.append(work)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="rocksdb-sweep", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                work = self._waiting.popleft()
            work()
            del work  # it may be the last that names a database


sweeper = Sweeper()
