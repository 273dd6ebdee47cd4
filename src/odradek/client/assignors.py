"""How the leader of a classic group deals out partitions: range and roundrobin, as Java's consumers do. Pure.

All members must come to the same result, whoever leads, so members and topics are sorted first. The blobs in which
members and leader talk to each other are those of Kafka's consumer protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from odradek.client.errors import ClientError
from odradek.model import TopicPartition
from odradek.wire.errors import DecodeError
from odradek.wire.messages.consumer_protocol import Assignment, Subscription, TopicPartitions
from odradek.wire.primitives import ReadBuffer

SUBSCRIPTION_VERSION = 1
ASSIGNMENT_VERSION = 1

_VERSION = struct.Struct(">h")

Blob = TypeVar("Blob", Subscription, Assignment)


class GroupMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]


Assigned: TypeAlias = dict[str, list[TopicPartition]]  # by member id
Partitions: TypeAlias = Mapping[str, Sequence[int]]  # by topic
Assignor: TypeAlias = Callable[[Sequence[GroupMember], Partitions], Assigned]


def assign_ranges(members: Sequence[GroupMember], partitions: Partitions) -> Assigned:
    """Give each subscriber of a topic one range of its partitions; the first ones get one more if need be."""
    assigned: Assigned = {member.member_id: [] for member in members}
    for topic in sorted(partitions):
        takers = _in_order(member for member in members if topic in member.topics)
        next_partition = 0
        for number, member in enumerate(takers):
            share, extra = divmod(len(partitions[topic]), len(takers))
            size = share + (1 if number < extra else 0)
            assigned[member.member_id] += [
                TopicPartition(topic, partition)
                for partition in partitions[topic][next_partition : next_partition + size]
            ]
            next_partition += size
    return assigned


def assign_in_turn(members: Sequence[GroupMember], partitions: Partitions) -> Assigned:
    """Deal out all partitions of all topics one by one; whoever is not subscribed to a topic is passed over."""
    assigned: Assigned = {member.member_id: [] for member in members}
    takers = _in_order(members)
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in member.topics for member in takers):
            continue
        for partition in partitions[topic]:
            while topic not in takers[turn % len(takers)].topics:
                turn += 1
            assigned[takers[turn % len(takers)].member_id].append(TopicPartition(topic, partition))
            turn += 1
    return assigned


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"range": assign_ranges, "roundrobin": assign_in_turn})


def _in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Static members first, by instance id: theirs stay the same over restarts."""
    return sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))


def encode_subscription(topics: Iterable[str]) -> bytes:
    """What a member tells the leader: the topics it wants."""
    return _VERSION.pack(SUBSCRIPTION_VERSION) + Subscription(topics=sorted(topics)).encode(SUBSCRIPTION_VERSION)


def decode_subscription(data: ReadBuffer) -> frozenset[str]:
    """The topics that a member wants."""
    return frozenset(_decode(Subscription, data).topics)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader gives to a member."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    items = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return _VERSION.pack(ASSIGNMENT_VERSION) + Assignment(assigned_partitions=items).encode(ASSIGNMENT_VERSION)


def decode_assignment(data: ReadBuffer) -> list[TopicPartition]:
    """The partitions that a member got; no bytes at all are none."""
    if not data:
        return []
    return [
        TopicPartition(item.topic, partition)
        for item in _decode(Assignment, data).assigned_partitions
        for partition in item.partitions
    ]


def _decode(kind: type[Blob], data: ReadBuffer) -> Blob:
    """Read a blob; one of a newer version than ours is read as ours, since newer ones only add to the end."""
    try:
        (version,) = _VERSION.unpack_from(data)
        low, high = kind.versions
        if version < low:
            raise DecodeError(f"version {version}")
        return kind.decode(data, min(version, high), _VERSION.size)
    except (struct.error, DecodeError) as error:
        raise ClientError(f"another member of the group sent something that is no {kind.__name__}: {error}") from None
