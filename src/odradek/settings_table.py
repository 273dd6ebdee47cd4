"""The one table of settings: names, types, defaults, bounds and the sentence that explains each.

Nothing is loaded here: `odradek.config` reads files, the environment and flags against this table. Names, defaults
and bounds of topic settings are Kafka's, and so are those of broker settings that Kafka has; the rest is ours. The
rows themselves stand in `odradek.settings_rows`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

Value: TypeAlias = bool | int | float | str | frozenset[str]
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

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%a-z]+)\]|(?P<host>[^\s:\[\]/]*)):(?P<port>[0-9]{1,5})")
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
    BOOLEAN = "true or false"
    ADDRESS = "address"
    TEXT = "text"
    VOTERS = "voters"


_WRITTEN_AS = {
    Kind.SIZE: "a whole number of bytes, or one with a unit such as 64MiB",
    Kind.DURATION: "a whole number of milliseconds, or one with a unit such as 500ms or 7d",
    Kind.COUNT: "a whole number",
    Kind.RATIO: "a number such as 0.5",
    Kind.CHOICE: "a word",
    Kind.CHOICES: "words with commas between them",
    Kind.PATH: "a path",
    Kind.BOOLEAN: "true or false",
    Kind.ADDRESS: "an address such as 127.0.0.1:9092 or [::1]:9092",
    Kind.TEXT: "a word without spaces",
    Kind.VOTERS: "a list such as 1@10.0.0.1:8080,2@10.0.0.2:8080,3@10.0.0.3:8080, each number and address once",
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
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.kind is Kind.TEXT:
            return "any word"
        if self.kind is Kind.VOTERS:
            return "ID@HOST:HTTPPORT, several of these with commas between, or nothing"
        if self.kind is Kind.ADDRESS:
            return ", ".join(["HOST:PORT", *self.choices[:-1]]) + f" or {self.choices[-1]}"
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
        """Write a value as Kafka does: plain numbers, choices with commas between them, true and false."""
        if isinstance(value, bool):
            return "true" if value else "false"
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
        if self.kind is Kind.BOOLEAN:
            return _truth(raw)
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
            case Kind.CHOICE | Kind.ADDRESS | Kind.TEXT | Kind.VOTERS if isinstance(raw, str):
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
            if self.kind is Kind.ADDRESS:
                return None if value in self.choices or _is_address(value) else f"is not {_WRITTEN_AS[self.kind]}"
            if self.kind is Kind.TEXT:
                return (
                    None
                    if not value or (value.isprintable() and " " not in value)
                    else f"is not {_WRITTEN_AS[self.kind]}"
                )
            if self.kind is Kind.VOTERS:
                return None if split_voters(value) is not None else f"is not {_WRITTEN_AS[self.kind]}"
            return None if (value or not self.default) and "\0" not in value else "is not a path"
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


def _truth(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.strip().lower() in ("true", "false"):
        return raw.strip().lower() == "true"
    raise ValueError


def _is_address(text: str) -> bool:
    match = _ADDRESS.fullmatch(text)
    return match is not None and int(match["port"]) < 2**16


def split_address(text: str) -> tuple[str, int]:
    """Take an address that the table accepted apart; without a host it is every address of the machine."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an address")
    return match["ipv6"] or match["host"] or "0.0.0.0", int(match["port"])


def split_voters(text: str) -> dict[int, tuple[str, int]] | None:
    """Take a list of voters apart: broker ids with the addresses of their HTTP doors; None if it is not one."""
    voters: dict[int, tuple[str, int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        number, at, address = item.partition("@")
        if not at or not number.isascii() or not number.isdigit() or not _is_address(address):
            return None
        node, where = int(number), split_address(address)
        if node > INT_MAX or node in voters or where in voters.values() or not where[1]:
            return None
        voters[node] = where
    return voters


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
