"""The rounds of a classic group: join phase, sync phase, a stable generation, and what the clock does to each.

The base of `ClassicGroup`, which adds the requests of members. A round begins with `rebalance_or_complete_join` and
ends when the leader's assignment is durable. Pure: the time is an argument, `Effects` collect what is to be done.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.groups.classic_members import Member, Members
from odradek.groups.classic_types import (
    TRANSITIONS,
    AssignmentStored,
    JoinAnswer,
    State,
    StaticMemberStored,
    SyncAnswer,
)
from odradek.groups.config import GroupConfig
from odradek.groups.group import Effects
from odradek.groups.storage import StoredGroup, StoredMember, group_record
from odradek.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode


class Rounds:
    """The state of a group; only `become` changes `state`."""

    def __init__(self, group_id: str, config: GroupConfig, now_ms: int) -> None:
        self.group_id = group_id
        self.config = config
        self.state = State.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0  # grows by one with every join phase that ends, never falls
        self.protocol_type: str | None = None  # None: nobody ever joined, the group only keeps offsets
        self.protocol_name: str | None = None  # None until a generation has chosen
        self.members = Members()
        self.subscribed: frozenset[str] | None = None  # None: not consumers, or their metadata cannot be read
        self.awaits_sync_of: set[str] = set()
        self.is_storing = False  # the leader's assignment is on its way to stable storage; the state is COMPLETING
        self.is_first_round = False  # PREPARING came from EMPTY: wait a little for more members
        self.has_newcomer = False  # somebody joined since the first round was last extended
        self._first_round_left_ms = 0  # how much longer the first round may be extended
        self._wake_ms: int | None = None  # no deadline is earlier; heartbeats move deadlines but not this
        self._join_deadline_ms: int | None = None  # set while PREPARING
        self._sync_deadline_ms: int | None = None  # set while awaits_sync_of is not empty

    def become(self, state: State, now_ms: int) -> None:
        """Change the state, along the table only."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.group_id!r} cannot go from {self.state} to {state}")
        self.state = state
        self.state_since_ms = now_ms
        self.is_storing = False

    # Deadlines

    def next_deadline(self) -> int | None:
        """No later than the earliest deadline; `on_timer` may find that heartbeats have moved it."""
        return self._wake_ms

    def on_timer(self, now_ms: int) -> Effects:
        """Remove the silent, and end phases whose time is up."""
        out = Effects()
        self._expire_silent(out, now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._on_join_deadline(out, now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._on_sync_deadline(out, now_ms)
        self.find_next_deadline()
        return out

    def find_next_deadline(self) -> None:
        """Look at every member for the earliest deadline."""
        times = (self.members.next_expiry(), self._join_deadline_ms, self._sync_deadline_ms)
        self._wake_ms = min((time for time in times if time is not None), default=None)

    def wake_by(self, time_ms: int) -> int:
        """See to it that `on_timer` is called at this time, or earlier."""
        if self._wake_ms is None or time_ms < self._wake_ms:
            self._wake_ms = time_ms
        return time_ms

    def start_session(self, member: Member, now_ms: int) -> None:
        """From now on a member's silence counts."""
        member.expires_ms = self.wake_by(now_ms + member.session_timeout_ms)

    def _expire_silent(self, out: Effects, now_ms: int) -> None:
        lapsed = [member_id for member_id, lapses_ms in self.members.pending.items() if lapses_ms <= now_ms]
        silent = [each.member_id for each in self.members.all() if each.can_expire and each.expires_ms <= now_ms]
        for member_id in lapsed + silent:
            self.dismiss(member_id, out)
        if silent:
            self.rebalance_without_the_gone(out, now_ms)
        elif lapsed:
            self.complete_join_if_all_are_there(out, now_ms)

    # Members that go

    def dismiss(self, member_id: str, out: Effects) -> None:
        """Remove a member, or an id that was given out; what it waits for is answered with UNKNOWN_MEMBER_ID."""
        member = self.members.by_id.get(member_id)
        if member is not None:
            self.forget_sync_of(member_id)
            self._answer_join(member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), out)
            self._answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), out)
        self.members.remove(member_id)

    def fence(self, member: Member, out: Effects) -> None:
        """Tell a process that waits as this static member that another has taken its place."""
        self.forget_sync_of(member.member_id)
        answer = JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
        self._answer_join(member, answer, out)
        self._answer_sync(member, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID), out)

    def rebalance_without_the_gone(self, out: Effects, now_ms: int) -> None:
        """After members went: begin a round for those that remain, or end the join phase if it waited for these."""
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare(out, now_ms)
        else:
            self.complete_join_if_all_are_there(out, now_ms)

    # The join phase

    def rebalance_or_complete_join(self, out: Effects, now_ms: int) -> None:
        """After a member joined: begin a round, or end the join phase if it was the last one missing."""
        if self.state is State.PREPARING:
            self.complete_join_if_all_are_there(out, now_ms)
        else:
            self._prepare(out, now_ms)

    def complete_join_if_all_are_there(self, out: Effects, now_ms: int) -> None:
        """End the join phase early if nobody is missing; a first round waits for its deadline, unless all have gone."""
        waits_for_more = self.is_first_round and len(self.members) > 0
        if self.state is State.PREPARING and self.members.have_all_joined and not waits_for_more:
            self._complete_join(out, now_ms)

    def _prepare(self, out: Effects, now_ms: int) -> None:
        if self.state is State.COMPLETING:
            self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, out, now_ms)
        self.awaits_sync_of.clear()
        self._sync_deadline_ms = None
        self.is_first_round = self.state is State.EMPTY
        self.has_newcomer = False
        self.become(State.PREPARING, now_ms)
        timeout_ms = self.members.rebalance_timeout_ms
        if self.is_first_round:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            self._first_round_left_ms = max(timeout_ms - delay_ms, 0)
            self._join_deadline_ms = self.wake_by(now_ms + delay_ms)
            if delay_ms == 0:
                self._on_join_deadline(out, now_ms)
        else:
            self._join_deadline_ms = self.wake_by(now_ms + timeout_ms)
            self.complete_join_if_all_are_there(out, now_ms)

    def _on_join_deadline(self, out: Effects, now_ms: int) -> None:
        if self.is_first_round and self.has_newcomer and self._first_round_left_ms > 0:
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._first_round_left_ms)
            self.has_newcomer = False
            self._first_round_left_ms -= delay_ms
            self._join_deadline_ms = self.wake_by(now_ms + delay_ms)
            return
        for member in self.members.all():
            if member.join_ticket is None and member.instance_id is None:
                self.dismiss(member.member_id, out)
        self._complete_join(out, now_ms)

    def _complete_join(self, out: Effects, now_ms: int) -> None:
        if not self.members.elect_leader() and self.members:
            # Static members only, and none has come back: they keep their places until their sessions end.
            self._join_deadline_ms = self.wake_by(now_ms + self.members.rebalance_timeout_ms)
            return
        self.generation += 1
        self.is_first_round = False
        self._join_deadline_ms = None
        if not self.members:
            self.protocol_name = None
            self.find_subscriptions()
            self.become(State.EMPTY, now_ms)
            out.records.append(self.record(now_ms))
            return
        self.protocol_name = self.members.select_protocol()
        self.find_subscriptions()
        self.become(State.COMPLETING, now_ms)
        for member in self.members.all():
            member.is_new = False
            self._answer_join(member, self.joined(member), out)
            self.start_session(member, now_ms)
        self.awaits_sync_of = set(self.members.by_id)
        self._sync_deadline_ms = self.wake_by(now_ms + self.members.rebalance_timeout_ms)

    def joined(self, member: Member, *, leader: str | None = None, skip_assignment: bool = False) -> JoinAnswer:
        """Tell a member of its generation, and the leader of all members."""
        leader = self.members.leader if leader is None else leader
        return JoinAnswer(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or "",
            skip_assignment=skip_assignment,
            members=self.members.described(self.protocol_name) if leader == member.member_id else (),
        )

    # The sync phase

    def forget_sync_of(self, member_id: str) -> None:
        """Wait no longer for this member's sync: it came, or the member went."""
        self.awaits_sync_of.discard(member_id)
        if not self.awaits_sync_of:
            self._sync_deadline_ms = None

    def assigned(self, member: Member) -> SyncAnswer:
        """Give a member its assignment."""
        return SyncAnswer(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def stored(self, token: object, error: ErrorCode, now_ms: int) -> Effects:
        """Go on where a record had to become durable first, if the group has not moved on meanwhile."""
        out = Effects()
        if isinstance(token, AssignmentStored):
            if self.state is State.COMPLETING and self.generation == token.generation:
                self._on_assignment_stored(token.assignments, error, out, now_ms)
        elif isinstance(token, StaticMemberStored) and self.state is State.STABLE:
            member = self.members.by_id.get(token.member_id)
            if member is not None and self.generation == token.generation:
                self._on_static_member_stored(member, token, error, out, now_ms)
        return out

    def _on_assignment_stored(
        self, assignments: Mapping[str, bytes], error: ErrorCode, out: Effects, now_ms: int
    ) -> None:
        if error is not ErrorCode.NONE:
            self._refuse_syncs(error, out, now_ms)
            self._prepare(out, now_ms)
            return
        self.become(State.STABLE, now_ms)
        for member in self.members.all():
            member.assignment = assignments.get(member.member_id, b"")
            if self._answer_sync(member, self.assigned(member), out):
                self.start_session(member, now_ms)

    def _on_static_member_stored(
        self, member: Member, token: StaticMemberStored, error: ErrorCode, out: Effects, now_ms: int
    ) -> None:
        if error is not ErrorCode.NONE:
            answer = JoinAnswer(error=error)
        elif token.can_skip_assignment:
            answer = self.joined(member, skip_assignment=member.member_id == self.members.leader)
        else:  # an old client that led before is told that somebody else leads, lest it assign anew (KIP-814)
            answer = self.joined(member, leader=token.leader_before)
        self._answer_join(member, answer, out)
        self.start_session(member, now_ms)

    def _refuse_syncs(self, error: ErrorCode, out: Effects, now_ms: int) -> None:
        for member in self.members.all():
            member.assignment = b""
            if self._answer_sync(member, SyncAnswer(error=error), out):
                self.start_session(member, now_ms)

    def _on_sync_deadline(self, out: Effects, now_ms: int) -> None:
        for member_id in list(self.awaits_sync_of):
            self.dismiss(member_id, out)
        self._prepare(out, now_ms)

    # Answers and records

    def _answer_join(self, member: Member, answer: JoinAnswer, out: Effects) -> None:
        ticket = self.members.take_join_ticket(member)
        if ticket is not None:
            out.answers.append((ticket, answer))

    def _answer_sync(self, member: Member, answer: SyncAnswer, out: Effects) -> bool:
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            out.answers.append((ticket, answer))
        return ticket is not None

    def record(self, now_ms: int, assignments: Mapping[str, bytes] | None = None) -> NewRecord:
        """Make the record from which the group can be restored; assignments are the members' own unless given."""
        members = [
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members.all()
        ]
        stored = StoredGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.members.leader,
            state_since_ms=self.state_since_ms,
            members=members,
        )
        return group_record(stored, now_ms)

    def find_subscriptions(self) -> None:
        """Read from the members' metadata which topics they are subscribed to, if they are consumers."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed = None
            return
        topics: set[str] = set()
        for member in self.members.all():
            subscribed = subscribed_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                self.subscribed = None
                return
            topics |= subscribed
        self.subscribed = frozenset(topics)
