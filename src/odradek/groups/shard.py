"""The groups of one partition of `__consumer_offsets` in one term of its leadership: what a coordinator is made of.

Drives the pure machines of both protocols and stores what they say before it answers; it decides nothing that a machine
could. A shard is never used again after its term: what comes back late from the log finds the old one and does nothing
to the next. Commits are in `offset_keeper.py`, reading the log is in `loading.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

from odradek.clock import Clock
from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import JoinAnswer, JoinRequest, Leaving, Left, SyncAnswer, SyncRequest
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_types import JOIN_EPOCH, Heartbeat, HeartbeatAnswer
from odradek.groups.deadlines import Deadlines
from odradek.groups.group import Effects, Group, Topics
from odradek.groups.journal import Journal
from odradek.groups.ledger import Ledger, told
from odradek.groups.loading import Loading
from odradek.groups.offset_keeper import OffsetKeeper
from odradek.model import TopicPartition
from odradek.records.record import Record
from odradek.wire.errors import ErrorCode, PeerError

logger = logging.getLogger(__name__)

NO_EPOCH = -1  # of a partition that was loaded before anybody told its leader's epoch

_Answer = TypeVar("_Answer")


class Standing(Enum):
    """What can be asked of a shard."""

    LOADING = 0  # nothing yet
    AT_WORK = 1
    DAMAGED = 2  # nothing: what is stored cannot be read, and what was read may be old


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    refusal: Callable[[ErrorCode], object]  # the answer in case that the term ends before a machine gives one


class Shard:
    """One partition's groups, their offsets and timers, and who waits for them."""

    def __init__(
        self, index: int, epoch: int, config: GroupConfig, clock: Clock, journal: Journal, topics: Topics
    ) -> None:
        self.index = index  # of the partition
        self.epoch = epoch  # of its leader: the term
        self.standing = Standing.LOADING
        self.groups: dict[str, Group] = {}
        self.ledger = Ledger(journal, index)
        self.offsets = OffsetKeeper(config, clock, self.ledger, self.groups, topics)
        self._config = config
        self._clock = clock
        self._journal = journal
        self._topics = topics
        self._deadlines = Deadlines(clock, self._on_deadline)
        self._tickets = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._told_states: dict[str, str] = {}  # of classic groups, as the log tells of them
        self._first_loaded: Record | None = None  # what the log began with
        self._loaded_places: set[TopicPartition] = set()  # of which offsets were loaded; emptied by `start`
        self._loaded_generations: dict[tuple[str, TopicPartition], int] = {}  # likewise: of partitions made again
        self._deleted_topics: set[str] = set()  # while the shard was loading
        self._is_over = False

    # Called by the coordinator as the term begins and ends

    def loading(self) -> Generator[None, None, None]:
        """Read what is stored, a little with each step; at work after the last. PeerError if that cannot be."""
        loading = Loading(self._config, self._topics, self._clock, self.offsets)
        yield from loading.read(self._journal, self.index)
        for group in loading.groups():
            self.groups[group.group_id] = group
            self._deadlines.arm(group.group_id, group.next_deadline())
            yield
        self._first_loaded, self._loaded_places = loading.first, loading.places
        self._loaded_generations = loading.generations
        self.standing = Standing.AT_WORK

    def knows_its_log(self) -> bool:
        """Whether the log still begins with what was loaded or, if that was nothing, with what was written here.

        If it does not, there was more to load than was known at the time.
        """
        try:
            first = next(self._journal.read(self.index), None)
        except PeerError:
            return False
        if first is None:
            return self._first_loaded is None
        known = self._first_loaded or self.ledger.first
        return known is not None and (known.key, known.value) == (first.key, first.value)

    def start(self) -> None:
        """Let timers ring, in the running loop, and drop what was committed for topics and partitions that are gone.

        Their deletion may have come while the shard was loading, or a crash before it was stored.
        """
        deleted = self._deleted_topics
        # Groups may have committed a million offsets, and nearly always all of them count.
        doubtful = {each for each in self._loaded_places if each.topic in deleted or self._topics.generation(each) != 0}
        if doubtful:
            self.offsets.forget(
                lambda group_id, where: (
                    where in doubtful and (where.topic in deleted or self._is_outdated(group_id, where))
                )
            )
        self._loaded_places.clear()
        self._loaded_generations.clear()
        self._deleted_topics.clear()
        self._deadlines.start()

    def _is_outdated(self, group_id: str, where: TopicPartition) -> bool:
        """Whether a commit that was loaded is for a partition that is gone, or was made again since."""
        current = self._topics.generation(where)
        return current is None or current > self._loaded_generations.get((group_id, where), 0)

    def stop(self) -> None:
        """Let no timer ring any more."""
        self._deadlines.close()

    def end(self, answer: ErrorCode, error: ErrorCode) -> None:
        """End the term: all who wait for a machine are told the answer, all who wait for the log its error."""
        self._is_over = True
        self.stop()
        waiting, self._waiting = self._waiting, {}
        for future, refusal in waiting.values():
            if not future.done():
                future.set_result(refusal(answer))
        self.ledger.abandon(error)

    def forget_topic(self, topic: str) -> None:
        """Forget the offsets of a topic that was deleted; while loading, when all is loaded."""
        if self.standing is Standing.LOADING:
            self._deleted_topics.add(topic)
        elif self.standing is Standing.AT_WORK:
            self.offsets.forget_topic(topic)

    def forget_partition(self, where: TopicPartition) -> None:
        """Forget the offsets of a partition that was deleted; while loading, `start` will see it."""
        if self.standing is Standing.AT_WORK:
            self.offsets.forget_partition(where)

    # Called for requests of classic members; all raise PeerError where no group can be asked

    def join(self, group_id: str, request: JoinRequest) -> asyncio.Future[JoinAnswer]:
        """Join a group; the answer comes when all of its members have."""
        group = self._group_to_join(group_id, request)
        ticket, future = self._queue(lambda error: JoinAnswer(error=error, member_id=request.member_id))
        self._carry_out(group, group.join(request, ticket, self._clock.now_ms()))
        return future

    def sync(self, group_id: str, request: SyncRequest) -> asyncio.Future[SyncAnswer]:
        """Fetch an assignment, or bring those of all; the answer comes when they are durable."""
        group = self._classic(group_id)
        ticket, future = self._queue(lambda error: SyncAnswer(error=error))
        self._carry_out(group, group.sync(request, ticket, self._clock.now_ms()))
        return future

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Keep a member alive."""
        return self._classic(group_id).heartbeat(member_id, instance_id, generation, self._clock.now_ms())

    async def leave(self, group_id: str, leaving: Sequence[Leaving]) -> list[Left]:
        """Let members go; if nobody is left, that is stored first."""
        group = self._classic(group_id)
        results, effects = group.leave(leaving, self._clock.now_ms())
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._carry_out(group, effects, lambda error: None if stored.done() else stored.set_result(told(error)))
        error = await stored if effects.records else ErrorCode.NONE
        if error is not ErrorCode.NONE:
            raise PeerError(error)
        return results

    # Called for requests of members that speak the consumer protocol

    def live(self, group_id: str, beat: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Join, live on in or leave a group of the consumer protocol; raises PeerError for what is refused."""
        group = self._group_to_live_in(group_id, beat)
        ticket, future = self._queue(
            lambda error: HeartbeatAnswer(error=error, member_id=beat.member_id, member_epoch=beat.member_epoch)
        )
        try:
            effects = group.heartbeat(beat, ticket, self._clock.now_ms())
        except PeerError:
            del self._waiting[ticket]
            raise
        if group is not self.groups.get(group_id):
            self._admit(group)
        self._carry_out(group, effects)
        return future

    # Called for administrators' requests and by timers

    def delete_group(self, group_id: str) -> asyncio.Future[ErrorCode]:
        """Delete an empty group with its offsets; the future tells when that is durable."""
        group = self.groups.get(group_id)
        if group is None:
            raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.delete(self._clock.now_ms())
        return self._erase(group)

    def run_due(self) -> None:
        """Act on every deadline that has passed; the shard's own timer does so, too."""
        self._deadlines.run_due()

    def expire_offsets(self) -> None:
        """Drop the offsets, and the empty groups, that nobody has used for so long as the settings say."""
        now_ms = self._clock.now_ms()
        for group in list(self.groups.values()):
            if self.offsets.expire(group, now_ms):
                group.delete(now_ms)
                self._erase(group)

    def _on_deadline(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            self._carry_out(group, group.on_timer(now_ms))

    # Driving the machines

    def _queue(self, refusal: Callable[[ErrorCode], _Answer]) -> tuple[int, asyncio.Future[_Answer]]:
        """A ticket for a machine and the future that its answer will arrive in."""
        ticket = next(self._tickets)
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = _Waiting(future, refusal)
        return ticket, future

    def _carry_out(self, group: Group, effects: Effects, then: Callable[[ErrorCode], None] | None = None) -> None:
        """Do what a machine wants done; `then` hears of the fate of its records, if there are any."""
        for ticket, answer in effects.answers:
            future, _ = self._waiting.pop(ticket)
            if not future.done():
                future.set_result(answer)
        if effects.records:
            stored = partial(self._on_stored, group, effects.token, then)
            self.ledger.append(group.group_id, effects.records, stored)
        if self.groups.get(group.group_id) is group:
            self._tell_state(group)
            self._deadlines.arm(group.group_id, group.next_deadline())
            self._forget_if_never_used(group)

    def _on_stored(
        self, group: Group, token: object, then: Callable[[ErrorCode], None] | None, error: ErrorCode
    ) -> None:
        if token is not None and not self._is_over:
            self._carry_out(group, group.stored(token, told(error), self._clock.now_ms()))
        if then is not None:
            then(error)

    def _tell_state(self, group: Group) -> None:
        if not isinstance(group, ClassicGroup) or (group.is_empty and group.generation == 0):
            return
        if self._told_states.get(group.group_id) != group.state:
            self._told_states[group.group_id] = group.state
            text = "group %r is %s in generation %d with %d members"
            logger.info(text, group.group_id, group.state, group.generation, len(group.members))

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
        new = ClassicGroup(group_id, self._config, self._clock.now_ms())
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
        return ConsumerGroup(group_id, self._config, self._topics)

    def _admit(self, new: Group) -> None:
        """Put a new group into the table; an empty one of the other kind gives way, its offsets stay."""
        old = self.groups.get(new.group_id)
        self.groups[new.group_id] = new
        if old is not None:
            now_ms = self._clock.now_ms()
            old.delete(now_ms)
            self._told_states.pop(old.group_id, None)
            self.ledger.append(old.group_id, old.tombstones(now_ms), lambda _: None)

    def _erase(self, group: Group) -> asyncio.Future[ErrorCode]:
        now_ms = self._clock.now_ms()
        self._remove(group)
        records = self.offsets.take_all(group.group_id, now_ms) + group.tombstones(now_ms)
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.ledger.append(group.group_id, records, lambda error: None if done.done() else done.set_result(told(error)))
        return done

    def _forget_if_never_used(self, group: Group) -> None:
        """Drop a group that nobody ever was a member of: one asked for an id and did not come back, say."""
        never_joined = isinstance(group, ClassicGroup) and group.generation == 0 and not group.members.pending
        if never_joined and group.is_empty and group.group_id not in self.offsets:
            self._remove(group)

    def _remove(self, group: Group) -> None:
        del self.groups[group.group_id]
        self._told_states.pop(group.group_id, None)
