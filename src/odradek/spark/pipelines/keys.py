"""Checks one table of a pipeline: which keys it may have, which it must have, and what their values look like. Pure.

Values are converted on the way, so that the rest meets one form: texts are tuples, tables are dicts of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from odradek.model import topic_name_problem
from odradek.spark.pipelines.errors import Path, Problem, listed, nearest

Kind: TypeAlias = Literal[
    "text",  # a string that is not empty
    "texts",  # a string or a list of strings; given on as a tuple
    "topic",  # a text that a topic can be called
    "topics",  # texts that topics can be called
    "path",  # a text; relative to the folder of the pipeline's file, unless it has a scheme as in s3a://
    "duration",  # as Spark writes it: "10 seconds", "1 hour 30 minutes"
    "whole",  # a whole number that is not negative
    "number",  # a number above 0
    "flag",  # true or false
    "table",  # a table of texts, numbers and flags; given on as a dict of texts, as Spark's options are
    "partitions",  # { orders = [0, 1] }; given on as JSON, as Spark's option `assign` is
    "function",  # something that can be called; only from Python
]

_DURATION = re.compile(r"\s*(\d+(\.\d+)?\s*(microsecond|millisecond|second|minute|hour|day|week)s?\s*)+", re.IGNORECASE)
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", list: "an array"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """What may stand under one key."""

    kind: Kind
    summary: str  # one line for people
    required: bool = False
    default: object = None
    choices: tuple[str, ...] = ()
    example: str | None = None  # a value in TOML, shown where there is no default

    def checked(self, value: object) -> Any:
        """The value in its one form; a ValueError says what is wrong with it."""
        found = _READERS[self.kind](value)
        if self.choices:
            for choice in (found,) if isinstance(found, str) else found:
                if choice not in self.choices:
                    raise ValueError(
                        f"'{choice}' is not one of {', '.join(self.choices)}{nearest(choice, self.choices)}"
                    )
        return found


def check_table(
    path: Path, given: Mapping[str, object], allowed: Mapping[str, Parameter]
) -> tuple[dict[str, Any], list[Problem]]:
    """The values of a table by their names, defaults filled in, and all that is wrong with it."""
    problems = []
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in allowed:
            known = nearest(name, allowed) or f"; there are {listed(allowed)}"
            problems.append(Problem((*path, name), f"there is no such key{known}"))
            continue
        try:
            found[name] = allowed[name].checked(value)
        except ValueError as error:
            problems.append(Problem((*path, name), str(error)))
    for name, parameter in allowed.items():
        if name not in given:
            if parameter.required:
                problems.append(Problem(path, f"'{name}' is missing: {parameter.summary}"))
            else:
                found[name] = parameter.default
    return found, problems


def exactly_one(path: Path, given: Mapping[str, object], names: tuple[str, ...]) -> list[Problem]:
    """Complain unless exactly one of some keys is there."""
    present = [name for name in names if name in given]
    if len(present) == 1:
        return []
    choice = f"{', '.join(names[:-1])} or {names[-1]}"
    if not present:
        return [Problem(path, f"one of {choice} is missing")]
    return [Problem((*path, present[1]), f"only one of {choice} can be given, not {listed(present)}")]


def _a(value: object, article: str) -> ValueError:
    given = _NAMES.get(type(value), "a table" if isinstance(value, Mapping) else f"a {type(value).__name__}")
    return ValueError(f"this must be {article}, not {given}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _a(value, "a string")
    if not value.strip():
        raise ValueError("this must not be empty")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_text(value),)
    if not isinstance(value, list | tuple):
        raise _a(value, "a string or an array of strings")
    if not value:
        raise ValueError("this must not be empty")
    return tuple(_text(item) for item in value)


def _topic(value: object) -> str:
    name = _text(value)
    if (problem := topic_name_problem(name)) is not None:
        raise ValueError(problem)
    return name


def _topics(value: object) -> tuple[str, ...]:
    return tuple(_topic(name) for name in _texts(value))


def _path(value: object) -> str:
    return _text(value if isinstance(value, str) else getattr(value, "__fspath__", lambda: value)())


def _duration(value: object) -> str:
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError(f"{value!r} is not a duration as Spark writes it: '10 seconds', '1 hour 30 minutes'")
    return value.strip()


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _a(value, "a whole number")
    if value < 0:
        raise ValueError(f"{value} is negative")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _a(value, "a number")
    if not 0 < value < float("inf"):
        raise ValueError(f"{value} is not a number above 0")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _a(value, "true or false")
    return value


def _table(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _a(value, "a table")
    found: dict[str, str] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):  # spark.ui.port = 4040 without quotes is a table of tables
            found |= {f"{name}.{inner}": text for inner, text in _table(item).items()}
        elif isinstance(item, str | int | float):
            found[str(name)] = str(item).lower() if isinstance(item, bool) else str(item)
        else:
            raise ValueError(f"'{name}' must be a string, a number, true or false")
    return found


def _partitions(value: object) -> str:
    example = "write the partitions of each topic, as in { orders = [0, 1] }"
    if not isinstance(value, Mapping) or not value:
        raise ValueError(example)
    for name, indexes in value.items():
        _topic(name)
        if not isinstance(indexes, list | tuple) or not indexes:
            raise ValueError(example)
        if not all(isinstance(index, int) and not isinstance(index, bool) and index >= 0 for index in indexes):
            raise ValueError(f"the partitions of {name} are numbers from 0 on: {example}")
    return json.dumps({name: list(indexes) for name, indexes in value.items()})


def _function(value: object) -> Callable[..., Any]:
    if not callable(value):
        raise _a(value, "a function")
    return value


_READERS: Mapping[Kind, Callable[[object], Any]] = {
    "text": _text,
    "texts": _texts,
    "topic": _topic,
    "topics": _topics,
    "path": _path,
    "duration": _duration,
    "whole": _whole,
    "number": _number,
    "flag": _flag,
    "table": _table,
    "partitions": _partitions,
    "function": _function,
}
