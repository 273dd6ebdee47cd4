"""What Spark reports of a query's batches, as the few numbers that people look at. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.model import TopicPartition
from odradek.spark.offsets import StreamOffset

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch of one query."""

    batch: int
    timestamp: str  # when it began, as Spark writes it: 2026-01-31T12:00:00.000Z
    rows: int
    seconds: float
    state_rows: int
    state_bytes: int
    is_work: bool  # and not a report that there was nothing to do
    positions: Positions = field(default_factory=dict)  # the offsets behind what was read
    ends: Positions = field(default_factory=dict)  # the ends of the partitions when it began

    @property
    def rows_per_second(self) -> float:
        """How fast it was."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def lag(self) -> int:
        """Records that were there and not read."""
        return sum(max(0, end - self.positions.get(key, end)) for key, end in self.ends.items())


def read_progress(document: Mapping[str, Any]) -> BatchReport:
    """Read Spark's StreamingQueryProgress, given as its JSON is."""
    sources = document.get("sources") or ()
    operators = document.get("stateOperators") or ()
    durations = document.get("durationMs") or {}
    return BatchReport(
        batch=int(document["batchId"]),
        timestamp=str(document["timestamp"]),
        rows=sum(int(source.get("numInputRows") or 0) for source in sources),
        seconds=int(durations.get("triggerExecution") or 0) / 1000,
        state_rows=sum(int(operator.get("numRowsTotal") or 0) for operator in operators),
        state_bytes=sum(int(operator.get("memoryUsedBytes") or 0) for operator in operators),
        is_work="addBatch" in durations,
        positions=least(positions_of(source.get("endOffset")) for source in sources),
        ends=least(positions_of(source.get("latestOffset")) for source in sources),
    )


def positions_of(offset: Any) -> Positions:
    """The offsets of partitions, if a source's offset is made of such."""
    if not isinstance(offset, Mapping):
        return {}
    topics = [value for name, value in offset.items() if not str(name).startswith("$")]
    if not all(isinstance(value, Mapping) for value in topics):
        return {}
    return StreamOffset.from_json(offset).positions


def least(many: Iterable[Positions]) -> dict[TopicPartition, int]:
    """The smallest offset of each partition: how far the slowest has come."""
    found: dict[TopicPartition, int] = {}
    for positions in many:
        for key, offset in positions.items():
            found[key] = min(offset, found.get(key, offset))
    return found


@dataclass(slots=True)
class QueryStatus:
    """One sink's query, since it was started."""

    sink: str
    state: str = "starting"  # starting, running, restarting, stopped, done or failed
    query_id: str = ""
    batches: int = 0
    rows: int = 0
    restarts: int = 0
    error: str | None = None
    last: BatchReport | None = None  # the last batch that did something
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    lag: int | None = None

    def take(self, report: BatchReport) -> None:
        """Count a batch."""
        self.positions.update(report.positions)
        if report.ends:
            self.lag = report.lag
        if report.is_work:
            self.last = report
            self.batches += 1
            self.rows += report.rows
