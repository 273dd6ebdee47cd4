"""The one table of settings: names, types, defaults, bounds and the sentence that explains each.

Nothing is loaded here: `odradek.config` reads files, the environment and flags against this table. Names, defaults
and bounds of topic settings are Kafka's; `flush` and the `log.*` group are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal, TypeAlias

Value: TypeAlias = int | float | str | frozenset[str]
Scope: TypeAlias = Literal["broker", "topic"]

ENVIRONMENT_PREFIX = "ODRADEK_"

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# Largest first: a value is shown in the largest unit that divides it.
_SIZE_UNITS = {"TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB, "B": 1}
_DURATION_UNITS = {"d": DAY_MS, "h": HOUR_MS, "min": MINUTE_MS, "s": SECOND_MS, "ms": 1}
_SIZE_UNITS_READ_TOO = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3}
_DURATION_UNITS_READ_TOO = {"m": MINUTE_MS}

_NUMBER = re.compile(r"(?P<number>-?[0-9]{1,20})\s*(?P<unit>[A-Za-z]*)")
_SHOWN_CHARACTERS_MAX = 100


class SettingError(ValueError):
    """A setting's name or value that is refused; the message says which, where it stood and what is allowed."""


class Kind(Enum):
    """What a setting's value is, in the words of the documentation."""

    SIZE = "size"
    DURATION = "duration"
    COUNT = "count"
    RATIO = "ratio"
    CHOICE = "one of a list"
    CHOICES = "some of a list"
    PATH = "path"


_WRITTEN_AS = {
    Kind.SIZE: "a whole number of bytes, or one with a unit such as 64MiB",
    Kind.DURATION: "a whole number of milliseconds, or one with a unit such as 500ms or 7d",
    Kind.COUNT: "a whole number",
    Kind.RATIO: "a number such as 0.5",
    Kind.CHOICE: "a word",
    Kind.CHOICES: "words with commas between them",
    Kind.PATH: "a path",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    scope: Scope
    kind: Kind
    default: Value
    summary: str
    low: float = 0  # bounds include their ends; choices and paths have none
    high: float = LONG_MAX
    special: tuple[int, str] | None = None  # one number with a meaning of its own, allowed whatever the bounds
    choices: tuple[str, ...] = ()
    environment_too: tuple[str, ...] = ()
    flag: str | None = None  # a flag of its own, beside --set

    @property
    def environment(self) -> tuple[str, ...]:
        """The environment variables that set it; the first is the one to recommend."""
        return (ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper(), *self.environment_too)

    @property
    def unit(self) -> str:
        """What a plain number counts."""
        return {Kind.SIZE: "bytes", Kind.DURATION: "ms"}.get(self.kind, "")

    @property
    def allowed(self) -> str:
        """Which values are accepted, for people."""
        if self.kind is Kind.PATH:
            return "any path"
        if self.kind is Kind.CHOICE:
            return ", ".join(self.choices[:-1]) + f" or {self.choices[-1]}"
        if self.kind is Kind.CHOICES:
            return ", ".join(self.choices) + ", or several of these with commas between"
        low, high = self.human(self.low), self.human(self.high)
        text = f"{low} or more" if self.high == LONG_MAX else f"{low} to {high}"
        if self.special is not None and self.special[0] != self.high:
            text += f", or {self.special[0]} for {self.special[1]}"
        return text

    def text(self, value: Value) -> str:
        """Write a value as Kafka does: plain numbers, choices with commas between them."""
        return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)

    def human(self, value: Value) -> str:
        """Write a value with its largest whole unit; what this writes, `read` accepts."""
        units = {Kind.SIZE: _SIZE_UNITS, Kind.DURATION: _DURATION_UNITS}.get(self.kind)
        if units is None or not isinstance(value, int) or value <= 0:
            return self.text(value)
        unit, factor = next((unit, factor) for unit, factor in units.items() if value % factor == 0)
        return f"{value // factor}{unit}"

    def meaning(self, value: Value) -> str:
        """Say what a number stands for when that is not obvious: its unit's form or its special name; or nothing."""
        if self.special is not None and value == self.special[0]:
            return self.special[1]
        text, human = self.text(value), self.human(value)
        return "" if human in (text, f"{text}B", f"{text}ms") else human

    def read(self, raw: object, source: str) -> Value:
        """Turn what a file, variable, flag or topic gave into a checked value, or refuse it with a SettingError."""
        try:
            value = self._parsed(raw)
        except (ValueError, OverflowError):
            problem = f"is not {_WRITTEN_AS[self.kind]}"
        else:
            found = self._problem(value)
            if found is None:
                return value
            problem = found
        raise SettingError(f"{self.name} = {shown(raw)} ({source}) {problem}; allowed: {self.allowed}")

    def _parsed(self, raw: object) -> Value:
        if isinstance(raw, bool):  # TOML's `true`: an int to Python, never one to a person
            raise ValueError
        match self.kind:
            case Kind.SIZE:
                return _whole_number(raw, _SIZE_UNITS | _SIZE_UNITS_READ_TOO)
            case Kind.DURATION:
                return _whole_number(raw, _DURATION_UNITS | _DURATION_UNITS_READ_TOO)
            case Kind.COUNT:
                return _whole_number(raw, {})
            case Kind.RATIO if isinstance(raw, int | float | str):
                return float(raw)
            case Kind.CHOICE if isinstance(raw, str):
                return raw.strip()
            case Kind.PATH if isinstance(raw, str):
                return raw
            case Kind.CHOICES:
                return _words(raw)
        raise ValueError

    def _problem(self, value: Value) -> str | None:
        if isinstance(value, frozenset):
            return None if value and value <= set(self.choices) else "has a word that is not in the list"
        if isinstance(value, str):
            if self.kind is Kind.CHOICE:
                return None if value in self.choices else "is not in the list"
            return None if value and "\0" not in value else "is not a path"
        if (self.special is not None and value == self.special[0]) or self.low <= value <= self.high:
            return None
        return "is too small" if value < self.low else "is too large" if value > self.high else "is not a number"


def _whole_number(raw: object, units: Mapping[str, int]) -> int:
    if isinstance(raw, int):
        return raw
    match = _NUMBER.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is None:
        raise ValueError
    number, unit = int(match["number"]), match["unit"]
    if not unit:
        return number
    factor = {name.lower(): factor for name, factor in units.items()}.get(unit.lower())
    if factor is None or number < 0:  # -1 stands for "unlimited"; "-1d" stands for nothing
        raise ValueError
    return number * factor


def _words(raw: object) -> frozenset[str]:
    words = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(words, list | tuple | set | frozenset):
        raise ValueError
    if not all(isinstance(word, str) for word in words):
        raise ValueError
    return frozenset(word.strip() for word in words)


def shown(raw: object) -> str:
    """Quote a refused value in a message: safe to print, and never longer than a line."""
    if isinstance(raw, int) and raw.bit_length() > 128:  # Python refuses to print numbers of many thousand digits
        return f"a number of {raw.bit_length()} bits"
    text = repr(raw)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "..."


_UNLIMITED = (-1, "unlimited")

_ROWS = (
    Setting(
        "segment.bytes", "topic", Kind.SIZE, GIB,
        "A segment file that reaches this size is closed and a new one begun; retention and compaction work on "
        "closed segments only.",
        low=KIB, high=INT_MAX,
    ),
    Setting(
        "segment.ms", "topic", Kind.DURATION, 7 * DAY_MS,
        "A segment of this age is closed even if it is not full, so that retention and compaction can reach its "
        "records.",
        low=1,
    ),
    Setting(
        "segment.index.bytes", "topic", Kind.SIZE, 10 * MIB,
        "A segment whose offset index reaches this size is closed.",
        low=4, high=INT_MAX,
    ),
    Setting(
        "index.interval.bytes", "topic", Kind.SIZE, 4 * KIB,
        "An index entry is written after this many bytes of records: fewer bytes make reads start nearer to their "
        "offset, and the index larger.",
        high=INT_MAX,
    ),
    Setting(
        "retention.bytes", "topic", Kind.SIZE, -1,
        "The oldest closed segments of a partition are deleted while what remains is still at least this large.",
        special=_UNLIMITED,
    ),
    Setting(
        "retention.ms", "topic", Kind.DURATION, 7 * DAY_MS,
        "A closed segment is deleted when its newest record is older than this.",
        special=_UNLIMITED,
    ),
    Setting(
        "cleanup.policy", "topic", Kind.CHOICES, frozenset({"delete"}),
        "What happens to old records: `delete` drops whole segments by age and size, `compact` keeps the last "
        "record of each key.",
        choices=("delete", "compact"),
    ),
    Setting(
        "delete.retention.ms", "topic", Kind.DURATION, DAY_MS,
        "A compacted topic keeps a deletion marker (a record without a value) at least this long, so that readers "
        "have time to see it.",
    ),
    Setting(
        "min.cleanable.dirty.ratio", "topic", Kind.RATIO, 0.5,
        "A partition is compacted when at least this share of its bytes has not been compacted yet.",
        low=0, high=1,
    ),
    Setting(
        "min.compaction.lag.ms", "topic", Kind.DURATION, 0,
        "A record younger than this is never compacted away.",
    ),
    Setting(
        "max.compaction.lag.ms", "topic", Kind.DURATION, LONG_MAX,
        "A record that has waited this long is compacted whatever the dirty ratio is.",
        low=1, special=(LONG_MAX, "unlimited"),
    ),
    Setting(
        "max.message.bytes", "topic", Kind.SIZE, MIB + 12,
        "A record batch larger than this, as it is sent and so after compression, is refused.",
        high=INT_MAX,
    ),
    Setting(
        "message.timestamp.type", "topic", Kind.CHOICE, "CreateTime",
        "Whose time a record carries: the producer's (`CreateTime`) or that of its arrival (`LogAppendTime`).",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "flush", "topic", Kind.CHOICE, "group",
        "When a record counts as written: after an fdatasync shared by all that arrived meanwhile (`group`), or at "
        "once, trusting the replicas (`replicated`) or the operating system (`os`).",
        choices=("group", "replicated", "os"),
    ),
    Setting(
        "min.insync.replicas", "topic", Kind.COUNT, 1,
        "A producer that asks for acks=all is refused while fewer replicas than this are in sync (read once there are "
        "replicas).",
        low=1, high=INT_MAX,
    ),
    Setting(
        "dir", "broker", Kind.PATH, "~/.odradek",
        "The data directory: one folder a partition.",
        environment_too=("ODRADEK_DATA",), flag="--data",
    ),
    Setting(
        "log.open.files.max", "broker", Kind.COUNT, 0,
        "Segment files held open at once, beyond which the least recently used one is closed; automatic is three "
        "quarters of what the process may open.",
        low=1, high=INT_MAX, special=(0, "automatic"),
    ),
    Setting(
        "log.index.cache.bytes", "broker", Kind.SIZE, 64 * MIB,
        "Memory for the indexes of segments that are being read.",
        low=64 * KIB, high=TIB,
    ),
    Setting(
        "log.flush.threads", "broker", Kind.COUNT, 4,
        "Threads that run fdatasync: as many partitions can be flushed at the same time (read once there is a broker).",
        low=1, high=256,
    ),
    Setting(
        "log.checkpoint.interval.ms", "broker", Kind.DURATION, 5 * SECOND_MS,
        "How often index entries and producers that are only in memory are written out, so that a start after a crash "
        "has less to read (read once there is a broker).",
        low=100, high=HOUR_MS,
    ),
    Setting(
        "log.cleaner.key.map.bytes", "broker", Kind.SIZE, 128 * MIB,
        "Memory in which compaction remembers the last offset of each key; with less of it a pass covers fewer "
        "records.",
        low=64 * KIB, high=TIB,
    ),
    Setting(
        "producer.id.expiration.ms", "broker", Kind.DURATION, DAY_MS,
        "A partition forgets an idempotent producer that has sent nothing for this long.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "producer.ids.max", "broker", Kind.COUNT, 10_000,
        "Idempotent producers that one partition remembers; beyond it the one that has been silent longest is "
        "forgotten.",
        low=1, high=INT_MAX,
    ),
)  # fmt: skip

SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in _ROWS})
