"""The values of options: numbers, durations, truth values, and the JSON of partitions, offsets and times.

Every error names the option, the value and what would be right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from odradek.model import PARTITION_MAX, TopicPartition, topic_name_problem
from odradek.spark.errors import OptionError

_UNITS_MS = {"us": 1e-3, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(?P<number>\d+)\s*(?P<unit>[a-z]*)")


def parse_bool(name: str, text: str) -> bool:
    """Read true or false, in any case."""
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return value == "true"


def parse_int(name: str, text: str, *, least: int = 1) -> int:
    """Read a whole number that is not too small."""
    value = text.strip()
    if not re.fullmatch(r"-?[0-9]{1,18}", value) or int(value) < least:
        kind = "a positive whole number" if least == 1 else f"a whole number of at least {least}"
        raise OptionError(f"{name} is {kind}, not {text!r}")
    return int(value)


def parse_duration_ms(name: str, text: str) -> int:
    """Read 15m, 90s, 500ms; a number without a unit is of milliseconds, as Spark has it."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = (match["unit"] or "ms") if match else ""
    if match is None or unit not in _UNITS_MS:
        raise OptionError(f"{name} is a time such as 500ms, 90s, 15m or 2h, not {text!r}")
    return int(int(match["number"]) * _UNITS_MS[unit])


def parse_partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Read {"topic": [0, 1]}."""
    right = '{"topicA": [0, 1], "topicB": [2, 4]}'
    document = _parse_object(name, text, right)
    found: list[TopicPartition] = []
    for topic, partitions in document.items():
        check_topic(name, topic)
        if not isinstance(partitions, list) or not all(_is_partition(item) for item in partitions):
            raise OptionError(f"{name} has for topic {topic} {json.dumps(partitions)}: it has to look like {right}")
        found += [TopicPartition(topic, item) for item in partitions]
    if not found:
        raise OptionError(f"{name} names no partition: {text!r}; it has to look like {right}")
    return tuple(sorted(set(found)))


def parse_by_partition(name: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    """Read {"topic": {"0": 17}}: offsets (least: -2) or times in milliseconds (least: 0)."""
    right = '{"topicA": {"0": 23, "1": -1}}' if least < 0 else '{"topicA": {"0": 1700000000000}}'
    document = _parse_object(name, text, right)
    found: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        check_topic(name, topic)
        if not isinstance(partitions, dict):
            raise OptionError(f"{name} has for topic {topic} {json.dumps(partitions)}: it has to look like {right}")
        for key, value in partitions.items():
            if not (key.isascii() and key.isdigit() and int(key) <= PARTITION_MAX):
                raise OptionError(
                    f"{name} has the partition {key!r} of topic {topic}: partitions are numbers from 0 on"
                )
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                meaning = "an offset, -1 (latest) or -2 (earliest)" if least < 0 else "a time in milliseconds"
                raise OptionError(f"{name} has {json.dumps(value)} for {topic}-{key}: it has to be {meaning}")
            found[TopicPartition(topic, int(key))] = value
    return found


def check_topic(name: str, topic: str) -> None:
    """Refuse a name that no topic can have."""
    if (problem := topic_name_problem(topic)) is not None:
        raise OptionError(f"{name}: {problem}")


def _parse_object(name: str, text: str, right: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(
            f"{name} is not JSON (column {error.colno}: {error.msg}): {text!r}; it has to look like {right}"
        ) from None
    if not isinstance(document, dict):
        raise OptionError(f"{name} has to look like {right}, not {text!r}")
    return document


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PARTITION_MAX
