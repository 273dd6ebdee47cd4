"""What a store has of a channel, for the driver: its rules, its objects by time, and those by when they were stored.

Only keys and times are looked at, never an object itself. Nothing is asked of a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from odradek.objects import keys
from odradek.objects.channels import load_channel
from odradek.objects.errors import ChannelMissingError, ObjectMissingError
from odradek.objects.keys import ObjectKey, parse_object_key, publisher_hash
from odradek.objects.reader import objects_between
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectInfo, ObjectStore
from odradek.spark.errors import MissingTopicError
from odradek.spark.store.options import TimeRange
from odradek.spark.store.pieces import StoredObject, Unit
from odradek.spark.store.planning import OBJECT_COST_BYTES, grouped

PARTITIONS_MAX = 4096  # of a channel, as far as numbers are known for their publishers
CLOCKS_MS = 60_000  # the clocks of publishers and the store do not differ by more
NO_KEY = ObjectKey("", 0, 0, "", 0)


def load(store: ObjectStore, name: str) -> ChannelSpec:
    """The rules of a channel."""
    try:
        return load_channel(store, name)
    except ChannelMissingError as error:
        raise MissingTopicError(
            f"{error}. Look at the prefix in store and at the name in channel; an archived topic is named with topic"
        ) from None


def between(store: ObjectStore, spec: ChannelSpec, times: TimeRange) -> Iterator[ObjectInfo]:
    """The objects that can hold records of these times, by key; no others are listed."""
    # Records before 1970 and those without a time lie in the first slice, and those of the far future in the last.
    start_ms = min(max(0, times.start_ms), keys.TIME_MAX - 1)
    return objects_between(store, spec, start_ms, min(max(1, times.end_ms), keys.TIME_MAX))


class Publishers:
    """Numbers for the column `partition`."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._spec = spec
        self._numbers: dict[str, int] = {}

    def number(self, publisher: str) -> int:
        """The partition that an object comes from; for a writer without a broker a negative number of its own."""
        if not self._numbers:
            self._numbers = {publisher_hash(f"{self._spec.id}:{number}"): number for number in range(PARTITIONS_MAX)}
        return self._numbers.get(publisher, -1 - (int(publisher, 16) >> 33))


def units_of(spec: ChannelSpec, infos: Iterable[ObjectInfo]) -> list[Unit]:
    """Objects by slice and publisher, in the order of their keys."""
    publishers = Publishers(spec)
    found = [(key, info) for info in sorted(infos) if (key := parse_object_key(info.key)) is not None]
    return [
        Unit(publishers.number(publisher), tuple(StoredObject(info.key, info.size_bytes) for _, info in together))
        for (_, publisher), together in groupby(found, key=lambda pair: (pair[0].start_ms, pair[0].publisher))
    ]


def tasks_of(units: Sequence[Unit], *, bytes_max: int, at_least: int | None) -> list[list[Unit]]:
    """What each task reads: neighbours in time."""
    return grouped(
        units,
        lambda unit: unit.size_bytes + OBJECT_COST_BYTES * len(unit.objects),
        bytes_max=bytes_max,
        at_least=at_least,
    )


class Arrivals:
    """The objects of a channel by the time at which the store took them, which never changes.

    They are looked for in the slices that were open then, and a little before; one that came later has a mark among
    the late ones, written before it.
    """

    def __init__(self, store: ObjectStore, spec: ChannelSpec) -> None:
        self._store = store
        self._spec = spec
        self._late: dict[str, ObjectInfo] = {}  # by mark, so that no mark is read twice

    def first_slice_ms(self, low_ms: int) -> int:
        """Where to look for what was stored from a time on, but for what has a mark."""
        return low_ms - self._spec.grace_ms - CLOCKS_MS

    def near(self, low_ms: int, high_ms: int) -> dict[str, ObjectInfo]:
        """All objects stored in [low, high), by key, and some that were stored before or after it."""
        times = TimeRange(self.first_slice_ms(low_ms), keys.TIME_MAX)
        found = {info.key: info for info in between(self._store, self._spec, times)}
        return found | {info.key: info for info in self._marked(low_ms - CLOCKS_MS, high_ms + CLOCKS_MS)}

    def has_changed_since(self, time_ms: int) -> bool:
        """Whether a publisher has noted since then how far it has come."""
        prefix = f"{self._spec.name}/{keys.FRONTIER}/"
        return any(info.modified_ms > time_ms for info in self._store.list(prefix))

    def _marked(self, low_ms: int, high_ms: int) -> Iterable[ObjectInfo]:
        """The objects with marks of [low, high), as far as they are there yet."""
        name = self._spec.name
        marks = []
        for info in self._store.list(keys.late_prefix(name), after=keys.before_late(name, low_ms)):
            put_ms = keys.late_put_ms(info.key)
            if put_ms is not None and put_ms >= high_ms:
                break
            if put_ms is not None:
                marks.append(info.key)
        self._late = {mark: self._late[mark] for mark in marks if mark in self._late}
        wanted: dict[ObjectKey, list[str]] = {}  # an upload that was tried twice may have two marks
        for mark in marks:
            if mark not in self._late and (marked := self._object_of(mark)) is not None:
                wanted.setdefault(marked, []).append(mark)
        for bucket in sorted({marked.bucket for marked in wanted}):
            for info in self._store.list(keys.bucket_prefix(name, bucket)):
                for mark in wanted.get(parse_object_key(info.key) or NO_KEY, ()):
                    self._late[mark] = info
        return self._late.values()

    def _object_of(self, mark: str) -> ObjectKey | None:
        try:
            return parse_object_key(self._store.get(mark).decode("utf-8", "replace"))
        except ObjectMissingError:
            return None
