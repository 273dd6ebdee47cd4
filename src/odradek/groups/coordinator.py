"""The group coordinator: owns all groups, drives their machines, stores what they say before it answers.

The async shell around the pure machines of both protocols; it decides nothing that a machine could. Commits are in
`offset_keeper.py`, reading the log at start in `loading.py`. Timeouts run by the clock that it is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from odradek.clock import Clock
from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import JoinAnswer, JoinRequest, Leaving, Left, SyncAnswer, SyncRequest
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_types import JOIN_EPOCH, Heartbeat, HeartbeatAnswer
from odradek.groups.deadlines import Deadlines
from odradek.groups.group import Effects, Group, Topics
from odradek.groups.journal import Journal
from odradek.groups.ledger import Ledger, partition_of, told
from odradek.groups.loading import Loading
from odradek.groups.offset_keeper import OffsetKeeper
from odradek.wire.errors import ErrorCode, PeerError

logger = logging.getLogger(__name__)

NAME_LENGTH_MAX = 8_000  # characters of an id or a protocol's name: what is stored has room for 32,767 bytes
_PREFIX_LENGTH_MAX = 255  # characters of a client's or an instance's name that go into a member id

_Answer = TypeVar("_Answer")


class Coordinator:
    """All groups of this broker. Lives in one event loop; every method is called there."""

    def __init__(
        self, config: GroupConfig, clock: Clock, journal: Journal, topics: Topics, chance: Callable[[], str]
    ) -> None:
        self.config = config
        self.topics = topics
        self.groups: dict[str, Group] = {}
        self._clock = clock
        self._journal = journal
        self._chance = chance
        self._ledger = Ledger(journal)
        self.offsets = OffsetKeeper(config, clock, self._ledger, self.groups)
        self._deadlines = Deadlines(clock, self._on_deadline)
        self._refusal: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # None: at work
        self._tickets = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], object]] = {}  # with the answer in case we close
        self._expiry: asyncio.TimerHandle | None = None
        self._unreadable: frozenset[int] = frozenset()  # partitions of the journal that are damaged
        self._told_states: dict[str, str] = {}  # of classic groups, as the log tells of them

    # Called by whoever starts and stops the broker

    def load(self) -> None:
        """Read all groups and offsets from the journal."""
        loading = Loading(self.config, self.topics, self.offsets)
        loading.read(self._journal)
        self._unreadable = frozenset(loading.unreadable)
        self.groups.update(loading.groups(self._clock.now_ms()))
        for group in self.groups.values():
            self._deadlines.arm(group.group_id, group.next_deadline())
        logger.info("%d groups loaded", len(self.groups))

    def _forget_deleted_topics(self) -> None:
        """Drop what was committed for topics that are gone: a crash may have come before that was stored."""
        for topic in self.offsets.topics() - self.topics.partition_counts().keys():
            self.offsets.forget_topic(topic)

    def start(self) -> None:
        """Begin to serve, in the running loop; sessions of members that were loaded run from `load` on."""
        self._refusal = None
        self._forget_deleted_topics()
        self._deadlines.start()
        self._schedule_expiry()

    async def close(self) -> None:
        """Refuse what comes, answer everybody who waits, and let what was written become durable."""
        self._refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._deadlines.close()
        if self._expiry is not None:
            self._expiry.cancel()
        await self._ledger.drain()
        for future, refusal in self._waiting.values():
            if not future.done():
                future.set_result(refusal)
        self._waiting.clear()

    # Called for requests of classic members; all raise PeerError where no group can be asked

    def join(self, group_id: str, request: JoinRequest) -> asyncio.Future[JoinAnswer]:
        """Join a group; the answer comes when all of its members have."""
        self.check_served(group_id)
        self._check_join(request)
        group = self._group_to_join(group_id, request)
        ticket, future = self.queue_for(JoinAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.carry_out(group, group.join(request, ticket, self._clock.now_ms()))
        return future

    def sync(self, group_id: str, request: SyncRequest) -> asyncio.Future[SyncAnswer]:
        """Fetch an assignment, or bring those of all; the answer comes when they are durable."""
        self.check_served(group_id)
        group = self._classic(group_id)
        ticket, future = self.queue_for(SyncAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.carry_out(group, group.sync(request, ticket, self._clock.now_ms()))
        return future

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Keep a member alive."""
        self.check_served(group_id)
        return self._classic(group_id).heartbeat(member_id, instance_id, generation, self._clock.now_ms())

    async def leave(self, group_id: str, leaving: Sequence[Leaving]) -> list[Left]:
        """Let members go; if nobody is left, that is stored first."""
        self.check_served(group_id)
        group = self._classic(group_id)
        results, effects = group.leave(leaving, self._clock.now_ms())
        await self.carried_out(group, effects)
        return results

    def fresh_member_id(self, client_id: str, instance_id: str | None) -> str:
        """Make up an id for a member: its client's or its instance's name, and chance."""
        prefix = client_id if instance_id is None else instance_id
        return f"{prefix[:_PREFIX_LENGTH_MAX]}-{self._chance()}"

    # Called for requests of members that speak the consumer protocol

    def live(self, group_id: str, beat: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Join, live on in or leave a group of the consumer protocol; raises PeerError for what is refused."""
        self.check_served(group_id)
        group = self._group_to_live_in(group_id, beat)
        refusal = HeartbeatAnswer(
            error=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=beat.member_id, member_epoch=beat.member_epoch
        )
        ticket, future = self.queue_for(refusal)
        try:
            effects = group.heartbeat(beat, ticket, self._clock.now_ms())
        except PeerError:
            del self._waiting[ticket]
            raise
        if group is not self.groups.get(group_id):
            self._admit(group)
        self.carry_out(group, effects)
        return future

    # Called for administrators' requests

    def delete_group(self, group_id: str) -> asyncio.Future[ErrorCode]:
        """Delete an empty group with its offsets; the future tells when that is durable."""
        self.check_at_work()
        group = self.groups.get(group_id)
        if group is None:
            raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.delete(self._clock.now_ms())
        return self._erase(group)

    # Called for requests that concern any group

    def now_ms(self) -> int:
        """The time by which groups live."""
        return self._clock.now_ms()

    def check_at_work(self) -> None:
        """Refuse everything before the groups are loaded and after closing."""
        if self._refusal is not None:
            raise PeerError(self._refusal)

    def check_served(self, group_id: str, *, may_be_nameless: bool = False) -> None:
        """Refuse, too, a group that cannot be: members need one with a name, offsets do not."""
        self.check_at_work()
        if len(group_id) > NAME_LENGTH_MAX or not (group_id or may_be_nameless):
            raise PeerError(ErrorCode.INVALID_GROUP_ID)
        if self._unreadable and partition_of(group_id, self._journal.partition_count) in self._unreadable:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "what was stored of the group is damaged")

    def queue_for(self, refusal: _Answer) -> tuple[int, asyncio.Future[_Answer]]:
        """A ticket for a machine and the future that its answer will arrive in; `refusal` is the answer if we close."""
        ticket = next(self._tickets)
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = (future, refusal)
        return ticket, future

    def carry_out(self, group: Group, effects: Effects, then: Callable[[ErrorCode], None] | None = None) -> None:
        """Do what a machine wants done; `then` hears of the fate of its records, if there are any."""
        for ticket, answer in effects.answers:
            future, _ = self._waiting.pop(ticket)
            if not future.done():
                future.set_result(answer)
        if effects.records:
            stored = partial(self._on_stored, group, effects.token, then)
            self._ledger.append(group.group_id, effects.records, stored)
        if self.groups.get(group.group_id) is group:
            self._tell_state(group)
            self._deadlines.arm(group.group_id, group.next_deadline())
            self._forget_if_never_used(group)

    async def carried_out(self, group: Group, effects: Effects) -> None:
        """Do what a machine wants done, and wait until its records are durable or lost."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        has_records = bool(effects.records)
        self.carry_out(group, effects, lambda _: None if done.done() else done.set_result(None))
        if has_records:
            await done

    # Called by timers

    def run_due(self) -> None:
        """Act on every deadline that has passed; the coordinator's own timer does so, too."""
        self._deadlines.run_due()

    def expire_offsets(self) -> None:
        """Drop the offsets, and the empty groups, that nobody has used for so long as the settings say."""
        now_ms = self._clock.now_ms()
        for group in list(self.groups.values()):
            if self.offsets.expire(group, now_ms):
                group.delete(now_ms)
                self._erase(group)

    def _schedule_expiry(self) -> None:
        delay = self.config.offsets_retention_check_interval_ms / 1000
        self._expiry = asyncio.get_running_loop().call_later(delay, self._on_expiry)

    def _on_expiry(self) -> None:
        self.expire_offsets()
        self._schedule_expiry()

    def _on_deadline(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            self.carry_out(group, group.on_timer(now_ms))

    # Groups that come and go

    def _classic(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _group_to_join(self, group_id: str, request: JoinRequest) -> ClassicGroup:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None and not group.is_empty:
            raise PeerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "its members speak the consumer protocol")
        if request.member_id:
            raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID)
        new = ClassicGroup(group_id, self.config, self._clock.now_ms())
        self._admit(new)
        return new

    def _group_to_live_in(self, group_id: str, beat: Heartbeat) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if beat.member_epoch != JOIN_EPOCH:  # GROUP_ID_NOT_FOUND would end the client, this one lets it join again
            raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, "there is no such group any more: join again")
        if group is not None and not group.is_empty:
            raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, "its members speak the classic protocol")
        return ConsumerGroup(group_id, self.config, self.topics)

    def _admit(self, new: Group) -> None:
        """Put a new group into the table; an empty one of the other kind gives way, its offsets stay."""
        old = self.groups.get(new.group_id)
        self.groups[new.group_id] = new
        if old is not None:
            now_ms = self._clock.now_ms()
            old.delete(now_ms)
            self._told_states.pop(old.group_id, None)
            self._ledger.append(old.group_id, old.tombstones(now_ms), lambda _: None)

    def _check_join(self, request: JoinRequest) -> None:
        low, high = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise PeerError(ErrorCode.INVALID_SESSION_TIMEOUT, f"allowed are {low} to {high} ms")
        names = [request.instance_id or "", request.protocol_type, *(proposal.name for proposal in request.proposals)]
        if max(map(len, names)) > NAME_LENGTH_MAX:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"a name has at most {NAME_LENGTH_MAX} characters")

    def _erase(self, group: Group) -> asyncio.Future[ErrorCode]:
        now_ms = self._clock.now_ms()
        self._remove(group)
        records = self.offsets.take_all(group.group_id, now_ms) + group.tombstones(now_ms)
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._ledger.append(
            group.group_id, records, lambda error: None if done.done() else done.set_result(told(error))
        )
        return done

    def _forget_if_never_used(self, group: Group) -> None:
        """Drop a group that nobody ever was a member of: one asked for an id and did not come back, say."""
        never_joined = isinstance(group, ClassicGroup) and group.generation == 0 and not group.members.pending
        if never_joined and group.is_empty and group.group_id not in self.offsets:
            self._remove(group)

    def _remove(self, group: Group) -> None:
        del self.groups[group.group_id]
        self._told_states.pop(group.group_id, None)

    def _tell_state(self, group: Group) -> None:
        if not isinstance(group, ClassicGroup) or (group.is_empty and group.generation == 0):
            return
        if self._told_states.get(group.group_id) != group.state:
            self._told_states[group.group_id] = group.state
            text = "group %r is %s in generation %d with %d members"
            logger.info(text, group.group_id, group.state, group.generation, len(group.members))

    def _on_stored(
        self, group: Group, token: object, then: Callable[[ErrorCode], None] | None, error: ErrorCode
    ) -> None:
        if token is not None:
            self.carry_out(group, group.stored(token, told(error), self._clock.now_ms()))
        if then is not None:
            then(error)
