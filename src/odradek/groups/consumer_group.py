"""One group of the consumer protocol (KIP-848) as a pure state machine: heartbeats in, `Effects` out.

The group's epoch rises with its members, their subscriptions and their topics; a target assignment is made for it at
the next heartbeat; each member is led there by its own heartbeats (`reconcile.py`). All that is stored changes through
`Image.apply`. Offsets are not kept here, and members of the classic protocol are not taken in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from odradek.groups.assignors import ASSIGNORS, Partitions, Subscriber
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_admission import find, require, subscription_after
from odradek.groups.consumer_checks import available_assignors, check_heartbeat
from odradek.groups.consumer_image import ChangeKey, Image, Member, key_of
from odradek.groups.consumer_records import encode
from odradek.groups.consumer_types import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    Change,
    Current,
    CurrentChange,
    EpochChange,
    GroupState,
    Heartbeat,
    HeartbeatAnswer,
    MemberChange,
    MemberState,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
)
from odradek.groups.gaps import assign_around_gaps
from odradek.groups.group import Effects, Topics
from odradek.groups.reconcile import Target, reconcile
from odradek.groups.subscribed import SubscribedTopics
from odradek.groups.topic_pattern import PatternError
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError


@dataclass(slots=True)
class Timers:
    """When a member is given up."""

    session_ms: int  # unless it sends a heartbeat before
    revocation_ms: int | None = None  # unless it has given up its partitions before; set exactly while it must


@dataclass(slots=True, eq=False)
class Batch:
    """Token: changes that are being made durable, and the answers that wait for that."""

    changes: Sequence[Change]
    answers: list[tuple[int, HeartbeatAnswer]] = field(default_factory=list)


class ConsumerGroup:
    """A group, its members and their timers."""

    kind: Literal["consumer"] = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, config: GroupConfig, topics: Topics) -> None:
        self.group_id = group_id
        self.image = Image()
        self._config = config
        self._subscribed = SubscribedTopics(topics)
        self._timers: dict[str, Timers] = {}  # the keys are those of image.members
        self._wake_ms: int | None = None  # no deadline is earlier; heartbeats move deadlines but not this
        self._under_way: list[Batch] = []  # in the order in which they will be reported as stored
        self._unstored: dict[ChangeKey, None] = {}  # what a failed write may have lost; goes with the next one
        self._is_dead = False

    # Called for a request of a member

    def heartbeat(self, beat: Heartbeat, ticket: int, now_ms: int) -> Effects:
        """Join, live on or leave; the answer comes when all that it tells of is durable. Refuses by PeerError."""
        if self._is_dead:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted")
        check_heartbeat(beat, self._config)
        changes: list[Change] = []
        if beat.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            answer = self._leave(beat, changes, now_ms)
        else:
            answer = self._live(beat, changes, now_ms)
        return self._effects(changes, now_ms, (ticket, answer))

    # Called by the coordinator for either kind of group

    @property
    def state(self) -> GroupState:
        """How far the group has come."""
        image = self.image
        if self._is_dead:
            return GroupState.DEAD
        if not image.members:
            return GroupState.EMPTY
        if image.epoch > image.target_epoch:
            return GroupState.ASSIGNING
        members = (member.current for member in image.members.values())
        if all(each.state is MemberState.STABLE and each.epoch == image.target_epoch for each in members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether nobody is a member."""
        return not self.image.members

    @property
    def assignor_name(self) -> str:
        """The assignor that most members ask for, else the first of the settings."""
        offered = available_assignors(self._config)
        votes = Counter(member.subscription.server_assignor for member in self.image.members.values())
        return max(offered, key=lambda name: votes[name])  # the earlier one of two with as many

    def next_deadline(self) -> int | None:
        """No later than the earliest deadline; `on_timer` may find that heartbeats have moved it."""
        return self._wake_ms

    def on_timer(self, now_ms: int) -> Effects:
        """Remove those who were silent for too long, or would not give up their partitions in time."""
        changes: list[Change] = []
        for member_id in [member_id for member_id, timers in self._timers.items() if _first(timers) <= now_ms]:
            self._remove(member_id, changes)
        self._wake_ms = min((_first(timers) for timers in self._timers.values()), default=None)
        return self._effects(changes, now_ms)

    def stored(self, token: object, error: ErrorCode, now_ms: int) -> Effects:
        """Answer those who waited for the records; remember those that may be lost."""
        if not isinstance(token, Batch):
            return Effects()
        self._under_way.remove(token)
        if error is ErrorCode.NONE:
            return Effects(answers=list(token.answers))
        self._unstored.update(dict.fromkeys(map(key_of, token.changes)))
        return Effects(answers=[(ticket, replace(answer, error=error)) for ticket, answer in token.answers])

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Refuse a commit of a stranger, or of a member with another epoch than the one it was told last."""
        if self._is_dead:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted")
        if generation < 0 and self.is_empty:
            return  # an administrator, or a consumer that assigns its partitions itself
        self._check_epoch_of(member_id, generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse to read offsets to a member with another epoch; who is no member may read."""
        if not member_id and member_epoch < 0:
            return
        self._check_epoch_of(member_id or "", member_epoch)

    def check_offset_delete(self) -> None:
        """Offsets may be deleted unless a member is subscribed to their topic."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        if not self.image.members:
            return False
        return topic in self.image.topics or any(
            topic in member.subscription.topic_names for member in self.image.members.values()
        )

    def expires_from(self, commit_ms: int) -> int | None:
        """From the commit: those of topics that are still read are spared anyway."""
        return commit_ms

    def tombstones(self, now_ms: int) -> list[NewRecord]:
        """The records that remove the group and any member left."""
        changes: list[Change] = []
        for member_id in self.image.members:
            changes += self.image.removals(member_id)
        changes += [TargetEpochChange(None), TopicsChange(None), EpochChange(None)]
        return [encode(self.group_id, change, now_ms) for change in changes]

    def delete(self, now_ms: int) -> None:
        """Refuse with NON_EMPTY_GROUP, or become dead: stray calls on the object are turned away from now on."""
        if not self.is_empty:
            raise PeerError(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        self._is_dead = True

    # Called while the log is read at start

    def apply(self, change: Change) -> None:
        """Take in a stored change."""
        self.image.apply(change)

    def resume(self, now_ms: int) -> None:
        """Take up the group once all is read; its members have a session's time to show that they are still there."""
        for member_id in [member.member_id for member in self.image.members.values() if not member.is_known]:
            self.image.apply(MemberChange(member_id, None))
        for member in self.image.members.values():
            self._start_session(member, now_ms)
            self._time_revocation(member, now_ms)

    # Leaving

    def _leave(self, beat: Heartbeat, changes: list[Change], now_ms: int) -> HeartbeatAnswer:
        member = require(self.image, beat)
        if beat.member_epoch == LEAVE_EPOCH:
            self._remove(member.member_id, changes)
        else:
            # It keeps its partitions for its successor; what it had to give up, it has given up by leaving.
            at = replace(member.current, epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, revoking=NOTHING)
            self._change(CurrentChange(member.member_id, at), changes)
            self._start_session(member, now_ms)
            self._time_revocation(member, now_ms)
        return HeartbeatAnswer(member_id=beat.member_id, member_epoch=beat.member_epoch)

    def _remove(self, member_id: str, changes: list[Change]) -> None:
        for change in self.image.removals(member_id):
            self._change(change, changes)
        del self._timers[member_id]
        self._subscribed.expire()
        self._raise_epoch(changes)

    # Joining and living on

    def _live(self, beat: Heartbeat, changes: list[Change], now_ms: int) -> HeartbeatAnswer:
        before = find(self.image, beat, self._config.group_consumer_max_size)
        self._check_pattern(beat.topic_regex)
        # Nothing has changed up to here, and nothing is refused from here on.
        member = self._admitted(beat, before, changes)
        self._start_session(member, now_ms)
        self._refresh_topics(changes)
        if self.image.epoch > self.image.target_epoch:
            self._assign(changes)
        assigned_before = member.current.assigned
        self._reconcile(member, beat.owned, changes, now_ms)
        is_news = beat.is_full or member.current.assigned != assigned_before  # who joins says all, too
        return HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.current.epoch,
            assignment=member.current.assigned if is_news else None,
        )

    def _check_pattern(self, text: str | None) -> None:
        try:
            if text:
                self._subscribed.add_pattern(text)
        except PatternError as problem:
            message = f"{text!r:.80} cannot be subscribed to: {problem}"
            raise PeerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None

    def _admitted(self, beat: Heartbeat, before: Member | None, changes: list[Change]) -> Member:
        """Bring a member's subscription up to date; a newcomer or a successor becomes a member by that."""
        member_id, image = beat.member_id, self.image
        said_before = None if before is None else before.subscription
        subscription = subscription_after(beat, said_before)
        if before is not None and before.member_id != member_id:
            target, assigned = before.target, before.current.assigned
            for change in image.removals(before.member_id):
                self._change(change, changes)
            del self._timers[before.member_id]
            self._change(MemberChange(member_id, subscription), changes)
            self._change(TargetChange(member_id, target), changes)
            self._change(CurrentChange(member_id, Current(assigned=assigned)), changes)
        elif subscription != said_before:
            self._change(MemberChange(member_id, subscription), changes)
        if said_before is None or not said_before.reads_as(subscription):
            self._subscribed.expire()
            self._raise_epoch(changes)
        return image.members[member_id]

    def _refresh_topics(self, changes: list[Change]) -> None:
        """Look whether the subscribed topics have come, gone or grown."""
        topics = self._subscribed.refreshed(member.subscription for member in self.image.members.values())
        if topics is not None and topics != self.image.topics:
            self._change(TopicsChange(topics), changes)
            self._raise_epoch(changes)

    def _assign(self, changes: list[Change]) -> None:
        """Make the target assignment for the group's epoch."""
        image = self.image
        subscribers = [
            Subscriber(member.member_id, member.subscription.instance_id, self._topic_ids(member), member.target)
            for member in image.members.values()
        ]
        assigned = assign_around_gaps(ASSIGNORS[self.assignor_name], subscribers, image.topics.values())
        for member_id, partitions in assigned.items():
            if partitions != image.members[member_id].target:
                self._change(TargetChange(member_id, partitions), changes)
        self._change(TargetEpochChange(image.epoch), changes)

    def _topic_ids(self, member: Member) -> frozenset[bytes]:
        topics = self.image.topics
        return frozenset(
            topics[name].topic_id for name in self._subscribed.names_of(member.subscription) & topics.keys()
        )

    def _reconcile(self, member: Member, owned: Partitions | None, changes: list[Change], now_ms: int) -> None:
        target = Target(self.image.target_epoch, member.target)
        after = reconcile(
            member.current, target, owned, lambda partition: self.image.is_free_for(partition, member.member_id)
        )
        if after != member.current:
            self._change(CurrentChange(member.member_id, after), changes)
            self._time_revocation(member, now_ms)

    # Epochs, changes, timers

    def _raise_epoch(self, changes: list[Change]) -> None:
        """Ask for a new target assignment, unless one is due already."""
        if self.image.epoch == self.image.target_epoch:
            self._change(EpochChange(self.image.epoch + 1), changes)

    def _change(self, change: Change, changes: list[Change]) -> None:
        self.image.apply(change)
        changes.append(change)

    def _effects(
        self, changes: list[Change], now_ms: int, answer: tuple[int, HeartbeatAnswer] | None = None
    ) -> Effects:
        """Have changes stored before the answer leaves, and the answer not overtake what is under way."""
        if not changes and not self._unstored:
            if answer is not None and self._under_way:
                self._under_way[-1].answers.append(answer)
                return Effects()
            return Effects(answers=[] if answer is None else [answer])
        lost = [self.image.change_of(key) for key in self._unstored]
        self._unstored.clear()
        batch = Batch([*lost, *changes], [] if answer is None else [answer])
        self._under_way.append(batch)
        return Effects(records=[encode(self.group_id, change, now_ms) for change in batch.changes], token=batch)

    def _check_epoch_of(self, member_id: str, epoch: int) -> None:
        member = self.image.members.get(member_id)
        if member is None:
            raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, "not a member of this group")
        if epoch != member.current.epoch:
            raise PeerError(ErrorCode.STALE_MEMBER_EPOCH, f"the member is in epoch {member.current.epoch}, not {epoch}")

    def _start_session(self, member: Member, now_ms: int) -> None:
        session_ms = self._wake_by(now_ms + self._config.group_consumer_session_timeout_ms)
        timers = self._timers.setdefault(member.member_id, Timers(session_ms))
        timers.session_ms = session_ms

    def _time_revocation(self, member: Member, now_ms: int) -> None:
        timers = self._timers[member.member_id]
        timers.revocation_ms = None
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            timers.revocation_ms = self._wake_by(now_ms + member.subscription.rebalance_timeout_ms)

    def _wake_by(self, time_ms: int) -> int:
        self._wake_ms = time_ms if self._wake_ms is None else min(self._wake_ms, time_ms)
        return time_ms


def _first(timers: Timers) -> int:
    return timers.session_ms if timers.revocation_ms is None else min(timers.session_ms, timers.revocation_ms)
