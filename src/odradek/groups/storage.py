"""Groups and offsets as records of `__consumer_offsets`, in Kafka's own formats: its tools can read ours.

A key opens with the number of its kind, a value with that of its version; a null value removes. This is about kinds 0
to 2; those of the consumer protocol (KIP-848) are handed on by `decode` with their group's id.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from odradek.groups.classic_types import Proposal
from odradek.groups.offsets import NO_EXPIRY, CommittedOffset
from odradek.model import TopicPartition
from odradek.records.record import Header, NewRecord, Record
from odradek.wire.errors import DecodeError
from odradek.wire.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

_NUMBER = struct.Struct(">h")

_OFFSET_KINDS = (0, 1)
_GROUP_KIND = 2
_CONSUMER_KINDS = range(3, 9)

_OFFSET_VALUE_VERSION = 3
_OFFSET_VALUE_VERSION_WITH_EXPIRY = 1  # the only one that can tell of a retention of its own
_GROUP_VALUE_VERSION = 3
_GENERATION = "odradek.generation"  # a header, which Kafka's tools pass over


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member of a classic group, as its group's record tells of it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes

    def proposals(self, protocol_name: str | None) -> tuple[Proposal, ...]:
        """What it supports: of the protocols that it once proposed, the record keeps the one that was chosen."""
        return (Proposal(protocol_name or "", self.subscription),)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A generation of a classic group."""

    group_id: str
    protocol_type: str  # "" for a group that nobody joined
    generation: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int  # -1 in records of old versions
    members: Sequence[StoredMember]


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """A commit, or the removal of one."""

    group_id: str
    where: TopicPartition
    committed: CommittedOffset | None
    generation: int = 0  # of the partition: how often it had been made again when this was committed


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A classic group's generation, or the group's removal."""

    group_id: str
    stored: StoredGroup | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupEntry:
    """A record of the consumer protocol, undecoded."""

    group_id: str
    record: Record


Entry: TypeAlias = OffsetEntry | GroupEntry | ConsumerGroupEntry


def offset_record(group_id: str, where: TopicPartition, committed: CommittedOffset, generation: int = 0) -> NewRecord:
    """Write down a commit; of a partition that was made again, also which one it is for."""
    expires = committed.expire_ms != NO_EXPIRY
    version = _OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else _OFFSET_VALUE_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
    )
    return NewRecord(
        value=_NUMBER.pack(version) + value.encode(version),
        key=_offset_key(group_id, where),
        timestamp=committed.commit_ms,
        headers=(Header(_GENERATION, str(generation).encode()),) if generation else (),
    )


def offset_tombstone(group_id: str, where: TopicPartition, now_ms: int) -> NewRecord:
    """Write down that a commit is gone."""
    return NewRecord(value=None, key=_offset_key(group_id, where), timestamp=now_ms)


def group_record(group: StoredGroup, now_ms: int) -> NewRecord:
    """Write down a generation of a classic group."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            GroupMetadataMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in group.members
        ],
    )
    encoded = _NUMBER.pack(_GROUP_VALUE_VERSION) + value.encode(_GROUP_VALUE_VERSION)
    return NewRecord(value=encoded, key=_group_key(group.group_id), timestamp=now_ms)


def group_tombstone(group_id: str, now_ms: int) -> NewRecord:
    """Write down that a classic group is gone."""
    return NewRecord(value=None, key=_group_key(group_id), timestamp=now_ms)


def decode(record: Record) -> Entry | None:
    """Read a record; None for a kind that is not known here, DecodeError for a known kind that cannot be read."""
    kind, key = _split(record.key)
    if kind in _OFFSET_KINDS:
        return _decode_offset(OffsetCommitKey.decode(key, kind), record)
    if kind == _GROUP_KIND:
        return _decode_group(GroupMetadataKey.decode(key, kind).group, record.value)
    if kind in _CONSUMER_KINDS:  # whose keys open with the group's id, too
        return ConsumerGroupEntry(GroupMetadataKey.decode(key, _GROUP_KIND).group, record)
    return None


def _offset_key(group_id: str, where: TopicPartition) -> bytes:
    kind = _OFFSET_KINDS[-1]
    key = OffsetCommitKey(group=group_id, topic=where.topic, partition=where.partition)
    return _NUMBER.pack(kind) + key.encode(kind)


def _group_key(group_id: str) -> bytes:
    return _NUMBER.pack(_GROUP_KIND) + GroupMetadataKey(group=group_id).encode(_GROUP_KIND)


def _split(data: bytes | None) -> tuple[int, memoryview]:
    if data is None or len(data) < _NUMBER.size:
        raise DecodeError("no number of a kind or version")
    number: int = _NUMBER.unpack_from(data)[0]
    return number, memoryview(data)[_NUMBER.size :]


def _split_value(data: bytes, versions: tuple[int, int]) -> tuple[int, memoryview]:
    version, value = _split(data)
    if not versions[0] <= version <= versions[1]:
        raise DecodeError(f"a value of version {version}, known are {versions[0]} to {versions[1]}")
    return version, value


def _decode_offset(key: OffsetCommitKey, record: Record) -> OffsetEntry:
    where, data = TopicPartition(key.topic, key.partition), record.value
    if data is None:
        return OffsetEntry(key.group, where, None)
    version, encoded = _split_value(data, OffsetCommitValue.versions)
    value = OffsetCommitValue.decode(encoded, version)
    committed = CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_ms=value.commit_timestamp,
        expire_ms=value.expire_timestamp,
    )
    generation = next((value for name, value in record.headers if name == _GENERATION), None) or b"0"
    return OffsetEntry(key.group, where, committed, int(generation) if generation.isdigit() else 0)


def _decode_group(group_id: str, data: bytes | None) -> GroupEntry:
    if data is None:
        return GroupEntry(group_id, None)
    version, encoded = _split_value(data, GroupMetadataValue.versions)
    value = GroupMetadataValue.decode(encoded, version)
    members = [
        StoredMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # Records of version 0 know one timeout only.
            rebalance_timeout_ms=member.session_timeout if version == 0 else member.rebalance_timeout,
            session_timeout_ms=member.session_timeout,
            subscription=bytes(member.subscription),
            assignment=bytes(member.assignment),
        )
        for member in value.members
    ]
    stored = StoredGroup(
        group_id=group_id,
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol_name=value.protocol,
        leader=value.leader,
        state_since_ms=value.current_state_timestamp,
        members=members,
    )
    return GroupEntry(group_id, stored)
