"""What a measurement counts: records, bytes, and latencies in a histogram of bounded size. Time is an argument."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

PERCENTILES = (50.0, 99.0, 99.9)
_GROWTH = math.log(1.005)  # each bucket is half a percent wider than the one before
_LEAST_S = 1e-7


class Histogram:
    """Durations, kept to half a percent, however many there are."""

    def __init__(self) -> None:
        self.count = 0
        self.max_s = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Take note of one duration."""
        self.count += 1
        self.max_s = max(self.max_s, seconds)
        self._buckets[int(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _GROWTH)] += 1

    def percentile(self, percent: float) -> float:
        """The duration that so many percent did not exceed, in seconds; 0 if there is none."""
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(self.max_s, _LEAST_S * math.exp((bucket + 1) * _GROWTH))
        return 0.0

    def in_ms(self) -> dict[str, float]:
        """The usual percentiles and the maximum, in milliseconds."""
        found = {f"p{percent:g}": round(self.percentile(percent) * 1000, 3) for percent in PERCENTILES}
        return found | {"max": round(self.max_s * 1000, 3)}


@dataclass(slots=True)
class Meter:
    """What has been moved so far, and how long single steps took."""

    started_at: float  # seconds, by the clock of whoever measures
    records: int = 0
    size_bytes: int = 0
    stopped_at: float | None = None
    latencies: dict[str, Histogram] = field(default_factory=dict)  # by what was timed

    def histogram(self, name: str) -> Histogram:
        """The latencies of one kind of step."""
        return self.latencies.setdefault(name, Histogram())

    def seconds(self, now: float) -> float:
        """How long it has been measuring."""
        return max(1e-9, (now if self.stopped_at is None else self.stopped_at) - self.started_at)
