"""What is stored of a group of the consumer protocol (KIP-848), as its changes made it; nothing else alters it.

Whether changes come from a heartbeat or from the log makes no difference, so a group that was loaded is the group that
was stored. Times and waiting answers are not stored: `consumer_group.py` keeps those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from odradek.groups.assignors import Partitions, TopicIdPartition
from odradek.groups.consumer_types import (
    NOTHING,
    Change,
    Current,
    CurrentChange,
    EpochChange,
    MemberChange,
    Subscription,
    TargetChange,
    TargetEpochChange,
    TopicFacts,
    TopicsChange,
)

ChangeKey: TypeAlias = tuple[type[Change], str]  # the kind of change, and the member it is about or ""

_UNKNOWN = Subscription(
    instance_id=None,
    rack_id=None,
    client_id="",
    client_host="",
    topic_names=(),
    topic_regex=None,
    rebalance_timeout_ms=0,
    server_assignor=None,
)
_NOWHERE = Current()


@dataclass(slots=True)
class Member:
    """One member."""

    member_id: str
    subscription: Subscription = _UNKNOWN
    target: Partitions = NOTHING  # what it should own in the target's epoch
    current: Current = _NOWHERE

    @property
    def is_known(self) -> bool:
        """Whether it has a subscription; without one it is what a lost record left behind."""
        return self.subscription is not _UNKNOWN


class Image:
    """A group's epochs, topics and members."""

    def __init__(self) -> None:
        self.epoch = 0  # grows by one whenever a new target assignment is needed
        self.target_epoch = 0  # target_epoch <= epoch; for which epoch the members' targets were made
        self.topics: Mapping[str, TopicFacts] = {}
        self.members: dict[str, Member] = {}
        self.owners: dict[TopicIdPartition, str] = {}  # who is assigned a partition or has yet to give it up
        self._static: dict[str, str] = {}  # instance id -> member id

    def __eq__(self, other: object) -> bool:
        """Compare all that is stored."""
        if not isinstance(other, Image):
            return NotImplemented
        return (self.epoch, self.target_epoch, self.topics, self.members, self.owners) == (
            other.epoch,
            other.target_epoch,
            other.topics,
            other.members,
            other.owners,
        )

    __hash__ = None  # type: ignore[assignment]

    def static(self, instance_id: str) -> Member | None:
        """The member with this instance id."""
        member_id = self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_free_for(self, partition: TopicIdPartition, member_id: str) -> bool:
        """Whether nobody else holds a partition."""
        return self.owners.get(partition, member_id) == member_id

    def apply(self, change: Change) -> None:
        """Let a change happen."""
        match change:
            case EpochChange(epoch):
                self.epoch = epoch or 0
            case TargetEpochChange(epoch):
                self.target_epoch = epoch or 0
            case TopicsChange(topics):
                self.topics = topics or {}
            case MemberChange(member_id, subscription):
                self._set_subscription(member_id, subscription)
            case TargetChange(member_id, partitions):
                if partitions is not None:
                    self._member(member_id).target = partitions
                elif member_id in self.members:
                    self.members[member_id].target = NOTHING
            case CurrentChange(member_id, current):
                if current is not None or member_id in self.members:
                    self._set_current(self._member(member_id), current or _NOWHERE)
            case _:
                assert_never(change)

    def _member(self, member_id: str) -> Member:
        return self.members.setdefault(member_id, Member(member_id))

    def _set_subscription(self, member_id: str, subscription: Subscription | None) -> None:
        member = self.members.get(member_id)
        if member is not None and self._static.get(member.subscription.instance_id or "") == member_id:
            del self._static[member.subscription.instance_id or ""]
        if subscription is None:
            if member is not None:
                self._set_current(member, _NOWHERE)
                del self.members[member_id]
            return
        self._member(member_id).subscription = subscription
        if subscription.instance_id is not None:
            self._static[subscription.instance_id] = member_id

    def _set_current(self, member: Member, current: Current) -> None:
        for partition in member.current.assigned | member.current.revoking:
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
        member.current = current
        for partition in current.assigned | current.revoking:
            self.owners[partition] = member.member_id

    # For writing down again what a failed write may have lost

    def change_of(self, key: ChangeKey) -> Change:
        """What should be stored under a change's key now."""
        kind, member_id = key
        member = self.members.get(member_id)
        if kind is EpochChange:
            return EpochChange(self.epoch)
        if kind is TargetEpochChange:
            return TargetEpochChange(self.target_epoch)
        if kind is TopicsChange:
            return TopicsChange(self.topics)
        if kind is MemberChange:
            return MemberChange(member_id, None if member is None else member.subscription)
        if kind is TargetChange:
            return TargetChange(member_id, None if member is None else member.target)
        return CurrentChange(member_id, None if member is None else member.current)

    def removals(self, member_id: str) -> list[Change]:
        """All that has to change for a member to be gone."""
        return [CurrentChange(member_id, None), TargetChange(member_id, None), MemberChange(member_id, None)]


def key_of(change: Change) -> ChangeKey:
    """Under which key a change is stored: a later one with the same key takes its place."""
    return (type(change), getattr(change, "member_id", ""))
