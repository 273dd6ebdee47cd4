"""The nouns that every part of Odradek shares.

Names and numbers only: nothing here does I/O, and nothing here knows a protocol.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

Offset: TypeAlias = int

TOPIC_NAME_LENGTH_MAX = 249
PARTITION_MAX = 2**31 - 1
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})  # the broker's own
SINK_GROUPS = "odradek-sink-"  # how the groups begin in which Spark's sink keeps its state

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})")


class TopicPartition(NamedTuple):
    """One partition of one topic; its text form is the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """Say what is wrong with a topic's name by Kafka's rules, or None when nothing is."""
    if not name:
        return "a topic needs a name"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"a topic's name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}"
    if not _TOPIC_NAME.fullmatch(name):
        return f"a topic's name consists of letters, digits, '.', '_' and '-', not {name!r}"
    return None


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Read `orders-0` as partition 0 of `orders`; None for a directory that is no partition's."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or topic_name_problem(match["topic"]) is not None or int(match["partition"]) > PARTITION_MAX:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))
