"""What producers were promised and what consumers saw, and a checker that names each thing in it that must not be.

Pure: it takes a history and gives findings. A record is known by its producer and the number that the producer gave it.
The anomalies are those of Jepsen's Kafka workload, as far as they need no transactions:

lost-write            acknowledged, or read by somebody, and not in the log at the end
duplicate             one record at two places
inconsistent-offsets  two different records at one place
unseen                acknowledged and in the log, and never given to any consumer of the group
poll-skip             a consumer went past records that are in the log
nonmonotonic-poll     a consumer was given a lower or the same offset again without having been assigned anew
nonmonotonic-send     a producer's later record stands before an earlier one of the same partition
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

UNKNOWN_OFFSET = -1  # a repeated send was found to be there already: acknowledged, and not told where
SHOWN_MAX = 20  # findings of one kind that are told in words; the rest are counted


class Record(NamedTuple):
    """Who sent it, and as which of its records."""

    producer: str
    sequence: int


class Place(NamedTuple):
    """Where a record stands."""

    partition: int
    offset: int


class Acknowledged(NamedTuple):
    """A producer was told that a record stands at a place."""

    at_ms: int
    record: Record
    place: Place


class Polled(NamedTuple):
    """A consumer of the group was given a record."""

    at_ms: int
    consumer: str
    record: Record
    place: Place


class Assigned(NamedTuple):
    """A consumer was given a partition, and goes on wherever the group had come to."""

    at_ms: int
    consumer: str
    partition: int


class Finding(NamedTuple):
    """One thing that must not be."""

    anomaly: str
    text: str


@dataclass
class History:
    """All that was observed in one run."""

    acknowledged: list[Acknowledged] = field(default_factory=list)  # of one producer in the order of the reports
    consumed: list[Polled | Assigned] = field(default_factory=list)  # of one consumer in the order of its polls
    final: dict[Place, Record] = field(default_factory=dict)  # every partition, read from the beginning at the end

    def check(self) -> list[Finding]:
        """Everything that is wrong, in the order of `ANOMALIES`."""
        return [Finding(name, text) for name, look in ANOMALIES.items() for text in look(self)]

    def polled_count(self) -> int:
        """How many records the group was given, some of them again."""
        return sum(isinstance(event, Polled) for event in self.consumed)

    def placed(self) -> Iterator[Acknowledged]:
        """The acknowledgements that said where."""
        return (event for event in self.acknowledged if event.place.offset != UNKNOWN_OFFSET)

    def observations(self) -> Iterator[tuple[Place, Record, str]]:
        """Each time that somebody was shown a record at a place, and who."""
        for acknowledged in self.placed():
            yield acknowledged.place, acknowledged.record, "its acknowledgement"
        for event in self.consumed:
            if isinstance(event, Polled):
                yield event.place, event.record, f"consumer {event.consumer}"
        for place, record in self.final.items():
            yield place, record, "the log at the end"


def _name(record: Record) -> str:
    return f"record {record.sequence} of producer {record.producer}"


def _at(place: Place) -> str:
    offset = "unknown" if place.offset == UNKNOWN_OFFSET else place.offset
    return f"partition {place.partition} offset {offset}"


def _lost_writes(history: History) -> Iterator[str]:
    """Also what a consumer has read: it must not have been shown what could still go away."""
    gone: dict[Record, str] = {}
    for event in history.acknowledged:
        gone.setdefault(event.record, f"acknowledged at {_at(event.place)}")
    for place, record, witness in history.observations():
        gone.setdefault(record, f"at {_at(place)} by {witness}")
    for record in history.final.values():
        gone.pop(record, None)
    for record, story in gone.items():
        yield f"{_name(record)}, {story}, is not in the log at the end"


def _duplicates(history: History) -> Iterator[str]:
    places: dict[Record, dict[Place, str]] = {}
    for place, record, witness in history.observations():
        places.setdefault(record, {}).setdefault(place, witness)
    for record, found in places.items():
        if len(found) > 1:
            yield f"{_name(record)} is at " + " and at ".join(f"{_at(at)} by {who}" for at, who in found.items())


def _inconsistent_offsets(history: History) -> Iterator[str]:
    records: dict[Place, dict[Record, str]] = {}
    for place, record, witness in history.observations():
        records.setdefault(place, {}).setdefault(record, witness)
    for place, found in records.items():
        if len(found) > 1:
            yield f"{_at(place)} holds " + " and ".join(f"{_name(record)} by {who}" for record, who in found.items())


def _unseen(history: History) -> Iterator[str]:
    kept = set(history.final.values())
    seen = {event.record for event in history.consumed if isinstance(event, Polled)}
    for acknowledged in history.acknowledged:
        if acknowledged.record in kept and acknowledged.record not in seen:
            yield f"{_name(acknowledged.record)} at {_at(acknowledged.place)} was given to no consumer"


def _polls(history: History) -> Iterator[tuple[str, Polled, Polled]]:
    """Two polls of one consumer and partition, one after the other, with no assignment between."""
    last: dict[tuple[str, int], Polled] = {}
    for event in history.consumed:
        if isinstance(event, Assigned):
            last.pop((event.consumer, event.partition), None)
            continue
        key = (event.consumer, event.place.partition)
        before = last.get(key)
        last[key] = event
        if before is not None:
            yield event.consumer, before, event


def _poll_skips(history: History) -> Iterator[str]:
    """Offsets may have gaps (control records): only what is in the log can be skipped."""
    offsets: dict[int, list[int]] = {}
    for place in sorted(history.final):
        offsets.setdefault(place.partition, []).append(place.offset)
    for consumer, before, after in _polls(history):
        known = offsets.get(after.place.partition, [])
        first, end = bisect.bisect_right(known, before.place.offset), bisect.bisect_left(known, after.place.offset)
        if end > first:
            yield (
                f"consumer {consumer} went from {_at(before.place)} to {after.place.offset} "
                f"past {end - first} records that are in the log"
            )


def _nonmonotonic_polls(history: History) -> Iterator[str]:
    for consumer, before, after in _polls(history):
        if after.place.offset <= before.place.offset:
            yield f"consumer {consumer} was given {_at(after.place)} after {before.place.offset}"


def _nonmonotonic_sends(history: History) -> Iterator[str]:
    """By what was promised and by what is in the log, each for itself."""
    promised = ((event.place, event.record) for event in history.placed())
    for sends in (promised, history.final.items()):
        yield from _out_of_order(sends)


def _out_of_order(sends: Iterable[tuple[Place, Record]]) -> Iterator[str]:
    by_producer: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for place, record in sends:
        by_producer.setdefault((record.producer, place.partition), []).append((record.sequence, place.offset))
    for (producer, partition), numbers in by_producer.items():
        for (earlier, offset), (later, after) in pairwise(sorted(numbers)):
            if after < offset:
                yield (
                    f"record {later} of producer {producer} stands before its record {earlier} "
                    f"in partition {partition}: {after} and {offset}"
                )


ANOMALIES: dict[str, Callable[[History], Iterator[str]]] = {
    "lost-write": _lost_writes,
    "duplicate": _duplicates,
    "inconsistent-offsets": _inconsistent_offsets,
    "unseen": _unseen,
    "poll-skip": _poll_skips,
    "nonmonotonic-poll": _nonmonotonic_polls,
    "nonmonotonic-send": _nonmonotonic_sends,
}


def summary(findings: Iterable[Finding]) -> str:
    """How many of which kind, on one line; `clean` when there are none."""
    counts = Counter(finding.anomaly for finding in findings)
    return " ".join(f"{name}={counts[name]}" for name in ANOMALIES if counts[name]) or "clean"


def in_words(findings: Iterable[Finding]) -> list[str]:
    """A line a finding, not too many of one kind."""
    counts: Counter[str] = Counter()
    lines = []
    for anomaly, text in findings:
        counts[anomaly] += 1
        if counts[anomaly] <= SHOWN_MAX:
            lines.append(f"{anomaly}: {text}")
    lines += [f"{name}: and {count - SHOWN_MAX} more" for name, count in counts.items() if count > SHOWN_MAX]
    return lines


def longest_silence_ms(history: History, begin_ms: int, end_ms: int) -> int:
    """The longest time in which no producer was told anything."""
    times = sorted(event.at_ms for event in history.acknowledged if begin_ms <= event.at_ms <= end_ms)
    return max(after - before for before, after in pairwise([begin_ms, *times, end_ms]))
