"""Looks at all objects of a channel and says what is wrong: damage, records in the wrong slice, doubles and gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from odradek.objects.errors import DamagedObjectError, ObjectMissingError
from odradek.objects.keys import ObjectKey, channel_prefix, parse_object_key, slice_start
from odradek.objects.slices import Message, read_object
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore


@dataclass(slots=True)
class Publisher:
    """What one publisher has put, as runs of sequences without a gap."""

    runs: list[list[int]] = field(default_factory=list)  # first and last of each, ascending

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last of what is missing between the first and the last run."""
        return [(left[1] + 1, right[0] - 1) for left, right in pairwise(self.runs)]


@dataclass(slots=True)
class Verified:
    """What was found."""

    object_count: int = 0
    message_count: int = 0
    size_bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    publishers: dict[str, Publisher] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def verify_channel(store: ObjectStore, spec: ChannelSpec, progress: Callable[[int], None]) -> Verified:
    """Read every object; `progress` hears the size of each."""
    found = Verified()
    sequences: dict[str, list[int]] = {}
    prefix = channel_prefix(spec.name)
    for info in store.list(prefix):
        if info.key.startswith(f"{prefix}!"):  # what is no slice: the spec, checkpoints, leases
            continue
        key = parse_object_key(info.key)
        if key is None:
            found.problems.append(f"{info.key}: this is no name of an object of a channel")
            continue
        try:
            messages = read_object(store.get(info.key))
        except DamagedObjectError as error:
            found.problems.append(f"{info.key}: {error}")
            continue
        except ObjectMissingError:  # retention was faster
            continue
        progress(info.size_bytes)
        found.object_count += 1
        found.message_count += len(messages)
        found.size_bytes += info.size_bytes
        times = [message.timestamp for message in messages]
        found.first_ms = min(times) if found.first_ms is None else min(found.first_ms, *times)
        found.last_ms = max(times) if found.last_ms is None else max(found.last_ms, *times)
        found.problems += _misplaced(spec, info.key, key, messages)
        sequences.setdefault(key.publisher, []).extend(message.sequence for message in messages)
    for publisher, numbers in sequences.items():
        found.publishers[publisher] = Publisher(_runs(numbers))
        found.problems += [f"publisher {publisher} has sequence {number} twice" for number in _doubles(numbers)]
    return found


def _misplaced(spec: ChannelSpec, name: str, key: ObjectKey, messages: list[Message]) -> Iterator[str]:
    if messages[0].sequence != key.sequence:
        yield f"{name}: it begins with sequence {messages[0].sequence}"
    for before, message in pairwise(messages):
        if message.sequence <= before.sequence:
            yield f"{name}: sequence {message.sequence} comes behind {before.sequence}"
    for message in messages:
        if slice_start(spec, message.timestamp) != key.start_ms:
            yield f"{name}: the record {message.sequence} of {message.timestamp} does not belong into this slice"


def _runs(numbers: list[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _doubles(numbers: list[int]) -> list[int]:
    ordered = sorted(numbers)
    return sorted({number for number, following in pairwise(ordered) if number == following})
