"""Reads a channel straight from its store: no broker is needed, and none is asked.

    reader = ChannelReader(open_store("s3://bucket"), "orders", start=1_700_000_000_000)
    for message in reader.follow(): ...

A reader lists the slices from its position on and reads each object that it has not seen. Since an object may come
after its slice has ended, it looks back for the channel's grace; what comes even later has a mark in `!late`, which it
looks at now and then. In a `fifo` channel it gives out each publisher's records in the order of their sequences.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from odradek.clock import Clock, SystemClock
from odradek.objects import keys
from odradek.objects.channels import load_channel
from odradek.objects.errors import DamagedObjectError, ObjectMissingError
from odradek.objects.fetching import fetch_all
from odradek.objects.late import LateMarks
from odradek.objects.ordered import InOrder
from odradek.objects.slices import Message, read_object
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectInfo, ObjectStore
from odradek.records.record import Header

POLL_OBJECTS_MAX = 1_000  # of one poll; the next one goes on
POLL_BYTES_MAX = 64 * 1024 * 1024  # of the objects as they are stored
_BATCH_OBJECTS = 32  # read at once by `iterate`
_BATCH_BYTES = 16 * 1024 * 1024


class ReadMessage(NamedTuple):
    """A record as a channel's reader gives it out."""

    publisher: str
    sequence: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    object_key: str


class Position(NamedTuple):
    """Where to read on: a bucket, and a slice in it. Its text form is `bucket/slice`."""

    bucket: int
    slice: int

    @property
    def time_ms(self) -> int:
        """When the slice begins."""
        return self.bucket + self.slice

    def __str__(self) -> str:
        return f"{self.bucket}/{self.slice}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read the text form."""
        bucket, _, slice_ = text.partition("/")
        if not (bucket.isascii() and bucket.isdigit() and slice_.isascii() and slice_.isdigit()):
            raise ValueError(f"a position has the form bucket/slice, two numbers; this is {text!r}")
        return cls(int(bucket), int(slice_))


class ChannelReader:
    """Reads one channel from a time, from a stored position, or from now on. For one thread."""

    def __init__(
        self,
        store: ObjectStore,
        channel: str,
        *,
        start: int | Position | None = None,
        end_ms: int | None = None,
        clock: Clock | None = None,
        poll_ms: int = 500,
    ) -> None:
        """`start` in milliseconds since 1970: records of that time or later, before `end_ms` if that is given."""
        self.poll_ms = poll_ms
        self.spec = load_channel(store, channel)
        self._store = store
        self._clock = clock or SystemClock()
        self._end_ms = end_ms
        if isinstance(start, Position):
            self._start_ms = None  # whatever comes, however old it is: a position skips nothing
            self._position_ms = start.time_ms
            self._floor_ms = max(start.time_ms - self.spec.grace_ms, 0)
        else:
            self._start_ms = self._clock.now_ms() if start is None else start
            self._position_ms = self._floor_ms = keys.slice_start(self.spec, self._start_ms)
        self._is_behind = False  # the last poll had too much to read all of it
        self._left_ms = keys.TIME_MAX  # when the oldest mark was made whose object did not fit into the last poll
        self._seen: dict[str, int] = {}  # key -> when it was read, for as long as it may come again
        self._late = LateMarks(store, self.spec, self._position_ms)
        self._ordered = InOrder(self.spec.grace_ms) if self.spec.fifo else None

    @property
    def position(self) -> Position:
        """Where one who stores it can read on: after what the last `poll` returned, or a little before."""
        return Position(*keys.place(self.spec, min(self._position_ms, self._left_ms)))

    def poll(self) -> list[ReadMessage]:
        """What is new: each record once, in the order of the slices. Asks the store at once, and waits for nothing.

        At most POLL_OBJECTS_MAX objects come at once. After an error the next poll goes on where this one was.
        """
        now_ms = self._clock.now_ms()
        # A clock that was ahead has taken the position with it: what came since lies before that.
        self._position_ms = min(self._position_ms, max(keys.slice_start(self.spec, now_ms), self._floor_ms))
        from_ms = max(self._position_ms - self.spec.grace_ms - self.spec.slice_ms, self._floor_ms)
        fresh, position_ms = self._scan(from_ms, now_ms)
        self._is_behind = position_ms < keys.slice_start(self.spec, now_ms)
        missed = [key for key in self._late.due(now_ms) if self._is_missed(key, from_ms)]
        if self._ordered is not None and self._ordered.may_lack_one_before(fresh):
            missed = [key for key in self._late.look(now_ms) if self._is_missed(key, from_ms)]
        left = missed[POLL_OBJECTS_MAX:]
        self._left_ms = min(map(self._late.made_ms, left), default=keys.TIME_MAX)
        if left:
            del missed[POLL_OBJECTS_MAX:]
            self._late.hurry()
        wanted = sorted({*fresh, *missed})
        # From here on nothing fails but the reading itself, and what was read counts only when all of it was.
        found = dict(zip(wanted, self._fetch(wanted), strict=True))
        for key, messages in found.items():
            if messages is not None:
                self._seen[key] = now_ms
                self._late.done(key)
        self._position_ms = max(self._position_ms, position_ms)
        self._forget(from_ms, now_ms)
        objects = [(key, messages) for key, messages in found.items() if messages is not None]
        if self._ordered is not None:
            objects = self._ordered.release(objects, now_ms)
            self._position_ms = min(self._position_ms, self._ordered.oldest_ms(self._position_ms))
        return [message for key, messages in objects for message in self._of_interest(key, messages)]

    def iterate(self) -> Iterator[ReadMessage]:
        """All that is in the store now, from the start to the end; only slices between them are touched."""
        start_ms = self._floor_ms if self._start_ms is None else self._start_ms
        batch: list[str] = []
        size = 0
        for info in objects_between(self._store, self.spec, start_ms, self._end_ms):
            batch.append(info.key)
            size += info.size_bytes
            if len(batch) >= _BATCH_OBJECTS or size >= _BATCH_BYTES:
                yield from self._read(batch)
                batch, size = [], 0
        yield from self._read(batch)

    def follow(self, stop: threading.Event | None = None) -> Iterator[ReadMessage]:
        """All that comes, until `stop` is set; asks every poll_ms, and at once only while a poll leaves some behind."""
        stopped = stop or threading.Event()
        while not stopped.is_set():
            yield from self.poll()
            if not self._is_behind:
                stopped.wait(self.poll_ms / 1_000)

    def _scan(self, from_ms: int, now_ms: int) -> tuple[list[str], int]:
        """The objects that were not seen yet, and the position behind them."""
        fresh: list[str] = []
        size = 0
        for info in objects_between(self._store, self.spec, from_ms, self._end_ms):
            if info.key in self._seen:
                continue
            if len(fresh) >= POLL_OBJECTS_MAX or size >= POLL_BYTES_MAX:
                return fresh, keys.start_of(info.key)
            fresh.append(info.key)
            size += info.size_bytes
        return fresh, keys.slice_start(self.spec, now_ms)

    def _is_missed(self, key: str, from_ms: int) -> bool:
        """Whether a late object lies where the scan has passed; one that is still before it is found there."""
        start_ms = keys.start_of(key)
        if key in self._seen or (self._start_ms is not None and start_ms + self.spec.slice_ms <= self._start_ms):
            self._late.done(key)
            return False
        return start_ms < from_ms

    def _forget(self, from_ms: int, now_ms: int) -> None:
        """Drop the keys that no listing and no mark will show again."""
        lasting_ms = 3 * self.spec.grace_ms + keys.MARK_SLACK_MS
        gone = [
            key for key, seen_ms in self._seen.items() if seen_ms + lasting_ms < now_ms and keys.start_of(key) < from_ms
        ]
        for key in gone:
            del self._seen[key]

    def _fetch(self, wanted: list[str]) -> list[list[Message] | None]:
        """The messages of objects; None for one that is not there (yet, or no longer)."""
        return fetch_all(self._get, wanted)

    def _get(self, key: str) -> list[Message] | None:
        try:
            return read_object(self._store.get(key))
        except ObjectMissingError:
            return None
        except DamagedObjectError as error:
            raise DamagedObjectError(f"{self._store.url}: {key}: {error}") from None

    def _read(self, batch: list[str]) -> Iterator[ReadMessage]:
        for key, messages in zip(batch, self._fetch(batch), strict=True):
            yield from self._of_interest(key, messages or [])

    def _of_interest(self, key: str, messages: Iterable[Message]) -> Iterator[ReadMessage]:
        parsed = keys.parse_object_key(key)
        publisher = "" if parsed is None else parsed.publisher
        for message in messages:
            sequence, timestamp, record_key, value, headers = message
            if self._start_ms is not None and timestamp < self._start_ms:
                continue
            if self._end_ms is not None and timestamp >= self._end_ms:
                continue
            yield ReadMessage(publisher, sequence, timestamp, record_key, value, headers, key)


def objects_between(
    store: ObjectStore, spec: ChannelSpec, start_ms: int, end_ms: int | None = None
) -> Iterator[ObjectInfo]:
    """The objects whose slices overlap a range of time, its end exclusive; no others are listed but by the page."""
    if end_ms is not None and end_ms <= start_ms:
        return
    prefix = keys.channel_prefix(spec.name)
    bucket = keys.place(spec, start_ms)[0]
    if end_ms is not None and keys.place(spec, end_ms - 1)[0] == bucket:
        prefix = keys.bucket_prefix(spec.name, bucket)
    for info in store.list(prefix, after=keys.before_slice(spec, start_ms)):
        parsed = keys.parse_object_key(info.key)
        if parsed is None:
            continue
        if end_ms is not None and parsed.start_ms >= end_ms:
            return
        yield info


def expire_channel(store: ObjectStore, spec: ChannelSpec, now_ms: int) -> int:
    """Delete whole buckets that are older than the channel's retention, and say how many objects that were.

    What competing readers wrote about them goes, too, and the marks of late objects of that time.
    """
    if spec.retention_ms < 0:
        return 0
    oldest_ms = now_ms - spec.retention_ms
    bucket = keys.place(spec, oldest_ms)[0]  # the first one that stays, since its end is not that old
    if bucket <= 0:
        return 0
    count = store.delete(_before(store, keys.channel_prefix(spec.name), bucket, after="0"))
    marks = (info.key for info in _until(store, keys.late_prefix(spec.name), keys.before_late(spec.name, oldest_ms)))
    leases = chain.from_iterable(
        _before(store, keys.queue_prefix(spec.name, group), bucket, after="0")  # where the group is stays
        for group in store.folders(f"{spec.name}/{keys.QUEUE}/")
    )
    store.delete(chain(marks, leases))
    return count


def _before(store: ObjectStore, prefix: str, bucket: int, after: str = "") -> Iterator[str]:
    """The keys below a prefix in buckets before this one."""
    for info in _until(store, prefix, f"{prefix}{bucket:015d}", after=prefix + after if after else None):
        yield info.key


def _until(store: ObjectStore, prefix: str, end: str, after: str | None = None) -> Iterator[ObjectInfo]:
    for info in store.list(prefix, after=after):
        if info.key >= end:
            return
        yield info
