"""What a channel in an object store costs a month: the bill, line by line, from a rate and a table of prices. Pure.

The arithmetic counts what the writer and the readers really do. A publisher puts one object a slice, and a second one
for messages whose time lies in the slice before (clocks and the way here are never exact), so `objects_per_slice` is
two unless the channel is fifo, where the time is that of arrival. A reader without a broker lists once every poll and
gets every object once. Storage is what retention keeps, after compression.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

MONTH_SECONDS = 365.25 * 24 * 3600 / 12
_GB = 10**9
_SLICES_MS = (100, 200, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 20_000, 30_000, 60_000)
_CHECKPOINTS_A_SECOND = 1 / 60  # of one publisher


@dataclass(frozen=True, slots=True)
class Prices:
    """What a provider asks for, in dollars."""

    provider: str
    date: str  # of which these are
    put_per_1000: float
    list_per_1000: float
    get_per_1000: float
    storage_per_gb_month: float

    @classmethod
    def read(cls, table: Mapping[str, object]) -> Self:
        """Take them from a table as a TOML file gives it; ValueError says what is wrong."""
        numbers: dict[str, float] = {}
        for name in ("put_per_1000", "list_per_1000", "get_per_1000", "storage_per_gb_month"):
            value = table.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number of dollars, not {value!r}")
            numbers[name] = float(value)
        unknown = sorted(set(table) - set(numbers) - {"provider", "date"})
        if unknown:
            raise ValueError(f"{unknown[0]} is no price: there are {', '.join(numbers)}, provider and date")
        return cls(provider=str(table.get("provider", "given")), date=str(table.get("date", "not stated")), **numbers)


# List prices, without free allowances and discounts for volume; a file of one's own replaces them.
PROVIDERS: Mapping[str, Prices] = {
    "s3": Prices("Amazon S3 Standard, us-east-1", "2025-01", 0.005, 0.005, 0.0004, 0.023),
    "gcs": Prices("Google Cloud Storage Standard, us-central1", "2025-01", 0.005, 0.005, 0.0004, 0.020),
    "azure": Prices("Azure Blob Storage Hot LRS, East US", "2025-01", 0.0055, 0.0055, 0.00044, 0.0184),
}


@dataclass(frozen=True)
class Use:
    """How a channel is used."""

    rate: float  # messages a second
    size_bytes: int  # of a message
    slice_ms: int = 1_000
    slice_bytes: int = 64 * 2**20
    publishers: int = 1  # partitions of brokers, or writers of their own, that put objects
    readers: int = 1  # that read the store without a broker
    poll_ms: int = 500
    grace_ms: int = 30_000
    retention_days: float = 1.0
    compression: float = 1.0  # stored bytes a byte of messages
    objects_per_slice: float = 2.0

    @property
    def puts_per_second(self) -> float:
        """Objects that all publishers put: each one a slice, more if it is full before its end, and stragglers'."""
        slices = self.publishers * 1_000 / self.slice_ms
        in_slice = math.ceil(self.rate * self.size_bytes / slices / self.slice_bytes)
        return min(slices * (in_slice + self.objects_per_slice - 1), self.rate)


class Line(NamedTuple):
    """One line of the bill."""

    what: str
    per_second: float | None  # requests; None for storage
    per_month: float  # requests, or bytes kept
    dollars: float


class Bill(NamedTuple):
    """What it comes to in a month."""

    lines: tuple[Line, ...]
    prices: Prices

    @property
    def request_dollars(self) -> float:
        """All but the storage."""
        return sum(line.dollars for line in self.lines if line.per_second is not None)

    @property
    def dollars(self) -> float:
        """All of it."""
        return sum(line.dollars for line in self.lines)


def bill(use: Use, prices: Prices) -> Bill:
    """Add up a month."""
    puts = use.puts_per_second
    lists = use.readers * (1_000 / use.poll_ms + 1_000 / max(use.grace_ms, use.poll_ms))
    stored = use.rate * use.size_bytes * use.compression * use.retention_days * 86_400
    lines = (
        _requests("PUT of slices", puts, prices.put_per_1000),
        _requests("PUT of checkpoints", use.publishers * _CHECKPOINTS_A_SECOND, prices.put_per_1000),
        _requests("LIST by readers", lists, prices.list_per_1000),
        _requests("GET by readers", puts * use.readers, prices.get_per_1000),
        Line("storage", None, stored, stored / _GB * prices.storage_per_gb_month),
    )
    return Bill(lines, prices)


def _requests(what: str, per_second: float, per_1000: float) -> Line:
    per_month = per_second * MONTH_SECONDS
    return Line(what, per_second, per_month, per_month / 1_000 * per_1000)


def slices_within(use: Use, prices: Prices, target_dollars: float) -> Iterator[int]:
    """The lengths of a slice, shortest first, with which the requests cost no more than a target."""
    for slice_ms in _SLICES_MS:
        if bill(replace(use, slice_ms=slice_ms), prices).request_dollars <= target_dollars:
            yield slice_ms
