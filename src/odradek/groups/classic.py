"""One group of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) as a pure state machine.

Requests and the time go in, `Effects` come out. Follows Kafka's coordinator in the order of its checks, KIP-345
(static members), KIP-394 (ids are given out before a member counts) and KIP-814 (skip_assignment). One thing differs
on purpose: no waiting request is ever left without an answer. Offsets are not kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from odradek.groups.classic_members import Member
from odradek.groups.classic_rounds import Rounds
from odradek.groups.classic_types import (
    AssignmentStored,
    JoinAnswer,
    JoinRequest,
    Leaving,
    Left,
    State,
    StaticMemberStored,
    SyncAnswer,
    SyncRequest,
)
from odradek.groups.config import GroupConfig
from odradek.groups.group import Effects
from odradek.groups.storage import StoredGroup, group_tombstone
from odradek.groups.subscription import CONSUMER_PROTOCOL_TYPE
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000  # a first join waits no longer, since its sender cannot send heartbeats yet
_NO_TIME = -1


class ClassicGroup(Rounds):
    """A group whose members assign the partitions among themselves."""

    kind: Literal["classic"] = "classic"

    @classmethod
    def restored(cls, stored: StoredGroup, config: GroupConfig, now_ms: int) -> ClassicGroup:
        """Take up a group as its record says; its members have a session's time to show that they are still there."""
        group = cls(stored.group_id, config, now_ms)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol_name
        group.state_since_ms = stored.state_since_ms
        for member in stored.members:
            group.members.add(
                Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    session_timeout_ms=member.session_timeout_ms,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    proposals=member.proposals(stored.protocol_name),
                    expires_ms=now_ms + member.session_timeout_ms,
                    assignment=member.assignment,
                )
            )
        if group.members:
            group.state = State.STABLE
            if stored.leader in group.members.by_id:
                group.members.leader = stored.leader
        group.find_subscriptions()
        group.find_next_deadline()
        return group

    # Called for a request of a member

    def join(self, request: JoinRequest, ticket: int, now_ms: int) -> Effects:
        """Join the next generation; the answer may come with this call, or when the others have joined."""
        out = Effects()
        members = self.members
        if not self._has_room_for(request):
            self.dismiss(request.member_id, out)
            out.answers.append((ticket, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED)))
            self.complete_join_if_all_are_there(out, now_ms)
        elif self.state is State.DEAD:
            self._refuse_join(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, ticket, out)
        elif not self._supports(request):
            self._refuse_join(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ticket, out)
        elif not request.member_id:
            self._join_without_id(request, ticket, out, now_ms)
        elif request.member_id in members.pending:
            if request.instance_id is not None:
                self._refuse_join(request, ErrorCode.INVALID_REQUEST, ticket, out)
            else:
                self._add_member(request, request.member_id, ticket, out, now_ms)
        else:
            try:
                member = members.require(request.member_id, request.instance_id)
            except PeerError as refused:
                self._refuse_join(request, refused.code, ticket, out)
            else:
                self._rejoin(member, request, ticket, out, now_ms)
        return out

    def sync(self, request: SyncRequest, ticket: int, now_ms: int) -> Effects:
        """Bring (the leader) or fetch (the others) the assignment of a generation."""
        out = Effects()
        error = self._sync_error(request)
        if error is not ErrorCode.NONE:
            out.answers.append((ticket, SyncAnswer(error=error)))
            return out
        member = self.members.by_id[request.member_id]
        self.forget_sync_of(member.member_id)
        if self.state is State.STABLE:
            out.answers.append((ticket, self.assigned(member)))
            return out
        if member.sync_ticket is not None:
            out.answers.append((member.sync_ticket, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_ticket = ticket
        if member.member_id == self.members.leader and not self.is_storing:
            self.is_storing = True
            assignments = {each: request.assignments.get(each, b"") for each in self.members.by_id}
            out.records.append(self.record(now_ms, assignments))
            out.token = AssignmentStored(self.generation, assignments)
        return out

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Keep a member alive; REBALANCE_IN_PROGRESS tells it to join again."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member = self.members.by_id.get(member_id)
        if member is None or instance_id is not None:
            try:
                member = self.members.require(member_id, instance_id)
            except PeerError as refused:
                return refused.code
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.expires_ms = now_ms + member.session_timeout_ms
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def leave(self, leaving: Sequence[Leaving], now_ms: int) -> tuple[list[Left], Effects]:
        """Let members go; those that remain are rebalanced once, however many went."""
        out = Effects()
        if self.state is State.DEAD:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted")
        results = [Left(*one, self._leave_one(one, out)) for one in leaving]
        if any(left.error is ErrorCode.NONE for left in results):
            self.rebalance_without_the_gone(out, now_ms)
        return results, out

    # Called by the coordinator for either kind of group

    @property
    def is_empty(self) -> bool:
        """Whether nobody is a member."""
        return self.state is State.EMPTY

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Refuse a commit by a stranger, or by a member of another generation; a good one is a sign of life."""
        if self.state is State.DEAD:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted")
        if generation < 0 and self.state is State.EMPTY:
            return  # an administrator, or a consumer that assigns its partitions itself
        if generation < 0 and not member_id and instance_id is None:
            raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members: only they may commit")
        member = self.members.require(member_id, instance_id)
        if generation != self.generation:
            raise PeerError(ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {self.generation}")
        if self.state is State.COMPLETING:
            raise PeerError(ErrorCode.REBALANCE_IN_PROGRESS, "fetch the assignment first")
        member.expires_ms = now_ms + member.session_timeout_ms

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may read the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        """Refuse while members exist whose subscriptions we cannot read."""
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise PeerError(ErrorCode.NON_EMPTY_GROUP, "the group has members")

    def is_subscribed(self, topic: str) -> bool:
        """Whether a consumer of the group reads the topic."""
        return self.subscribed is not None and topic in self.subscribed

    def expires_from(self, commit_ms: int) -> int | None:
        """KIP-211: from the group's becoming empty; in a live group of consumers, from the commit."""
        if self.protocol_type is None:
            return commit_ms
        if self.state is State.EMPTY:
            return commit_ms if self.state_since_ms == _NO_TIME else self.state_since_ms
        if self.state is State.STABLE and self.subscribed is not None:
            return commit_ms
        return None

    def tombstones(self, now_ms: int) -> list[NewRecord]:
        """The record that removes the group."""
        return [group_tombstone(self.group_id, now_ms)]

    def delete(self, now_ms: int) -> None:
        """Become DEAD, unless there are members: stray calls on the object are turned away from now on."""
        if not self.is_empty:
            raise PeerError(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        self.become(State.DEAD, now_ms)

    # Joining

    def _has_room_for(self, request: JoinRequest) -> bool:
        members, size_max = self.members, self.config.group_max_size
        if not request.member_id and request.must_know_its_id and len(members.pending) >= size_max:
            return False
        member = members.by_id.get(request.member_id)
        if self.state is State.PREPARING:  # the last to join are turned away if the bound was lowered meanwhile
            return (member is not None and member.join_ticket is not None) or members.awaiting_join < size_max
        if self.state in (State.COMPLETING, State.STABLE):
            return member is not None or self._replaces_static(request) or len(members) < size_max
        return True

    def _replaces_static(self, request: JoinRequest) -> bool:
        return request.instance_id is not None and self.members.static(request.instance_id) is not None

    def _supports(self, request: JoinRequest) -> bool:
        if self.state is State.EMPTY:
            return bool(request.protocol_type) and bool(request.proposals)
        return self.protocol_type == request.protocol_type and self.members.support_one_of(request.proposals)

    def _refuse_join(self, request: JoinRequest, error: ErrorCode, ticket: int, out: Effects) -> None:
        out.answers.append((ticket, JoinAnswer(error=error, member_id=request.member_id)))

    def _join_without_id(self, request: JoinRequest, ticket: int, out: Effects, now_ms: int) -> None:
        member_id = request.fresh_member_id
        if request.instance_id is not None:
            member = self.members.static(request.instance_id)
            if member is not None:
                self._replace_static(member, request, ticket, out, now_ms)
            else:
                self._add_member(request, member_id, ticket, out, now_ms)
        elif request.must_know_its_id:
            self.members.pending[member_id] = self.wake_by(now_ms + request.session_timeout_ms)
            out.answers.append((ticket, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)))
        else:
            self._add_member(request, member_id, ticket, out, now_ms)

    def _add_member(self, request: JoinRequest, member_id: str, ticket: int, out: Effects, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        if self.is_first_round:
            self.has_newcomer = True
        self.members.add(
            Member(
                member_id=member_id,
                instance_id=request.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                proposals=request.proposals,
                expires_ms=self.wake_by(now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS),
                is_new=True,
                join_ticket=ticket,
            )
        )
        self.rebalance_or_complete_join(out, now_ms)

    def _rejoin(self, member: Member, request: JoinRequest, ticket: int, out: Effects, now_ms: int) -> None:
        is_leader = member.member_id == self.members.leader
        is_unchanged = member.proposals == request.proposals
        if self.state is State.COMPLETING and is_unchanged:
            out.answers.append((ticket, self.joined(member)))  # it missed our first answer
        elif self.state is State.STABLE and is_unchanged and not is_leader:
            out.answers.append((ticket, self.joined(member)))
        else:  # a leader that joins a stable group wants to assign anew: topics have changed, say
            self._update_member(member, request, ticket, out)
            self.rebalance_or_complete_join(out, now_ms)

    def _update_member(self, member: Member, request: JoinRequest, ticket: int, out: Effects) -> None:
        self.members.update(member, request.proposals)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        superseded = self.members.await_join(member, ticket)
        if superseded is not None:  # an earlier try, most likely over a connection that broke
            answer = JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            out.answers.append((superseded, answer))

    def _replace_static(self, member: Member, request: JoinRequest, ticket: int, out: Effects, now_ms: int) -> None:
        """A process with a known instance id came (back) without a member id: it takes the place, the old is fenced."""
        leader_before = self.members.leader or ""
        self.fence(member, out)
        self.members.rename(member, request.fresh_member_id)
        self._update_member(member, request, ticket, out)
        self.start_session(member, now_ms)
        if self.state is State.STABLE and self.members.select_protocol() == self.protocol_name:
            out.records.append(self.record(now_ms))
            out.token = StaticMemberStored(
                self.generation, member.member_id, leader_before, request.can_skip_assignment
            )
        else:  # while COMPLETING too: the leader may be assigning to the old id at this moment
            self.rebalance_or_complete_join(out, now_ms)

    # Syncing and leaving

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            self.members.require(request.member_id, request.instance_id)
        except PeerError as refused:
            return refused.code
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def _leave_one(self, leaving: Leaving, out: Effects) -> ErrorCode:
        member_id = leaving.member_id
        if not member_id:
            member = None if leaving.instance_id is None else self.members.static(leaving.instance_id)
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = member.member_id
        elif member_id not in self.members.pending:
            try:
                self.members.require(member_id, leaving.instance_id)
            except PeerError as refused:
                return refused.code
        self.dismiss(member_id, out)
        return ErrorCode.NONE
