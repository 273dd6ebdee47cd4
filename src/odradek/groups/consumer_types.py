"""The consumer protocol's vocabulary (KIP-848): states, what is known of a member, heartbeats, and changes.

A change is one fact that is stored under one key of `__consumer_offsets` (`consumer_records.py` gives it its bytes); a
group is what its changes made it. Free of requests' and records' formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, TypeAlias

from odradek.groups.assignors import Partitions
from odradek.wire.errors import ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2  # of a static member that means to come back within its session's time
NOTHING: Partitions = frozenset()


class GroupState(StrEnum):
    """How far a group has come; spelled as Kafka's tools show it."""

    EMPTY = "Empty"  # no members
    ASSIGNING = "Assigning"  # the target assignment is older than the group
    RECONCILING = "Reconciling"  # some member has not reached the target assignment yet
    STABLE = "Stable"  # every member owns what it should
    DEAD = "Dead"  # deleted; the object is no longer in the coordinator's table


class MemberState(IntEnum):
    """What a member waits for; the numbers are those of the stored records."""

    STABLE = 0  # nothing: it has all of the target assignment of its epoch
    UNREVOKED_PARTITIONS = 1  # we wait for it to give up partitions, and it stays in its epoch until then
    UNRELEASED_PARTITIONS = 2  # it waits for others to give up partitions


class TopicFacts(NamedTuple):
    """What an assignment depends on of a topic."""

    topic_id: bytes
    partition_count: int  # one more than the highest number
    gaps: frozenset[int] = frozenset()  # numbers below it that have no partition; not stored, but looked up again


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Who a member is and what it asked for."""

    instance_id: str | None  # set for a static member (KIP-345)
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]  # sorted
    topic_regex: str | None
    rebalance_timeout_ms: int  # how long it may take to give up partitions
    server_assignor: str | None

    def reads_as(self, other: Subscription) -> bool:
        """Whether both ask for the same topics."""
        return self.topic_names == other.topic_names and self.topic_regex == other.topic_regex


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """Where a member is on its way to the target assignment."""

    epoch: int = 0  # what its heartbeats must carry; grows up to the target's epoch
    previous_epoch: int = 0  # tolerated in a heartbeat, since the answer that told the new one may be lost
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING  # may be owned by it
    revoking: Partitions = NOTHING  # must be given up by it; disjoint from assigned, empty unless UNREVOKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request; None means that nothing changed."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the member says all about itself, as it does when it lost an answer."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a heartbeat; `assignment` is None when the member knows it already."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str
    member_epoch: int
    assignment: Partitions | None = None


# Changes: what is stored, one key each. None for what was stored removes it.


@dataclass(frozen=True, slots=True)
class EpochChange:
    """The group's epoch: raised whenever a new target assignment is needed."""

    epoch: int | None


@dataclass(frozen=True, slots=True)
class TopicsChange:
    """The topics that members subscribe to and that exist, by name."""

    topics: Mapping[str, TopicFacts] | None


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A member's subscription."""

    member_id: str
    subscription: Subscription | None


@dataclass(frozen=True, slots=True)
class TargetEpochChange:
    """The group epoch for which the target assignment was made; stored after the assignment itself."""

    epoch: int | None


@dataclass(frozen=True, slots=True)
class TargetChange:
    """What a member should own."""

    member_id: str
    partitions: Partitions | None


@dataclass(frozen=True, slots=True)
class CurrentChange:
    """Where a member is."""

    member_id: str
    current: Current | None


Change: TypeAlias = EpochChange | TopicsChange | MemberChange | TargetEpochChange | TargetChange | CurrentChange
