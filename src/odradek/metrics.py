"""Counters and histograms that the parts keep of themselves; whoever shows them reads the fields.

One event loop owns them, so counting is plain addition.
"""

from __future__ import annotations

from bisect import bisect_left

LATENCY_BOUNDS_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class Histogram:
    """How often values fell below each bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one: above all bounds
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class ApiStats:
    """What one API of the Kafka door has done."""

    __slots__ = ("errors", "latency", "request_bytes", "response_bytes")

    def __init__(self) -> None:
        self.latency = Histogram()  # seconds from a whole request to its answer
        self.errors = 0  # requests that ended the connection
        self.request_bytes = 0
        self.response_bytes = 0


class DoorStats:
    """What the connections of the Kafka door have done."""

    def __init__(self) -> None:
        self.apis: dict[str, ApiStats] = {}
        self.connections = 0  # open now
        self.connections_accepted = 0
        self.connections_refused = 0  # over a bound
        self.connections_dropped = 0  # for breaking the protocol, stalling or being idle

    def api(self, name: str) -> ApiStats:
        """The counters of one API."""
        stats = self.apis.get(name)
        if stats is None:
            stats = self.apis[name] = ApiStats()
        return stats
