"""Channels for tests: records go into a store as a broker's uploader brings them, at hours that a test chooses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odradek.clock import ManualClock
from odradek.objects.channels import create_channel
from odradek.objects.keys import publisher_hash
from odradek.objects.putting import Frontier
from odradek.objects.slices import Message
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore, open_store
from odradek.records.record import Header, NewRecord
from odradek.spark.options import Mode
from odradek.spark.store.options import StoreOptions

NOON_MS = 1_777_896_000_000  # 2026-05-04 12:00 UTC
CHANNEL_ID = "c0ffee" * 5


class Channel:
    """A channel with a clock of its own; offsets by partition begin with 0."""

    def __init__(self, url: str, name: str = "orders", *, store: ObjectStore | None = None, **rules: Any) -> None:
        self.url = url
        self.clock = ManualClock(NOON_MS)
        self.now_ms: Callable[[], int] = self.clock.now_ms  # as the publishers see it
        self.store = open_store(url) if store is None else store
        self.spec = ChannelSpec(name, **{"id": CHANNEL_ID, **rules})
        self.rows: list[tuple[object, ...]] = []  # all that was put, as Spark is to have it
        create_channel(self.store, self.spec)
        self._frontiers: dict[str, Frontier] = {}

    def put(self, records: Sequence[NewRecord], partition: int = 0, *, publisher: str | None = None) -> list[str]:
        """Upload records; return the keys of the objects that are new."""
        before = set(self.keys())
        identity = f"{self.spec.id}:{partition}" if publisher is None else publisher
        frontier = self._frontiers.get(identity)
        if frontier is None:
            frontier = Frontier(self.store, self.spec, publisher_hash(identity), self._now)
            self._frontiers[identity] = frontier
        first = frontier.next
        frontier.put(
            [
                Message(first + number, record.timestamp, record.key, record.value, record.headers)
                for number, record in enumerate(records)
            ]
        )
        self.rows += [row(record, self.spec.name, partition, first + number) for number, record in enumerate(records)]
        return sorted(set(self.keys()) - before)

    def _now(self) -> int:
        return self.now_ms()

    def put_at(self, *seconds: float, partition: int = 0) -> list[str]:
        """Upload a small record for each of these seconds after noon."""
        times = [NOON_MS + int(second * 1000) for second in seconds]
        return self.put([NewRecord(f"at {time}".encode(), timestamp=time) for time in times], partition)

    def save(self) -> None:
        """Write down how far all publishers have come."""
        for frontier in self._frontiers.values():
            frontier.save()

    def keys(self) -> list[str]:
        """The keys of all objects of slices."""
        return [info.key for info in self.store.list(self.spec.name, after=f"{self.spec.name}/0")]

    def stored_at(self, second: float, keys: Iterable[str]) -> None:
        """Let the store, a directory, have taken objects at this second after noon."""
        for key in keys:
            at = NOON_MS / 1000 + second
            os.utime(Path(self.url.removeprefix("file://")) / key, (at, at))

    def options(self, mode: Mode = Mode.BATCH, **options: str) -> StoreOptions:
        """The options of a read of this channel."""
        given = {"store": self.url, "channel": self.spec.name}
        return StoreOptions.parse({**given, **{name.lower(): value for name, value in options.items()}}, mode)


def row(record: NewRecord, topic: str, partition: int, offset: int) -> tuple[object, ...]:
    """A record as a row, with the types that Spark's Kafka source has."""
    moment = datetime.fromtimestamp(record.timestamp / 1000, UTC).replace(tzinfo=None)
    headers = [(header.key, header.value) for header in record.headers] or None
    return record.key, record.value, topic, partition, offset, moment, 0, headers


def samples(start_ms: int = NOON_MS, step_ms: int = 1) -> list[NewRecord]:
    """Records of all kinds."""
    plain = [
        (b"value", b"key", ()),
        (None, b"tombstone", ()),
        (b"no key", None, ()),
        (b"", b"", ()),
        (bytes(range(256)) * 40, "schlüssel".encode(), ()),
        (b"h", b"k", (Header("a", b"1"), Header("a", None), Header("", b""))),
    ]
    return [
        NewRecord(value, key, start_ms + number * step_ms, headers)
        for number, (value, key, headers) in enumerate(plain)
    ]
