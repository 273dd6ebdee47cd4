"""One reading of a channel's partition by time: what its log has, bucket by bucket, and before that what it had.

Messages of a bucket come in the order of their offsets, and buckets one after another. A bucket is over when a message
comes that is `grace_ms` younger than its end; what comes later still is given with the bucket of that moment. At the
end of the log nobody waits for that: messages of buckets that are not over are given, too, and it is remembered which,
so that whoever reads on gets each once. What the log has let go of comes from the store, in a thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from copy import copy
from itertools import groupby
from typing import NamedTuple

from odradek.broker.channel_log import read_piece
from odradek.broker.channel_stores import ChannelStores
from odradek.broker.topics import Partition
from odradek.model import Offset
from odradek.objects.errors import ObjectMissingError
from odradek.objects.keys import TIME_MAX, ObjectKey, parse_object_key, publisher_hash
from odradek.objects.reader import objects_between
from odradek.objects.slices import Message, read_object
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore
from odradek.records.header import NO_TIMESTAMP
from odradek.records.record import Header, Record

ANSWER_BYTES = 8 << 20  # beyond this no more messages are given; one that is larger is given alone
_READ_BYTES = 1 << 20
_AHEAD_MAX = 200_000  # messages that are remembered as given before their bucket was over


class StoredMessage(NamedTuple):
    """One message of a channel."""

    partition: int
    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Page:
    """What is given of a reading: so many messages behind those that are skipped, within a bound of bytes."""

    def __init__(self, skip: int, count: int, partition: int, size_max: int = ANSWER_BYTES) -> None:
        self.messages: list[StoredMessage] = []
        self._skip = skip
        self._count = count
        self._partition = partition
        self._size_bytes = 0
        self._size_max = size_max

    @property
    def is_full(self) -> bool:
        """Whether no more is wanted."""
        return not self._skip and (len(self.messages) >= self._count or self._size_bytes >= self._size_max)

    def take(self, message: Record | Message) -> None:
        """Skip or keep the next message."""
        if self._skip:
            self._skip -= 1
            return
        offset, timestamp, key, value, headers = message
        self.messages.append(StoredMessage(self._partition, offset, timestamp, key, value, headers))
        self._size_bytes += len(value or b"") + len(key or b"")


class Scan:
    """Where a reading stands. It is used by one reader at a time."""

    def __init__(self, partition: Partition, spec: ChannelSpec, url: str, start_ms: int) -> None:
        self.given = 0  # messages, from the beginning
        self._partition = partition
        self._spec = spec
        self._url = url
        self._start_ms = start_ms
        log_start = partition.log.log_start
        found = partition.log.offset_for_timestamp(start_ms)
        self._offset = partition.log.next_offset if found is None else found.offset
        self._bucket = self._bucket_of(start_ms)
        self._firsts: dict[int, Offset] = {}  # later buckets that were seen, and where they begin
        self._closed = self._offset  # of buckets before this one, all below was given
        self._ahead: set[Offset] = set()  # given before their bucket's turn
        self._begin = log_start
        self._older: Iterator[Message] | None = None
        self._older_end_ms = _end_before(partition, spec)
        self._has_older = log_start > 0

    def twin(self) -> Scan | None:
        """Another one that stands at the same place; None if that lies in the store, where only one can read on."""
        if self._has_older and self._older is not None:
            return None
        twin = copy(self)
        twin._firsts, twin._ahead = dict(self._firsts), set(self._ahead)
        return twin

    @property
    def is_void(self) -> bool:
        """Whether the log has let go of what is to be read next, or is another one."""
        places = (self._offset, *self._firsts.values())
        return self._partition.log.ended or min(places) < self._partition.log.log_start

    def _bucket_of(self, timestamp: int) -> int:
        return timestamp - timestamp % self._spec.window_ms

    async def read(self, page: Page, stores: ChannelStores) -> None:
        """Go on until the page is full or the log ends."""
        if self._has_older:
            await stores.run(self._url, lambda store: self._read_older(store, page))
        while not page.is_full and await self._pass(page):
            continue
        end = self._partition.high_watermark
        for bucket in sorted(self._firsts):
            if page.is_full or len(self._ahead) >= _AHEAD_MAX:
                return
            await self._look_ahead(bucket, end, page)

    # What the log has.

    async def _pass(self, page: Page) -> bool:
        """Give messages of the present bucket; True if it is over and the next one's turn has come."""
        partition, end = self._partition, self._partition.high_watermark
        over_ms = self._bucket + self._spec.window_ms + self._spec.grace_ms
        while self._offset < end and not page.is_full:
            piece = await read_piece(partition, self._offset, _READ_BYTES, end)
            for record in piece.records:
                if record.timestamp >= over_ms:
                    self._next_bucket(record)
                    return True
                if record.timestamp >= self._start_ms:
                    self._see(record, page)
                self._offset = record.offset + 1
                if page.is_full:
                    return False
            self._offset = max(self._offset, piece.next_offset if piece.size_bytes else end)
        return False

    def _see(self, record: Record, page: Page) -> None:
        bucket = self._bucket_of(record.timestamp)
        if bucket > self._bucket:
            self._firsts.setdefault(bucket, record.offset)
        elif record.offset in self._ahead:
            self._ahead.discard(record.offset)
        elif bucket == self._bucket or record.offset >= self._closed:
            self.given += 1
            page.take(record)

    def _next_bucket(self, closing: Record) -> None:
        self._firsts.setdefault(self._bucket_of(closing.timestamp), closing.offset)
        self._closed = max(self._closed, closing.offset)
        self._bucket = min(self._firsts)
        self._offset = self._firsts.pop(self._bucket)

    async def _look_ahead(self, bucket: int, end: Offset, page: Page) -> None:
        """Give messages of a bucket whose turn has not come, and remember them."""
        offset = self._firsts[bucket]
        while offset < end and not page.is_full:
            piece = await read_piece(self._partition, offset, _READ_BYTES, end)
            for record in piece.records:
                if self._bucket_of(record.timestamp) == bucket and record.offset not in self._ahead:
                    self._ahead.add(record.offset)
                    self.given += 1
                    page.take(record)
                    if page.is_full:
                        return
            offset = piece.next_offset if piece.size_bytes else end

    # What only the store has.

    def _read_older(self, store: ObjectStore, page: Page) -> None:
        """Give what lies before the log, in a thread."""
        if self._older is None:
            self._older = self._older_messages(store)
        while not page.is_full:
            message = next(self._older, None)
            if message is None:
                self._has_older = False
                return
            self.given += 1
            page.take(message)

    def _older_messages(self, store: ObjectStore) -> Iterator[Message]:
        topic_id = self._partition.topic_id.hex()
        publisher = publisher_hash(f"{topic_id}:{self._partition.index}")
        found = objects_between(store, self._spec, self._start_ms, self._older_end_ms)
        listed = (parse_object_key(info.key) for info in found)
        ours = (key for key in listed if key is not None and key.publisher == publisher and key.sequence < self._begin)
        for _, keys in groupby(ours, key=lambda key: key.bucket):
            for message in _by_sequence(store, sorted(keys, key=lambda key: key.sequence)):
                if message.sequence < self._begin and message.timestamp >= self._start_ms:
                    yield message


def _end_before(partition: Partition, spec: ChannelSpec) -> int:
    """A time that is later than all that the log has let go of; some of it may have come late."""
    newest = partition.log.segments[0].max_timestamp()
    return TIME_MAX if newest == NO_TIMESTAMP else newest + spec.window_ms + spec.grace_ms


def _by_sequence(store: ObjectStore, keys: list[ObjectKey]) -> Iterator[Message]:
    """The messages of objects, ascending; an object is only read when its first message may be the next."""
    waiting = deque(keys)
    heap: list[tuple[int, int, Message, Iterator[Message]]] = []
    while heap or waiting:
        while waiting and (not heap or waiting[0].sequence < heap[0][0]):
            try:
                messages = iter(read_object(store.get(str(waiting.popleft()))))
            except ObjectMissingError:
                continue  # retention was quicker
            first = next(messages)
            heapq.heappush(heap, (first.sequence, len(waiting), first, messages))
        if not heap:
            return
        _, order, message, rest = heap[0]
        yield message
        following = next(rest, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following.sequence, order, following, rest))
