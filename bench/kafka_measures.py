"""What the comparison measures, which bars it holds, and the table and file that say so. No processes, no clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

JUDGED = "odradek-replicated"  # the mode that promises what Kafka promises
AGAINST = "kafka"
SIZES = {100: "100 B", 1024: "1 KiB", 10240: "10 KiB"}


@dataclass(frozen=True)
class Measure:
    """One figure: what it is called, and what it must be beside Kafka's."""

    key: str
    label: str
    at_least: float | None = None  # the ratio to Kafka's figure
    at_most: float | None = None

    def bar(self) -> str:
        """The bar in words."""
        if self.at_least is not None:
            return f">= {self.at_least:g}x"
        return f"<= {self.at_most:g}x" if self.at_most is not None else ""

    def held(self, ratio: float) -> bool | None:
        """Whether a ratio holds the bar; None where there is none."""
        if self.at_least is not None:
            return ratio >= self.at_least
        return ratio <= self.at_most if self.at_most is not None else None


def _throughput() -> Iterable[Measure]:
    for direction in ("produce", "consume"):
        for size, name in SIZES.items():
            yield Measure(f"{direction}.{size}.mb_s", f"{direction} {name}, MB/s", at_least=1.0)
            yield Measure(f"{direction}.{size}.records_s", f"{direction} {name}, records/s")
            yield Measure(f"{direction}.{size}.cpu_s_gib", f"{direction} {name}, broker CPU s/GiB", at_most=1.0)
    yield Measure("confluent.produce.mb_s", "produce 1 KiB from Python, MB/s")
    yield Measure("confluent.consume.mb_s", "consume 1 KiB from Python, MB/s")


def _latency() -> Iterable[Measure]:
    for rate in (1_000, 10_000):
        for name in ("p50", "p99", "p99.9"):
            bar = 1.0 if (rate, name) == (1_000, "p99") else None
            yield Measure(f"latency.{rate}.{name}", f"{rate:,}/s, {name} ms", at_most=bar)
        yield Measure(f"latency.{rate}.late", f"{rate:,}/s, the client's own delay, p99 ms")


SECTIONS: dict[str, tuple[Measure, ...]] = {
    "throughput": tuple(_throughput()),
    "latency": tuple(_latency()),
    "requests": (
        Measure("requests.1.1.per_s", "1 connection, requests/s"),
        Measure("requests.1.1.p99", "1 connection, p99 ms"),
        Measure("requests.1.5.per_s", "1 connection, 5 in flight, requests/s"),
        Measure("requests.1.5.p99", "1 connection, 5 in flight, p99 ms"),
        Measure("requests.50.1.per_s", "50 connections, requests/s"),
        Measure("requests.50.1.p99", "50 connections, p99 ms"),
    ),
    "start": (Measure("start.ms", "start to first acknowledged record, ms", at_most=0.1),),
    "memory": (
        Measure("memory.rest_mib", "at rest, MiB", at_most=0.25),
        Measure("memory.load_mib", "peak under load, MiB", at_most=0.25),
    ),
    "connections": (
        Measure("connections.per_s", "requests/s of the busy ones"),
        Measure("connections.p99", "p99 ms of the busy ones"),
        Measure("connections.idle_mib", "memory that the idle ones take, MiB"),
        Measure("connections.idle_answer_ms", "an answer to an idle one, ms"),
    ),
    "partitions": (
        Measure("partitions.create_s", "made, s"),
        Measure("partitions.produce_s", "a record to each, s"),
        Measure("partitions.metadata_ms", "Metadata of all, ms"),
        Measure("partitions.mib", "memory that they take, MiB"),
    ),
}


@dataclass(frozen=True)
class Verdict:
    """How one measure came out."""

    key: str
    label: str
    medians: dict[str, float]
    ratios: dict[str, float]  # to Kafka's figure, of each of our modes
    bar: str
    held: bool | None  # None: no bar, or nothing to compare
    failed: tuple[str, ...] = ()  # systems in which the load failed


class Figures:
    """All values by system and key, one a round."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = {}
        self.failures: dict[str, dict[str, str]] = {}  # by system and section

    def add(self, system: str, values: Mapping[str, float]) -> None:
        """Take what one load gave."""
        for key, value in values.items():
            self.values.setdefault(system, {}).setdefault(key, []).append(value)

    def fail(self, system: str, section: str, reason: str) -> None:
        """A load did not work."""
        self.failures.setdefault(system, {})[section] = reason

    def verdicts(self, section: str) -> list[Verdict]:
        """The measures of one section for which there is anything to say."""
        failed = tuple(system for system, sections in self.failures.items() if section in sections)
        found = [self._verdict(measure, failed) for measure in SECTIONS[section]]
        return [verdict for verdict in found if verdict.medians or failed]

    def _verdict(self, measure: Measure, failed: tuple[str, ...]) -> Verdict:
        medians = {system: median(keys[measure.key]) for system, keys in self.values.items() if measure.key in keys}
        beside = medians.get(AGAINST)
        ratios = {
            system: value / beside for system, value in medians.items() if beside and system.startswith("odradek")
        }
        held = measure.held(ratios[JUDGED]) if JUDGED in ratios else None
        if measure.bar() and JUDGED in failed:
            held = False
        return Verdict(measure.key, measure.label, medians, ratios, measure.bar(), held, failed)


def number(value: float) -> str:
    """Three digits that count, or all before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def table(figures: Figures, sections: Sequence[str], systems: Sequence[str], titles: Mapping[str, str]) -> str:
    """The result in plain text."""
    ours = [system for system in systems if system.startswith("odradek")]
    heads = ["", *systems, *(f"{system.removeprefix('odradek-')}/kafka" for system in ours), "bar" if ours else "", ""]
    rows: list[list[str]] = [heads]
    for section in sections:
        verdicts = figures.verdicts(section)
        if verdicts:
            rows.append([titles.get(section, section)])
        rows += [_row(verdict, systems, ours) for verdict in verdicts]
    widths = [max(len(row[column]) for row in rows if len(row) > 1) for column in range(len(heads))]
    lines = []
    for row in rows:
        if len(row) == 1:
            lines += ["", row[0]]
            continue
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _row(verdict: Verdict, systems: Sequence[str], ours: Sequence[str]) -> list[str]:
    def cell(system: str) -> str:
        if system in verdict.medians:
            return number(verdict.medians[system])
        return "failed" if system in verdict.failed else "-"

    mark = "" if verdict.held is None else "PASS" if verdict.held else "MISS"
    ratios = [f"{verdict.ratios[system]:.2f}x" if system in verdict.ratios else "-" for system in ours]
    bar = verdict.bar if JUDGED in systems else ""
    return ["  " + verdict.label, *(cell(system) for system in systems), *ratios, bar, mark]


def as_json(figures: Figures, sections: Sequence[str], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, for a file."""
    return {
        **about,
        "values": figures.values,
        "failures": figures.failures,
        "verdicts": {section: [asdict(verdict) for verdict in figures.verdicts(section)] for section in sections},
    }
