"""Open-loop pacing: records leave at the times of a schedule, whatever the answers do, and each latency counts from the
scheduled time. So a broker that stalls is charged for all the records that should have been on their way meanwhile.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.kafka_process import BenchError, Deadline

DRAIN_SECONDS = 30.0
_SCHEDULE_LEAD_SECONDS = 0.05
_WAIT_SECONDS = 0.01


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least this share of the values do not exceed; values in ascending order."""
    if not ordered:
        raise ValueError("no values")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass
class Paced:
    """What a paced run gave, in milliseconds, in the order of sending."""

    latencies_ms: list[float]
    late_ms: list[float]  # how far behind its schedule the client sent: says whether the client kept up

    def percentiles(self) -> dict[str, float]:
        """p50, p99 and p99.9."""
        ordered = sorted(self.latencies_ms)
        return {name: percentile(ordered, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}


class Schedule:
    """Which record leaves when, and when each was acknowledged."""

    def __init__(self, rate: int, seconds: float) -> None:
        self.count = int(rate * seconds)
        self._rate = rate
        self._begin = 0.0
        self._sent = [0.0] * self.count
        self._done = [0.0] * self.count
        self.done_count = 0

    def acknowledge(self, number: int) -> None:
        """Record `number` was acknowledged now."""
        self._done[number] = time.perf_counter()
        self.done_count += 1

    def run(self, send: Callable[[int], None]) -> None:
        """Call `send` for every record at its time, then wait for what is under way."""
        deadline = Deadline(self.count / self._rate + DRAIN_SECONDS, f"{self.count} records at {self._rate:,}/s")
        gc.disable()
        try:
            self._begin = time.perf_counter() + _SCHEDULE_LEAD_SECONDS
            self._send_all(send)
        finally:
            gc.enable()
        while self.done_count < self.count:
            deadline.check()
            time.sleep(_WAIT_SECONDS)

    def _send_all(self, send: Callable[[int], None]) -> None:
        number = 0
        while number < self.count:
            now = time.perf_counter()
            due = min(self.count, int((now - self._begin) * self._rate) + 1)
            while number < due:
                self._sent[number] = time.perf_counter()
                send(number)
                number += 1
            wait = self._begin + number / self._rate - time.perf_counter()
            if wait > 0:
                time.sleep(wait)

    def result(self, skip_seconds: float) -> Paced:
        """What was measured, without the first seconds."""
        first = int(skip_seconds * self._rate)
        if first >= self.count:
            raise BenchError("the run is shorter than what is skipped of it")
        latencies, late = [], []
        for number in range(first, self.count):
            intended = self._begin + number / self._rate
            latencies.append((self._done[number] - intended) * 1000)
            late.append((self._sent[number] - intended) * 1000)
        return Paced(latencies, late)
