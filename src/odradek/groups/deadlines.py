"""One timer for all groups: it rings at the earliest deadline.

A group's deadline may have moved on when the timer rings, since heartbeats do not touch it; then the group says so and
is put in again. Nothing here costs anything for a member, or for a heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from odradek.clock import Clock


class Deadlines:
    """The next deadline of each group."""

    def __init__(self, clock: Clock, on_due: Callable[[str, int], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[int, str]] = []
        self._armed: dict[str, int] = {}  # the entry of the heap that counts; others of the same group are stale
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_ms: int | None = None

    def start(self) -> None:
        """Begin to ring, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._set_timer()

    def close(self) -> None:
        """Ring no more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def arm(self, group_id: str, deadline_ms: int | None) -> None:
        """Look at this group no later than at its deadline."""
        if deadline_ms is None:
            return
        armed_ms = self._armed.get(group_id)
        if armed_ms is not None and armed_ms <= deadline_ms:
            return
        self._armed[group_id] = deadline_ms
        heappush(self._heap, (deadline_ms, group_id))
        if self._rings_ms is None or deadline_ms < self._rings_ms:
            self._set_timer()

    def run_due(self) -> None:
        """Attend to every group whose deadline has passed."""
        now_ms = self._clock.now_ms()
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, group_id = heappop(self._heap)
            if self._armed.get(group_id) == deadline_ms:
                del self._armed[group_id]
                due.append(group_id)
        try:
            for group_id in due:
                self._on_due(group_id, now_ms)
        finally:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rings_ms = None
        if self._loop is not None and self._heap:
            self._rings_ms = self._heap[0][0]
            delay_ms = max(self._rings_ms - self._clock.now_ms(), 0)
            self._timer = self._loop.call_later(delay_ms / 1000, self.run_due)
