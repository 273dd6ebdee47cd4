"""Archived segments of topics (tiered storage, after KIP-405): their keys, how they are put, listed and read.

A segment is four objects: `.log` has the batches as they stand in the partition's log, `.index` and `.timeindex` say
where to begin, `.state` tells about them and is put last: a segment without it does not count. What is in the archive
was committed, so that two copies of the same offsets are the same. The cluster's metadata say which segments belong to
a topic; whoever has no broker takes what the store lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.objects.archive_index import INTERVAL_BYTES, Indexed, OffsetIndex, make_indexes, offset_before_time
from odradek.objects.errors import ObjectExistsError, StoreError
from odradek.objects.stores import ObjectStore
from odradek.records.errors import RecordError
from odradek.records.header import HEADER_BYTES, BatchHeader, iter_headers, read_header
from odradek.records.parse import parse_batch

ARCHIVE = "!archive"
LOG, INDEX, TIME_INDEX, STATE = ".log", ".index", ".timeindex", ".state"
KINDS = (LOG, INDEX, TIME_INDEX, STATE)
BLOCK_BYTES = 8 << 20  # of one ranged read by those who read all

_NAME = re.compile(r"(?P<base>[0-9]{20})-(?P<end>[0-9]{20})(?P<kind>\.[a-z]+)")
_DECOMPRESSED_BYTES_MAX = 1 << 30
_SEARCH_BYTES = 8 * INTERVAL_BYTES  # of one ranged read by those who look for a time


class ArchivedSegment(NamedTuple):
    """One archived piece of a partition: all its records from `base_offset` up to `end_offset` (exclusive)."""

    topic: str
    topic_id: str  # in hexadecimal: a topic of the same name that was deleted had another
    partition: int
    base_offset: int
    end_offset: int
    size_bytes: int  # of the batches

    def key(self, kind: str) -> str:
        """The key of one of its objects."""
        return f"{partition_prefix(self.topic, self.topic_id, self.partition)}{self.name}{kind}"

    @property
    def keys(self) -> list[str]:
        """The keys of all its objects, the one that makes it count first."""
        return [self.key(kind) for kind in reversed(KINDS)]

    @property
    def name(self) -> str:
        """What its objects are called, without the kind."""
        return f"{self.base_offset:020d}-{self.end_offset:020d}"


class SegmentState(NamedTuple):
    """What is known of an archived segment without reading its batches."""

    first_timestamp: int  # of its first batch; -1: it has none
    max_timestamp: int  # of all its records; -1: none has one
    epochs: tuple[tuple[int, int], ...]  # leader epochs, and the first offset that each wrote


class Batches(NamedTuple):
    """What one read gave."""

    data: memoryview  # whole batches; the first holds the offset that was asked for, or is the next one
    next_offset: int  # behind the last batch
    next_position: int  # in the segment; its size at the end


class TimeFound(NamedTuple):
    """The first record at or after a time."""

    timestamp: int
    offset: int
    leader_epoch: int


# Where things are.


def topic_prefix(topic: str, topic_id: str | None = None) -> str:
    """The prefix of all archived objects of a topic; without an id, also of those of that name before it."""
    return f"{ARCHIVE}/{topic}/" if topic_id is None else f"{ARCHIVE}/{topic}/{topic_id}/"


def partition_prefix(topic: str, topic_id: str, partition: int) -> str:
    """The prefix of all archived objects of one partition."""
    return f"{ARCHIVE}/{topic}/{topic_id}/{partition}/"


def archived_topics(store: ObjectStore) -> list[str]:
    """The topics of which the store has something, by name."""
    return sorted(store.folders(f"{ARCHIVE}/"))


def archived_segments(store: ObjectStore, topic: str, topic_id: str | None = None) -> list[ArchivedSegment]:
    """The archived segments of a topic, by partition and offset, each offset in one of them; none if it has none.

    Without an id it is the topic of this name that was written to last. No broker is asked.
    """
    if topic_id is None:
        topic_id = _newest_id(store, topic)
        if topic_id is None:
            return []
    found: dict[tuple[int, int, int], dict[str, int]] = {}
    for info in store.list(topic_prefix(topic, topic_id)):
        place, _, name = info.key.removeprefix(topic_prefix(topic, topic_id)).partition("/")
        match = _NAME.fullmatch(name)
        if match is not None and place.isdecimal():
            found.setdefault((int(place), int(match["base"]), int(match["end"])), {})[match["kind"]] = info.size_bytes
    whole = [
        ArchivedSegment(topic, topic_id, *place, sizes[LOG])
        for place, sizes in sorted(found.items())
        if all(kind in sizes for kind in KINDS)
    ]
    return list(_without_repeats(whole))


def _newest_id(store: ObjectStore, topic: str) -> str | None:
    ids = store.folders(topic_prefix(topic))
    if len(ids) <= 1:
        return ids[0] if ids else None
    newest = {each: max(info.modified_ms for info in store.list(topic_prefix(topic, each))) for each in ids}
    return max(newest, key=lambda each: newest[each])


def _without_repeats(segments: Iterable[ArchivedSegment]) -> Iterator[ArchivedSegment]:
    """Leave out what others hold already: two leaders may have cut the same records differently."""
    partition, end, kept = -1, 0, None
    for segment in segments:
        if segment.partition != partition:
            if kept is not None:
                yield kept
            partition, end, kept = segment.partition, 0, None
        if kept is not None and segment.base_offset == kept.base_offset:
            kept = segment  # the later one of the same base reaches further
        elif segment.end_offset > end:
            if kept is not None:
                yield kept
            kept = segment
        end = max(end, segment.end_offset)
    if kept is not None:
        yield kept


# Writing.


def put_segment(
    store: ObjectStore, topic: str, topic_id: str, partition: int, base_offset: int, end_offset: int, data: bytes
) -> tuple[ArchivedSegment, Indexed]:
    """Put the batches of a segment with its indexes, and last its state. The same call again changes nothing."""
    segment = ArchivedSegment(topic, topic_id, partition, base_offset, end_offset, len(data))
    indexed = make_indexes(data, base_offset)
    _put(store, segment.key(LOG), data)
    _put(store, segment.key(INDEX), indexed.offset_index)
    _put(store, segment.key(TIME_INDEX), indexed.time_index)
    _put(store, segment.key(STATE), _state_bytes(segment, indexed))
    return segment, indexed


def _put(store: ObjectStore, key: str, data: bytes) -> None:
    """Put an object that is new; one that an earlier attempt left is replaced if it is not the same."""
    try:
        store.put(key, data, only_new=True)
    except ObjectExistsError:
        if store.get(key) != data:
            store.put(key, data)


def _state_bytes(segment: ArchivedSegment, indexed: Indexed) -> bytes:
    content = {
        "version": 1,
        **segment._asdict(),
        "first_timestamp": indexed.first_timestamp,
        "max_timestamp": indexed.max_timestamp,
        "epochs": [list(each) for each in indexed.epochs],
    }
    return json.dumps(content, indent=1).encode() + b"\n"


def delete_segments(store: ObjectStore, segments: Iterable[ArchivedSegment]) -> int:
    """Delete the objects of segments, the state first: what is left of an interrupted call does not count."""
    return sum(store.delete(segment.keys) for segment in segments)


def delete_archive(store: ObjectStore, topic: str, topic_id: str) -> int:
    """Delete all that is archived of a topic that is no more; say how many objects there were."""
    keys = [info.key for info in store.list(topic_prefix(topic, topic_id))]
    return store.delete(keys) if keys else 0


def stray_keys(
    store: ObjectStore, topic: str, topic_id: str, partition: int, known: Iterable[ArchivedSegment]
) -> list[tuple[int, str]]:
    """The keys of a partition that are of other segments, and the base of each: of uploads that were cut short."""
    names = {segment.name for segment in known}
    prefix = partition_prefix(topic, topic_id, partition)
    found = ((info.key, _NAME.fullmatch(info.key.removeprefix(prefix))) for info in store.list(prefix))
    return [(int(match["base"]), key) for key, match in found if match and match[0].partition(".")[0] not in names]


# Reading.


def read_state(store: ObjectStore, segment: ArchivedSegment) -> SegmentState:
    """What is known of a segment without reading its batches."""
    key = segment.key(STATE)
    try:
        content = json.loads(store.get(key))
        epochs = tuple((int(epoch), int(start)) for epoch, start in content["epochs"])
        return SegmentState(int(content["first_timestamp"]), int(content["max_timestamp"]), epochs)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{store.url}: the object {key} is no state of an archived segment: {error}") from error


def read_index(store: ObjectStore, segment: ArchivedSegment) -> OffsetIndex:
    """Where to begin to read a segment; worth keeping by those who read it piece by piece."""
    return OffsetIndex(store.get(segment.key(INDEX)), segment.base_offset)


def read_batches(
    store: ObjectStore, segment: ArchivedSegment, index: OffsetIndex, offset: int, max_bytes: int
) -> Batches:
    """Give whole batches from the one that holds `offset`, or the next one; at least one, however large.

    One ranged read, of little more than `max_bytes`; a second one for a batch that is larger. Empty data: the segment
    has none from there on.
    """
    return _read_from(store, segment, index.position_of(offset), offset, max_bytes)


def _read_from(store: ObjectStore, segment: ArchivedSegment, position: int, offset: int, max_bytes: int) -> Batches:
    while position < segment.size_bytes:
        data = _range(store, segment, position, max_bytes + INTERVAL_BYTES)
        start = end = 0
        next_offset = offset
        for at, header in _headers(store, segment, data):
            end = at + header.size_bytes
            if header.last_offset < offset:
                start = end
            elif end - start <= max_bytes or start == at:
                next_offset = header.next_offset
            else:
                end = at
                break
        if start < end:
            return Batches(memoryview(data)[start:end], next_offset, position + end)
        position += end
        if end == 0:  # not one whole batch: the first is larger than what was asked for
            max_bytes = max(max_bytes, _first_size(store, segment, position, data))
    return Batches(memoryview(b""), offset, segment.size_bytes)


def read_archived(
    store: ObjectStore, segment: ArchivedSegment, *, start: int | None = None, end: int | None = None
) -> Iterator[memoryview]:
    """Read a segment by ranged reads: pieces of whole batches, from the one that holds `start` up to `end`.

    The first and the last batch may have records outside of these offsets.
    """
    offset = segment.base_offset if start is None else max(start, segment.base_offset)
    stop = segment.end_offset if end is None else min(end, segment.end_offset)
    if offset >= stop:
        return
    position = read_index(store, segment).position_of(offset) if offset > segment.base_offset else 0
    while offset < stop:
        found = _read_from(store, segment, position, offset, BLOCK_BYTES)
        if not found.data:
            return
        wanted = found.data[: _size_before(found.data, stop)]
        if wanted:
            yield wanted
        offset, position = found.next_offset, found.next_position


def _size_before(data: memoryview, stop: int) -> int:
    size = 0
    for at, header in iter_headers(data):
        if header.base_offset >= stop:
            return at
        size = at + header.size_bytes
    return size


def find_time(
    store: ObjectStore, segment: ArchivedSegment, timestamp: int, from_offset: int, index: OffsetIndex | None = None
) -> TimeFound | None:
    """The first record of a segment at or after this time and this offset; None if there is none."""
    begin = offset_before_time(store.get(segment.key(TIME_INDEX)), segment.base_offset, timestamp)
    begin = max(begin, from_offset)
    position = (index or read_index(store, segment)).position_of(begin)
    while True:
        found = _read_from(store, segment, position, begin, _SEARCH_BYTES)
        if not found.data:
            return None
        for at, header in iter_headers(found.data):
            if header.max_timestamp >= timestamp:
                for record in parse_batch(found.data, at, size_max=_DECOMPRESSED_BYTES_MAX):
                    if record.timestamp >= timestamp and record.offset >= from_offset:
                        return TimeFound(record.timestamp, record.offset, header.leader_epoch)
        begin, position = found.next_offset, found.next_position


def _range(store: ObjectStore, segment: ArchivedSegment, position: int, length: int) -> bytes:
    length = min(length, segment.size_bytes - position)
    data = store.get_range(segment.key(LOG), position, length)
    if len(data) != length:
        raise _damaged(store, segment, f"it ends within the {length} bytes from {position} on")
    return data


def _headers(store: ObjectStore, segment: ArchivedSegment, data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    try:
        yield from iter_headers(data)
    except RecordError as error:
        raise _damaged(store, segment, str(error)) from error


def _first_size(store: ObjectStore, segment: ArchivedSegment, position: int, data: bytes) -> int:
    if len(data) < HEADER_BYTES:
        raise _damaged(store, segment, f"{len(data)} bytes behind its last batch are no batch")
    size = read_header(data).size_bytes
    if position + size > segment.size_bytes:
        raise _damaged(store, segment, f"the batch at byte {position} is cut off")
    return size


def _damaged(store: ObjectStore, segment: ArchivedSegment, problem: str) -> StoreError:
    return StoreError(f"{store.url}: the object {segment.key(LOG)} is damaged: {problem}")
