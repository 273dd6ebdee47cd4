"""Changes of a consumer group (KIP-848) as records of `__consumer_offsets`, kinds 3 to 8, in Kafka's own formats.

A key opens with the number of its kind, a value with that of its version; a null value removes. Kind 16 (what a regular
expression matched) is neither written nor read: matches are worked out anew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import assert_never

from odradek.groups.assignors import Partitions, TopicIdPartition
from odradek.groups.consumer_types import (
    Change,
    Current,
    CurrentChange,
    EpochChange,
    MemberChange,
    MemberState,
    Subscription,
    TargetChange,
    TargetEpochChange,
    TopicFacts,
    TopicsChange,
)
from odradek.records.record import NewRecord
from odradek.wire.errors import DecodeError
from odradek.wire.messages import offsets_topic as stored
from odradek.wire.schema import Struct

_NUMBER = struct.Struct(">h")
_VALUE_VERSION = 0


class Kind(IntEnum):
    """What a record tells of; the number opens its key."""

    EPOCH = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8


def encode(group_id: str, change: Change, now_ms: int) -> NewRecord:
    """Write down a change."""
    kind, key, value = _key_and_value(group_id, change)
    return NewRecord(
        key=_NUMBER.pack(kind) + key.encode(kind),
        value=None if value is None else _NUMBER.pack(_VALUE_VERSION) + value.encode(_VALUE_VERSION),
        timestamp=now_ms,
    )


def decode(key: bytes, value: bytes | None) -> Change:
    """Read a record of kinds 3 to 8; DecodeError for anything else."""
    kind = _number(key)
    if value is not None and _number(value) != _VALUE_VERSION:
        raise DecodeError(f"a value of version {_number(value)}, known is {_VALUE_VERSION}")
    match kind:
        case Kind.EPOCH:
            return EpochChange(_epoch(value))
        case Kind.TOPICS:
            return TopicsChange(_topics(value))
        case Kind.MEMBER:
            member_id = stored.ConsumerGroupMemberMetadataKey.decode(key, kind, _NUMBER.size).member_id
            return MemberChange(member_id, _subscription(value))
        case Kind.TARGET_EPOCH:
            return TargetEpochChange(_target_epoch(value))
        case Kind.TARGET:
            member_id = stored.ConsumerGroupTargetAssignmentMemberKey.decode(key, kind, _NUMBER.size).member_id
            return TargetChange(member_id, _target(value))
        case Kind.CURRENT:
            member_id = stored.ConsumerGroupCurrentMemberAssignmentKey.decode(key, kind, _NUMBER.size).member_id
            return CurrentChange(member_id, _current(value))
        case _:
            raise DecodeError(f"a record of kind {kind} is not one of a consumer group")


def _number(data: bytes) -> int:
    if len(data) < _NUMBER.size:
        raise DecodeError("no number of a kind or version")
    number: int = _NUMBER.unpack_from(data)[0]
    return number


# Writing


def _key_and_value(group_id: str, change: Change) -> tuple[Kind, Struct, Struct | None]:
    match change:
        case EpochChange(epoch):
            value = None if epoch is None else stored.ConsumerGroupMetadataValue(epoch=epoch)
            return Kind.EPOCH, stored.ConsumerGroupMetadataKey(group_id=group_id), value
        case TopicsChange(topics):
            return Kind.TOPICS, stored.ConsumerGroupPartitionMetadataKey(group_id=group_id), _topics_value(topics)
        case MemberChange(member_id, subscription):
            key = stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            return Kind.MEMBER, key, _subscription_value(subscription)
        case TargetEpochChange(epoch):
            at = None if epoch is None else stored.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
            return Kind.TARGET_EPOCH, stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), at
        case TargetChange(member_id, partitions):
            target_key = stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            return Kind.TARGET, target_key, _target_value(partitions)
        case CurrentChange(member_id, current):
            current_key = stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            return Kind.CURRENT, current_key, _current_value(current)
        case _:
            assert_never(change)


def _topics_value(topics: Mapping[str, TopicFacts] | None) -> stored.ConsumerGroupPartitionMetadataValue | None:
    if topics is None:
        return None
    return stored.ConsumerGroupPartitionMetadataValue(
        topics=[
            stored.TopicMetadata(topic_id=facts.topic_id, topic_name=name, num_partitions=facts.partition_count)
            for name, facts in topics.items()
        ]
    )


def _subscription_value(subscription: Subscription | None) -> stored.ConsumerGroupMemberMetadataValue | None:
    if subscription is None:
        return None
    return stored.ConsumerGroupMemberMetadataValue(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.server_assignor,
    )


def _target_value(partitions: Partitions | None) -> stored.ConsumerGroupTargetAssignmentMemberValue | None:
    if partitions is None:
        return None
    return stored.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_by_topic(partitions))


def _current_value(current: Current | None) -> stored.ConsumerGroupCurrentMemberAssignmentValue | None:
    if current is None:
        return None
    return stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_by_topic(current.assigned),
        partitions_pending_revocation=_by_topic(current.revoking),
    )


def _by_topic(partitions: Partitions) -> list[stored.TopicPartitions]:
    return [
        stored.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in partitions_by_topic(partitions).items()
    ]


def partitions_by_topic(partitions: Partitions) -> dict[bytes, list[int]]:
    """Group partitions by their topic's id, both in order."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return by_topic


# Reading


def _epoch(value: bytes | None) -> int | None:
    return None if value is None else stored.ConsumerGroupMetadataValue.decode(value, 0, _NUMBER.size).epoch


def _target_epoch(value: bytes | None) -> int | None:
    if value is None:
        return None
    return stored.ConsumerGroupTargetAssignmentMetadataValue.decode(value, 0, _NUMBER.size).assignment_epoch


def _topics(value: bytes | None) -> dict[str, TopicFacts] | None:
    if value is None:
        return None
    topics = stored.ConsumerGroupPartitionMetadataValue.decode(value, 0, _NUMBER.size).topics
    return {topic.topic_name: TopicFacts(topic.topic_id, topic.num_partitions) for topic in topics}


def _subscription(value: bytes | None) -> Subscription | None:
    if value is None:
        return None
    member = stored.ConsumerGroupMemberMetadataValue.decode(value, 0, _NUMBER.size)
    return Subscription(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(member.subscribed_topic_names),
        topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
    )


def _target(value: bytes | None) -> Partitions | None:
    if value is None:
        return None
    return _partitions(stored.ConsumerGroupTargetAssignmentMemberValue.decode(value, 0, _NUMBER.size).topic_partitions)


def _current(value: bytes | None) -> Current | None:
    if value is None:
        return None
    member = stored.ConsumerGroupCurrentMemberAssignmentValue.decode(value, 0, _NUMBER.size)
    try:
        state = MemberState(member.state)
    except ValueError:
        raise DecodeError(f"a member cannot be in state {member.state}") from None
    return Current(
        epoch=member.member_epoch,
        previous_epoch=member.previous_member_epoch,
        state=state,
        assigned=_partitions(member.assigned_partitions),
        revoking=_partitions(member.partitions_pending_revocation),
    )


def _partitions(topics: Iterable[stored.TopicPartitions]) -> Partitions:
    return frozenset(TopicIdPartition(topic.topic_id, partition) for topic in topics for partition in topic.partitions)
