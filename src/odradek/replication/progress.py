"""A leader's view of one partition's followers: how far each has flushed, who is in sync, how far all may read.

Pure: times come as arguments. The high watermark counts the maximal in-sync set, that is, the one the controller has
confirmed and the one proposed to it, since either may be the truth (KIP-497); it stands still while fewer than
min.insync.replicas are in sync (KIP-966). A follower's answers count by the life of its broker (KIP-903).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from odradek.model import Offset

NO_OFFSET: Offset = -1  # not heard of since this leader began
NO_BROKER_EPOCH = -1
FAR: Offset = 2**63 - 1
WAIT_FOR_JOINING_MS = 2_000  # the high watermark waits no longer for one that is about to join and says nothing
REFUSED_PAUSE_MS = 1_000  # nor for one that the controller refused so lately, which is not proposed again either

Isr: TypeAlias = tuple[tuple[int, int], ...]  # broker id and broker epoch; -1: the epoch is not known


@dataclass(slots=True)
class _Follower:
    """What the leader knows of one follower."""

    end: Offset = NO_OFFSET  # all below is flushed there
    acknowledged: Offset = NO_OFFSET  # by another door than Fetch: counts for `everywhere` only
    broker_epoch: int = NO_BROKER_EPOCH
    fetched_ms: int = 0
    leader_end: Offset = FAR  # the leader's end at its last fetch
    caught_up_ms: int | None = None  # when it last had all that the leader had; None: never
    may_join: bool = False  # it has fetched since it was last refused or put out
    joining: bool = False  # it keeps pace: the high watermark waits for it, or it would never get there under load
    refused_ms: int | None = None


class Progress:
    """The followers of one partition, during one leader epoch. A new epoch begins with a new object."""

    def __init__(
        self,
        node_id: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        leader_epoch: int,
        partition_epoch: int,
        start_offset: Offset,
        now: int,
    ) -> None:
        """`start_offset` is where the leader's log ended when its epoch began."""
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)  # as the controller has confirmed it
        self.partition_epoch = partition_epoch
        self.proposal: Isr | None = None  # sent to the controller, which may or may not have taken it
        self._now = now
        self._followers = {id_: _Follower() for id_ in self.replicas if id_ != node_id}
        for id_, follower in self._followers.items():
            follower.caught_up_ms = now if id_ in self.isr else None  # time to begin fetching from this leader
        self._counted: tuple[_Follower, ...] = ()  # those that the high watermark looks at
        self._waits = False  # some of them are joining
        self._count()

    # What the metadata say.

    def update(self, replicas: Iterable[int], isr: Iterable[int], partition_epoch: int) -> None:
        """Take newer metadata of the same leader epoch; what was proposed before it is decided by it."""
        if partition_epoch < self.partition_epoch:
            return
        self.replicas = tuple(replicas)
        known = self._followers
        self._followers = {id_: known.get(id_) or _Follower() for id_ in self.replicas if id_ != self.node_id}
        if partition_epoch > self.partition_epoch:  # else the in-sync set is known, as the answer to a proposal
            self.partition_epoch = partition_epoch
            self.proposal = None
            self._set_isr(tuple(isr))
        self._count()

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        for id_, follower in self._followers.items():
            if id_ in isr and id_ not in self.isr:
                follower.caught_up_ms = self._now
            if id_ in isr or id_ in self.isr:  # in, or put out: it must fetch again before it is taken in
                follower.may_join = follower.joining = False
        self.isr = isr
        self._count()

    def _count(self) -> None:
        maximal = self.maximal_isr
        self._counted = tuple(
            follower for id_, follower in self._followers.items() if id_ in maximal or follower.joining
        )
        self._waits = any(follower.joining for follower in self._counted)

    @property
    def is_whole(self) -> bool:
        """Whether all replicas are in sync: then a fetch that names no new position has nothing to tell."""
        return len(self.isr) > len(self._followers)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everyone who may be in sync as far as this leader can know."""
        return frozenset((*self.isr, *(id_ for id_, _ in self.proposal or ())))

    # What the followers say.

    def fetched(self, follower: int, fetch_offset: Offset, leader_end: Offset, now: int, broker_epoch: int) -> None:
        """A follower has flushed all below `fetch_offset`.

        Only for a fetch that is good: of this leader epoch, within the log, and of the leader's own history (KIP-279).
        One from an earlier life of its broker, or from a broker that holds no replica, is passed over.
        """
        self._now = max(self._now, now)
        state = self._followers.get(follower)
        if state is None or broker_epoch < state.broker_epoch or not 0 <= fetch_offset <= leader_end:
            return
        if broker_epoch != state.broker_epoch:
            state.broker_epoch, state.leader_end, state.refused_ms = broker_epoch, FAR, None
        state.end = fetch_offset
        if fetch_offset >= leader_end:
            state.caught_up_ms = now
        elif fetch_offset >= state.leader_end:
            state.caught_up_ms = max(state.caught_up_ms or 0, state.fetched_ms)
        keeps_pace = fetch_offset >= min(state.leader_end, leader_end)
        state.leader_end, state.fetched_ms = leader_end, now
        if follower not in self.isr:
            state.may_join = True
            self._wait_for(state, keeps_pace)
        if self._waits:
            self._stop_waiting(now)

    def _was_refused_lately(self, state: _Follower) -> bool:
        return state.refused_ms is not None and self._now - state.refused_ms < REFUSED_PAUSE_MS

    def _wait_for(self, state: _Follower, keeps_pace: bool) -> None:
        """Decide whether the high watermark waits for a follower that is not in sync yet."""
        joining = keeps_pace and state.end >= self.start_offset and not self._was_refused_lately(state)
        if joining != state.joining:
            state.joining = joining
            self._count()

    def acknowledged(self, follower: int, end: Offset) -> None:
        """A follower says by another door that it has all below `end`: for `everywhere` alone."""
        state = self._followers.get(follower)
        if state is not None:
            state.acknowledged = max(state.acknowledged, end)

    def end_of(self, follower: int) -> Offset:
        """How far a follower has flushed; -1 if it has not said so to this leader."""
        state = self._followers.get(follower)
        return NO_OFFSET if state is None else state.end

    def everywhere(self) -> Offset:
        """How far every assigned follower has the log; very far when there is none."""
        return min((max(state.end, state.acknowledged) for state in self._followers.values()), default=FAR)

    def high_watermark(self, current: Offset, own_end: Offset, min_insync: int) -> Offset:
        """How far everybody may read: what all in sync have flushed. Never less than `current`."""
        if len(self.isr) < min(min_insync, len(self.replicas)):
            return current
        end = own_end
        for follower in self._counted:
            end = min(end, follower.end)
        return max(end, current)

    # Who is in sync.

    def wants_shrink(self, now: int, lag_max_ms: int, leader_end: Offset) -> Isr | None:
        """The in-sync set without those that lag; None if nothing is to change, or a change is under way."""
        self._now = max(self._now, now)
        self._stop_waiting(now)
        if self.proposal is not None:
            return None
        lagging = {
            id_
            for id_, state in self._followers.items()
            if id_ in self.isr and state.end != leader_end and now - (state.caught_up_ms or 0) > lag_max_ms
        }
        return self._with_epochs(id_ for id_ in self.isr if id_ not in lagging) if lagging else None

    def _stop_waiting(self, now: int) -> None:
        silent = [s for s in self._followers.values() if s.joining and now - s.fetched_ms > WAIT_FOR_JOINING_MS]
        for state in silent:
            state.joining = False
        if silent:
            self._count()

    def wants_expand(self, high_watermark: Offset, leader_end: Offset) -> Isr | None:
        """The in-sync set with those that have come far enough; None if nothing is to change."""
        if self.proposal is not None or self.is_whole:
            return None
        floor = max(high_watermark, self.start_offset)
        joining = [
            id_
            for id_, state in self._followers.items()
            if id_ not in self.isr and state.may_join and floor <= state.end <= leader_end
            if not self._was_refused_lately(state)
        ]
        return self._with_epochs((*self.isr, *joining)) if joining else None

    def _with_epochs(self, ids: Iterable[int]) -> Isr:
        return tuple(
            (id_, self._followers[id_].broker_epoch if id_ in self._followers else NO_BROKER_EPOCH) for id_ in ids
        )

    def proposed(self, isr: Isr) -> None:
        """The controller is asked for this in-sync set: from now on either it or the present one may be the truth."""
        if self.proposal is not None:
            raise ValueError("one proposal at a time: the outcome of the last one is not known")
        self.proposal = isr
        self._count()

    def settled(self, isr: Iterable[int], partition_epoch: int) -> None:
        """The controller has answered with the in-sync set that holds now."""
        if partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self.proposal = None
            self._set_isr(tuple(isr))
        elif partition_epoch == self.partition_epoch and set(isr) == set(self.isr):
            self.proposal = None
            self._count()

    def refused(self) -> None:
        """The controller has not taken the proposal, and never will: the present set holds."""
        for id_, _ in self.proposal or ():
            state = self._followers.get(id_)
            if state is not None and id_ not in self.isr:
                state.may_join = state.joining = False
                state.refused_ms = self._now
        self.proposal = None
        self._count()
