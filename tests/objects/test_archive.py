"""Archived segments in a store: what is put is found and read again, by offset, by time, and piece by piece."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from odradek.objects import archive
from odradek.objects.archive import ArchivedSegment
from odradek.objects.archive_index import INTERVAL_BYTES, OffsetIndex, make_indexes, offset_before_time
from odradek.objects.errors import ObjectMissingError, StoreError
from odradek.objects.stores import ObjectStore, open_store
from odradek.records.build import build_batch
from odradek.records.errors import CorruptBatchError
from odradek.records.header import iter_headers, stamp_offset
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord

TOPIC, ID = "orders", "0f" * 16
START_MS = 1_700_000_000_000
_names = itertools.count()


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return open_store(f"memory://archive-{next(_names)}" if request.param == "memory" else tmp_path.as_uri())


def batches(sizes: list[int], base: int = 0, *, records: int = 3, epoch: int = 0) -> bytes:
    """Batches of `records` records each, a millisecond apart, with values of these sizes."""
    data = bytearray()
    for size in sizes:
        made = build_batch([NewRecord(bytes(size), timestamp=START_MS + base + each) for each in range(records)])
        stamp_offset(made, base, epoch)
        data += made
        base += records
    return bytes(data)


def put(
    store: ObjectStore, data: bytes, base: int, end: int, partition: int = 0, topic_id: str = ID
) -> ArchivedSegment:
    segment, _ = archive.put_segment(store, TOPIC, topic_id, partition, base, end, data)
    return segment


def offsets(data: memoryview | bytes) -> list[int]:
    return [record.offset for at, _ in iter_headers(data) for record in parse_batch(data, at)]


def test_a_segment_is_four_objects_under_its_own_prefix(store: ObjectStore) -> None:
    data = batches([100] * 4)
    segment = put(store, data, 0, 12)
    names = [info.key for info in store.list("")]
    prefix = f"!archive/{TOPIC}/{ID}/0/{0:020d}-{12:020d}"
    assert names == [f"{prefix}.index", f"{prefix}.log", f"{prefix}.state", f"{prefix}.timeindex"]
    assert store.get(segment.key(archive.LOG)) == data
    assert archive.archived_segments(store, TOPIC) == [segment]
    assert archive.archived_topics(store) == [TOPIC]
    state = archive.read_state(store, segment)
    assert state == (START_MS, START_MS + 11, ((0, 0),))


def test_nothing_is_listed_of_a_topic_that_has_nothing(store: ObjectStore) -> None:
    assert archive.archived_segments(store, TOPIC) == []
    assert archive.archived_topics(store) == []


def test_putting_again_changes_nothing_and_repairs_what_is_not_the_same(store: ObjectStore) -> None:
    data = batches([100] * 4)
    segment = put(store, data, 0, 12)
    before = {info.key: store.get(info.key) for info in store.list("")}
    put(store, data, 0, 12)
    assert {info.key: store.get(info.key) for info in store.list("")} == before
    store.put(segment.key(archive.LOG), data[:-1])
    put(store, data, 0, 12)
    assert store.get(segment.key(archive.LOG)) == data


@pytest.mark.parametrize("missing", archive.KINDS)
def test_a_segment_that_is_not_whole_is_not_listed(store: ObjectStore, missing: str) -> None:
    segment = put(store, batches([10]), 0, 3)
    whole = put(store, batches([10], 3), 3, 6)
    store.delete([segment.key(missing)])
    assert archive.archived_segments(store, TOPIC) == [whole]


def test_what_two_leaders_cut_differently_is_listed_once(store: ObjectStore) -> None:
    data = batches([10] * 6)
    put(store, data, 0, 18)
    put(store, batches([10] * 2), 0, 6)
    put(store, batches([10] * 2, 6), 6, 12)
    last = put(store, batches([10] * 4, 12), 12, 24)
    other = put(store, data, 0, 18, partition=11)
    found = archive.archived_segments(store, TOPIC)
    assert [(each.partition, each.base_offset, each.end_offset) for each in found] == [
        (0, 0, 18), (0, 12, 24), (11, 0, 18),
    ]  # fmt: skip
    assert found[1:] == [last, other]


def test_of_two_topics_with_one_name_the_one_that_was_written_last_is_meant(store: ObjectStore) -> None:
    put(store, batches([10]), 0, 3, topic_id="01" * 16)
    infos = {info.key: info.modified_ms for info in store.list("")}
    while max(infos.values()) >= _modified(store, newer := put(store, batches([20]), 0, 3, topic_id="02" * 16)):
        store.delete(newer.keys)
    assert archive.archived_segments(store, TOPIC) == [newer]
    (older,) = archive.archived_segments(store, TOPIC, "01" * 16)
    assert older.topic_id == "01" * 16


def _modified(store: ObjectStore, segment: ArchivedSegment) -> int:
    return max(info.modified_ms for info in store.list(archive.topic_prefix(TOPIC, segment.topic_id)))


@pytest.mark.parametrize("seed", range(4))
def test_every_offset_is_read_by_a_range_that_holds_it(seed: int) -> None:
    chance = random.Random(seed)
    store = open_store(f"memory://ranges-{seed}")
    sizes = [chance.choice([1, 300, 4_000, 50_000]) for _ in range(40)]
    data = batches(sizes, 1_000)
    segment = put(store, data, 1_000, 1_120)
    index = archive.read_index(store, segment)
    for offset in range(1_000 + seed, 1_120, 4):
        max_bytes = chance.choice([0, 1, 1_000, 20_000, 200_000])
        before = store.requests.received_bytes
        found = archive.read_batches(store, segment, index, offset, max_bytes)
        got = offsets(found.data)
        assert got[0] <= offset < got[0] + 3, "the first batch holds it"
        assert got == list(range(got[0], found.next_offset))
        assert len(found.data) <= max_bytes or len(got) == 3, "one batch, or no more than was asked for"
        assert bytes(found.data) in data
        received = store.requests.received_bytes - before
        assert received <= 2 * (max_bytes + INTERVAL_BYTES + 3 * 50_500)
    assert not archive.read_batches(store, segment, index, 1_120, 1_000).data


def test_a_range_of_a_large_segment_does_not_read_the_rest() -> None:
    store = open_store("memory://large")
    data = batches([1_000] * 1_000)
    segment = put(store, data, 0, 3_000)
    index = archive.read_index(store, segment)
    before = store.requests.received_bytes, store.requests.gets
    found = archive.read_batches(store, segment, index, 2_000, 10_000)
    assert 2_000 in offsets(found.data)
    assert store.requests.gets - before[1] == 1
    assert store.requests.received_bytes - before[0] <= 10_000 + INTERVAL_BYTES


def test_all_of_a_segment_or_a_part_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BLOCK_BYTES", 20_000)
    store = open_store("memory://pieces")
    data = batches([2_000] * 30)
    segment = put(store, data, 0, 90)
    assert b"".join(archive.read_archived(store, segment)) == data
    assert len(list(archive.read_archived(store, segment))) > 5
    part = b"".join(archive.read_archived(store, segment, start=31, end=61))
    assert offsets(part) == list(range(30, 63)), "whole batches"
    assert list(archive.read_archived(store, segment, start=90)) == []
    assert b"".join(archive.read_archived(store, segment, start=89)) == data[-len(data) // 30 :]
    assert list(archive.read_archived(store, segment, start=5, end=5)) == []


def test_a_hole_that_compaction_left_is_stepped_over(store: ObjectStore) -> None:
    data = batches([10], 5) + batches([10], 20)
    segment = put(store, data, 0, 40)
    index = archive.read_index(store, segment)
    assert offsets(archive.read_batches(store, segment, index, 0, 100_000).data) == [5, 6, 7, 20, 21, 22]
    assert offsets(archive.read_batches(store, segment, index, 10, 100_000).data) == [20, 21, 22]
    assert not archive.read_batches(store, segment, index, 30, 100_000).data


def test_a_batch_that_begins_before_the_segment_is_read_whole(store: ObjectStore) -> None:
    segment = put(store, batches([10, 10], 3), 4, 9)
    assert archive.read_state(store, segment).epochs == ((0, 4),)
    assert offsets(archive.read_batches(store, segment, archive.read_index(store, segment), 4, 1).data) == [3, 4, 5]


@pytest.mark.parametrize("asked", [0, 1, 250, 599, 600, 1_000])
def test_the_first_record_at_or_after_a_time_is_found(asked: int, store: ObjectStore) -> None:
    segment = put(store, batches([8_000] * 200), 0, 600)
    found = archive.find_time(store, segment, START_MS + asked, 0)
    assert (None if found is None else found.offset) == (asked if asked < 600 else None)
    later = archive.find_time(store, segment, START_MS + asked, 550)
    assert (None if later is None else later.offset) == (max(asked, 550) if asked < 600 else None)


def test_times_that_go_back_are_found_where_they_first_come() -> None:
    store = open_store("memory://times")
    shuffled = bytearray()
    for number, at in enumerate([30, 0, 60, 10, 90]):
        made = build_batch([NewRecord(bytes(20_000), timestamp=START_MS + at)] * 3)
        stamp_offset(made, number * 3, 0)
        shuffled += made
    segment = put(store, bytes(shuffled), 0, 15)
    found = [archive.find_time(store, segment, START_MS + at, 0) for at in (0, 10, 31, 61, 91)]
    assert [each and each.offset for each in found] == [0, 0, 6, 12, None]


def test_damage_is_said_with_the_key_and_never_served(store: ObjectStore) -> None:
    data = batches([100] * 4)
    segment = put(store, data, 0, 12)
    index = archive.read_index(store, segment)
    store.put(segment.key(archive.LOG), data[:-10])
    with pytest.raises(StoreError, match="ends within"):
        archive.read_batches(store, segment, index, 0, 100_000)
    store.put(segment.key(archive.LOG), b"x" * len(data))
    with pytest.raises(StoreError, match=r"\.log is damaged"):
        archive.read_batches(store, segment, index, 0, 100_000)
    store.put(segment.key(archive.STATE), b"{}")
    with pytest.raises(StoreError, match="no state"):
        archive.read_state(store, segment)
    store.delete(segment.keys)
    with pytest.raises(ObjectMissingError):
        archive.read_index(store, segment)


def test_what_is_deleted_is_gone_and_the_rest_stays(store: ObjectStore) -> None:
    first, second = put(store, batches([10]), 0, 3), put(store, batches([10], 3), 3, 6)
    other = put(store, batches([10]), 0, 3, topic_id="aa" * 16)
    assert archive.delete_segments(store, [first]) == 4
    assert archive.archived_segments(store, TOPIC, ID) == [second]
    assert archive.delete_archive(store, TOPIC, ID) == 4
    assert archive.delete_archive(store, TOPIC, ID) == 0
    assert archive.archived_segments(store, TOPIC) == [other]


def test_what_nobody_announced_is_found(store: ObjectStore) -> None:
    known, stray = put(store, batches([10]), 0, 3), put(store, batches([10], 3), 3, 6)
    store.put(f"{archive.partition_prefix(TOPIC, ID, 0)}readme.txt", b"of somebody else")
    assert sorted(archive.stray_keys(store, TOPIC, ID, 0, [known])) == sorted((3, key) for key in stray.keys)
    assert archive.stray_keys(store, TOPIC, ID, 1, []) == []


# The indexes.


def test_an_index_never_points_behind_the_batch_that_is_wanted() -> None:
    data = batches([5_000] * 60, 7)
    indexed = make_indexes(data, 7)
    index = OffsetIndex(indexed.offset_index, 7)
    places = {
        record: at for at, header in iter_headers(data) for record in range(header.base_offset, header.next_offset)
    }
    for offset, at in places.items():
        position = index.position_of(offset)
        assert position <= at
        assert at - position <= INTERVAL_BYTES + 3 * 5_100
    assert 0 < len(indexed.offset_index) < len(data) // 1_000


def test_an_offset_found_by_time_has_only_older_records_before_it() -> None:
    data = batches([5_000] * 60)
    indexed = make_indexes(data, 0)
    for at in range(0, 190, 7):
        begin = offset_before_time(indexed.time_index, 0, START_MS + at)
        assert begin <= at, "record n has the time n"
    assert offset_before_time(indexed.time_index, 0, START_MS + 179) > 0


def test_bytes_that_are_no_batches_get_no_index() -> None:
    data = batches([10])
    with pytest.raises(CorruptBatchError):
        make_indexes(data + b"x", 0)
    with pytest.raises(CorruptBatchError):
        make_indexes(data[:-1], 0)
    empty = make_indexes(b"", 0)
    assert (empty.offset_index, empty.time_index, empty.max_timestamp, empty.epochs) == (b"", b"", -1, ())
