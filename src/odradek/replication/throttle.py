"""A bound on bytes a second, by debt: what came is counted, and the next request waits until it is paid off."""

from __future__ import annotations


class Throttle:
    """Bytes a second; 0 is without limit. Times are in seconds, from the caller."""

    def __init__(self, bytes_per_second: int) -> None:
        self.rate = bytes_per_second
        self._paid_at = 0.0

    def take(self, size_bytes: int, now: float) -> None:
        """Count bytes that have come."""
        if self.rate > 0:
            self._paid_at = max(self._paid_at, now) + size_bytes / self.rate

    def wait_s(self, now: float) -> float:
        """How long nothing more is to be asked for; 0 if it may be now."""
        return max(0.0, self._paid_at - now) if self.rate > 0 else 0.0
