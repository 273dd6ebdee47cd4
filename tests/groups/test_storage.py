"""Records of `__consumer_offsets`: round trips, Kafka's own bytes, and what is not ours or not whole."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.offsets import CommittedOffset
from odradek.groups.storage import (
    ConsumerGroupEntry,
    GroupEntry,
    OffsetEntry,
    StoredGroup,
    StoredMember,
    decode,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from odradek.model import TopicPartition
from odradek.records.record import NewRecord, Record
from odradek.wire.errors import DecodeError
from odradek.wire.messages.offsets_topic import GroupMetadataMember, GroupMetadataValue, OffsetCommitValue

names = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
blobs = st.binary(max_size=20)

members = st.builds(
    StoredMember,
    member_id=names,
    instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout_ms=int32s,
    session_timeout_ms=int32s,
    subscription=blobs,
    assignment=blobs,
)
groups = st.builds(
    StoredGroup,
    group_id=names,
    protocol_type=names,
    generation=int32s,
    protocol_name=st.none() | names,
    leader=st.none() | names,
    state_since_ms=int64s,
    members=st.lists(members, max_size=4),
)


def as_read(record: NewRecord) -> Record:
    return Record(0, record.timestamp, record.key, record.value)


@given(groups, st.integers(0, 2**62))
def test_a_group_that_is_stored_is_read_as_it_was(group: StoredGroup, now_ms: int) -> None:
    record = group_record(group, now_ms)
    assert record.timestamp == now_ms
    assert decode(as_read(record)) == GroupEntry(group.group_id, group)
    gone = group_tombstone(group.group_id, now_ms)
    assert gone.key == record.key
    assert decode(as_read(gone)) == GroupEntry(group.group_id, None)


@given(names, names, int32s, int64s, int32s, names, st.integers(0, 2**62))
def test_a_commit_that_is_stored_is_read_as_it_was(
    group_id: str, topic: str, partition: int, offset: int, epoch: int, metadata: str, now_ms: int
) -> None:
    where = TopicPartition(topic, partition)
    committed = CommittedOffset(offset, epoch, metadata, now_ms)
    record = offset_record(group_id, where, committed)
    assert record.timestamp == now_ms
    assert decode(as_read(record)) == OffsetEntry(group_id, where, committed)
    gone = offset_tombstone(group_id, where, now_ms)
    assert gone.key == record.key
    assert decode(as_read(gone)) == OffsetEntry(group_id, where, None)


def test_a_commit_with_a_retention_of_its_own_keeps_it() -> None:
    committed = CommittedOffset(7, -1, "", 100, expire_ms=200)
    where = TopicPartition("t", 0)
    assert decode(as_read(offset_record("g", where, committed))) == OffsetEntry("g", where, committed)


def test_the_bytes_are_those_of_kafkas_formats() -> None:
    record = offset_record("g", TopicPartition("topic", 2), CommittedOffset(258, 3, "m", 16))
    assert record.key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x05topic" + b"\x00\x00\x00\x02"
    assert record.value == b"\x00\x03" + struct.pack(">qi", 258, 3) + b"\x00\x01m" + struct.pack(">q", 16)
    empty = StoredGroup(
        group_id="g",
        protocol_type="consumer",
        generation=5,
        protocol_name=None,
        leader=None,
        state_since_ms=9,
        members=[],
    )
    stored = group_record(empty, 0)
    assert stored.key == b"\x00\x02" + b"\x00\x01g"
    assert stored.value == b"\x00\x03\x00\x08consumer\x00\x00\x00\x05\xff\xff\xff\xff" + struct.pack(">qi", 9, 0)


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version_of_kafkas_can_be_read(version: int) -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=11)
    key = offset_tombstone("g", TopicPartition("t", 1), 0).key
    entry = decode(Record(0, 0, key, struct.pack(">h", version) + value.encode(version)))
    assert isinstance(entry, OffsetEntry)
    assert entry.committed == CommittedOffset(5, 2 if version >= 3 else -1, "m", 11)


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_of_kafkas_can_be_read(version: int) -> None:
    member = GroupMetadataMember(member_id="m", client_id="c", client_host="/h", session_timeout=6, rebalance_timeout=9)
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="p", leader="m", members=[member])
    entry = decode(Record(0, 0, group_tombstone("g", 0).key, struct.pack(">h", version) + value.encode(version)))
    assert isinstance(entry, GroupEntry)
    assert entry.stored is not None
    assert entry.stored.members[0].rebalance_timeout_ms == (9 if version else 6)
    assert entry.stored.state_since_ms == -1


@pytest.mark.parametrize("kind", range(3, 9))
def test_records_of_the_consumer_protocol_are_handed_on_with_their_group(kind: int) -> None:
    record = Record(0, 0, struct.pack(">h", kind) + b"\x00\x01g" + b"\x00\x01m", None)
    assert decode(record) == ConsumerGroupEntry("g", record)


def test_kinds_from_elsewhere_are_not_ours() -> None:
    assert decode(Record(0, 0, struct.pack(">h", 12) + b"whatever", b"")) is None


def test_records_that_are_not_whole_are_refused() -> None:
    whole = as_read(offset_record("g", TopicPartition("t", 0), CommittedOffset(1, 2, "m", 3)))
    assert whole.key is not None
    assert whole.value is not None
    for end in range(len(whole.key)):
        with pytest.raises(DecodeError):
            decode(whole._replace(key=whole.key[:end]))
    for end in range(len(whole.value)):
        with pytest.raises(DecodeError):
            decode(whole._replace(value=whole.value[:end]))
    for bad in (whole._replace(key=None), whole._replace(value=b"\x00\x63" + whole.value[2:])):
        with pytest.raises(DecodeError):
            decode(bad)
