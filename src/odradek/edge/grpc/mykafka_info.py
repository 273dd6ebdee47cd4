"""The text of MyKafka's BrokerInfo: written for people, and read by the broker that collects it from the others.

Topics by name, partitions by number, three settings and three offsets each, as the document (seed 001) shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from odradek.broker.mykafka import Description, Offsets
from odradek.model import TopicPartition

_UNKNOWN = "unknown"  # an offset that only a leader knows, which did not answer
_PARTITION_INDENT, _LINE_INDENT = " " * 8, " " * 12
_TOPIC = re.compile(r"Topic:(\S+)")
_PARTITION = re.compile(r" +partition (\d+):")
_LINE = re.compile(r" +(first_offset|next_offset|commit_offset): (-?\d+)")


def render(described: Iterable[Description], learnt: Mapping[TopicPartition, Offsets], bytes_max: int) -> str:
    """Write all partitions down; what does not fit is counted in the last line."""
    pieces: list[str] = []
    size_bytes, left_out, topic = 0, 0, ""
    for each in described:
        piece = "\n".join(_lines(each, each.offsets or learnt.get(each.place), is_new=each.place.topic != topic)) + "\n"
        if left_out or size_bytes + len(piece) > bytes_max:
            left_out += 1
            continue
        topic = each.place.topic
        pieces.append(piece)
        size_bytes += len(piece)
    if left_out:
        pieces.append(f"and {left_out} partitions more, for which a message has no room (max.grpc.message.bytes)\n")
    return "".join(pieces)


def _lines(each: Description, offsets: Offsets | None, *, is_new: bool) -> Iterator[str]:
    if is_new:
        yield f"Topic:{each.place.topic}"
    yield f"{_PARTITION_INDENT}partition {each.place.partition}:"
    shown: dict[str, object] = {
        "max_segment_size": each.limits.segment_bytes,
        "max_partition_size": each.limits.partition_bytes,
        "segment_ttl": each.limits.ttl_seconds,
        "first_offset": _UNKNOWN if offsets is None else offsets.first,
        "next_offset": _UNKNOWN if offsets is None else offsets.last + 1,
        "commit_offset": _UNKNOWN if offsets is None else offsets.commit,
    }
    for name, value in shown.items():
        yield f"{_LINE_INDENT}{name}: {value}"


def read_offsets(text: str) -> dict[TopicPartition, Offsets]:
    """The offsets that another broker's text tells."""
    found: dict[TopicPartition, Offsets] = {}
    topic, index, told = "", 0, dict[str, int]()
    for line in text.splitlines():
        if match := _TOPIC.fullmatch(line):
            topic = match[1]
        elif match := _PARTITION.fullmatch(line):
            index, told = int(match[1]), {}
        elif match := _LINE.fullmatch(line):
            told[match[1]] = int(match[2])
            if len(told) == 3:
                place = TopicPartition(topic, index)
                found[place] = Offsets(told["first_offset"], told["commit_offset"], told["next_offset"] - 1)
    return found
