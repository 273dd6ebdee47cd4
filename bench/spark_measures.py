"""What the Spark comparison measures, which bars it holds, and how the figures become rows of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.harness import Row, median
from bench.spark_sides import Outcome
from bench.spark_topics import Load

MILLION = 1e6


@dataclass(frozen=True)
class Case:
    """One kind of job over one load."""

    kind: str
    load: Load
    at_least: float | None = None  # the ratio to the connector's rows a second

    @property
    def label(self) -> str:
        """As the table has it."""
        return f"{LABELS[self.kind]}, {self.load}"


LABELS = {
    "read": "batch read",
    "stream": "stream read",
    "write": "batch sink",
    "write_stream": "stream sink",
    "archive": "archive",
    "parquet": "to parquet files",
}


@dataclass(frozen=True)
class Figure:
    """One side's outcomes of a case, one a round."""

    rows: int
    outcomes: Sequence[Outcome]

    def rates(self) -> list[float]:
        """Rows a second."""
        return [self.rows / outcome.seconds for outcome in self.outcomes]

    def text(self) -> str:
        """The median, and from the least to the most."""
        rates = [rate / MILLION for rate in self.rates()]
        return f"{median(rates):.2f} ({min(rates):.2f}-{max(rates):.2f})"

    def cpu(self) -> tuple[float, float]:
        """Processor seconds a million rows, of Spark and of the broker."""
        share = MILLION / self.rows
        return (
            median(outcome.spark_cpu_s for outcome in self.outcomes) * share,
            median(outcome.broker_cpu_s for outcome in self.outcomes) * share,
        )


def row_of(case: Case, ours: Figure, theirs: Figure) -> Row:
    """The line of the table; the ratio is the median of the rounds' ratios, since a machine's pace changes."""
    ratio = median(a / b for a, b in zip(ours.rates(), theirs.rates(), strict=True))
    held = None if case.at_least is None else ratio >= case.at_least
    bar = "" if case.at_least is None else f">= {case.at_least:g}x"
    return Row(case.label, _cell(ours), _cell(theirs), f"{ratio:.2f}x", bar, held)


def steady_row(ours: Figure, theirs: Figure) -> Row | None:
    """Micro-batches but the first two: what a stream that goes on does."""
    rates = [
        [_steady_rate(outcome) for outcome in side.outcomes if len(outcome.batches) > 2] for side in (ours, theirs)
    ]
    if not all(rates):
        return None
    mine, beside = (median(side) for side in rates)
    cells = [f"{rate / MILLION:.2f}" for rate in (mine, beside)]
    return Row("  its micro-batches from the third on", cells[0], cells[1], f"{mine / beside:.2f}x", "", None)


def _steady_rate(outcome: Outcome) -> float:
    later = outcome.batches[2:]
    return sum(rows for rows, _ in later) / max(1, sum(ms for _, ms in later)) * 1000


def _cell(figure: Figure) -> str:
    spark, broker = figure.cpu()
    return f"{figure.text()}  {spark:.1f}+{broker:.2f}"
