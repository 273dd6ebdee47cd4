"""A leader: takes proposals, serves fetches, moves the high watermark, and steps down when a majority is silent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from odradek.raft.core import LEADER, RESIGNED, Chance, RaftConfig, Stored
from odradek.raft.log import RaftLog
from odradek.raft.messages import (
    FENCED_EPOCH,
    FUTURE,
    NO_NODE,
    NOT_LEADER,
    UNKNOWN_EPOCH,
    UNKNOWN_SNAPSHOT,
    Append,
    BeginQuorumEpoch,
    BeginResponse,
    Deposed,
    Elected,
    EndQuorumEpoch,
    Entry,
    FetchRequest,
    FetchResponse,
    Lost,
    Propose,
    Proposed,
    Refused,
    SnapshotId,
    SnapshotRequest,
    SnapshotResponse,
)
from odradek.raft.voting import Voting

LEADER_CHANGE = "leader-change"
OBSERVERS_MAX = 1000  # of more than these, the one that fetched longest ago is forgotten


class ReplicaProgress(NamedTuple):
    """How far a replica has come, for whoever describes the quorum."""

    id: int
    end_offset: int
    last_fetch_ms: int  # -1: not in this epoch yet
    last_caught_up_ms: int  # -1: not in this epoch yet
    is_voter: bool


@dataclass(slots=True)
class _Parked:
    """A fetch that had nothing new to get."""

    ticket: int
    request: FetchRequest
    until_ms: int


@dataclass(slots=True)
class _Replica:
    """What the leader knows of one replica, in its own epoch."""

    is_voter: bool
    seen_ms: int  # its last sign of life; at first, when the epoch began
    end_offset: int = 0  # flushed up to here; never falls within an epoch
    told_high_watermark: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_offset: int = 0  # our end when it last fetched
    begin_sent_ms: int = 0
    parked: _Parked | None = None


class Leading(Voting):
    """The leader's part, and the answers of those who do not lead to requests that only a leader can serve."""

    def __init__(self, config: RaftConfig, stored: Stored, chance: Chance, now: int) -> None:
        super().__init__(config, stored, chance, now)
        self._replicas: dict[int, _Replica] = {}  # empty unless we lead
        self._pending: list[tuple[int, int]] = []  # (end offset, ticket) of proposals that are not committed
        self._epoch_start = 0  # where our own epoch starts in the log; only an offset beyond it can be committed
        self._has_elected = False  # whether Elected was among the effects

    def replicas(self) -> list[ReplicaProgress]:
        """The others' progress, if we lead."""
        return [
            ReplicaProgress(node, known.end_offset, known.last_fetch_ms, known.last_caught_up_ms, known.is_voter)
            for node, known in sorted(self._replicas.items())
        ]

    def _lead(self) -> None:
        self._become(LEADER, epoch=self.epoch, leader_id=self.config.node_id, deadline=self._now)
        self._has_elected = False
        self._epoch_start = self._log.end_offset
        self._replicas = {node: _Replica(True, self._now, begin_sent_ms=self._now) for node in self._others()}
        body = {"leader_id": self.config.node_id, "voters": sorted(self.config.voters)}
        self._extend([Entry(self.epoch, LEADER_CHANGE, json.dumps(body, separators=(",", ":")))])
        self._send(self._others(), BeginQuorumEpoch(self.config.node_id, self.epoch))
        self._advance()

    def _leave(self, role: str, epoch: int, leader_id: int) -> None:
        super()._leave(role, epoch, leader_id)
        if role != LEADER:
            return
        if self._has_elected:
            self._effects.apply.append(Deposed(epoch))
        self._effects.apply.extend(Lost(ticket) for _, ticket in self._pending)
        for known in self._replicas.values():
            if known.parked is not None:
                self._reply(known.parked.ticket, self._fetch_error(NOT_LEADER))
        self._replicas, self._pending, self._has_elected = {}, [], False

    # --- proposals and commits ---

    def _on_propose(self, event: Propose) -> None:
        if self.role != LEADER:
            self._effects.apply.append(Refused(event.ticket))
            return
        if event.entries:
            self._extend([Entry(self.epoch, kind, body) for kind, body in event.entries])
        self._effects.apply.append(Proposed(event.ticket, self._log.end_offset))
        if self._log.end_offset > self.high_watermark:
            self._pending.append((self._log.end_offset, event.ticket))
        self._advance()
        self._serve_parked()

    def _extend(self, entries: list[Entry]) -> None:
        start = self._log.end_offset
        self._log.append(entries)
        self._effects.persist.append(Append(start, tuple(entries)))

    def _advance(self) -> None:
        """Move the high watermark to what a majority has flushed, once that reaches beyond our own epoch's start.

        Our own end counts at once, since nothing leaves and nothing is applied before it is flushed. An entry of an
        earlier epoch is never committed by counting alone (Raft, figure 8).
        """
        ends = [known.end_offset for known in self._replicas.values() if known.is_voter]
        ends.append(self._log.end_offset)
        reached = sorted(ends, reverse=True)[self.config.majority - 1]
        if reached <= self.high_watermark or reached <= self._epoch_start:
            return
        self._commit(reached)
        self._pending = [waiting for waiting in self._pending if waiting[0] > reached]
        if not self._has_elected:
            self._has_elected = True
            self._effects.apply.append(Elected(self.epoch, self._epoch_start))

    # --- fetches ---

    def _on_fetch(self, ticket: int, request: FetchRequest) -> None:
        error = self._fetch_fault(request)
        if error:
            self._reply(ticket, self._fetch_error(error))
            return
        known = self._note(request)
        self._advance()  # first, so that whoever completes a majority learns of it with this answer
        response = self._fetch_answer(request)
        if known is None:
            self._reply(ticket, response)
            return
        if known.parked is not None:  # one a replica: the earlier one is answered with what there is
            self._reply(known.parked.ticket, self._fetch_answer(known.parked.request))
            known.parked = None
        if self._is_news(known, response):
            known.told_high_watermark = response.high_watermark
            self._reply(ticket, response)
        else:
            known.parked = _Parked(ticket, request, self._now + self.config.fetch_wait_ms)
        self._serve_parked()

    def _leader_fault(self, epoch: int) -> str:
        if self.role != LEADER:
            return NOT_LEADER
        if epoch != self.epoch:
            return FENCED_EPOCH if epoch < self.epoch else UNKNOWN_EPOCH
        return ""

    def _fetch_fault(self, request: FetchRequest) -> str:
        error = self._leader_fault(request.epoch)
        if error:
            return error
        beyond = request.end_offset > self._log.end_offset and request.last_epoch >= self.epoch
        impossible = request.last_epoch > self.epoch or min(request.end_offset, request.last_epoch + 1) < 0
        return FUTURE if beyond or impossible else ""

    def _fetch_error(self, error: str) -> FetchResponse:
        return FetchResponse(error, self.epoch, self.leader_id, -1, -1, (), None, None)

    def _note(self, request: FetchRequest) -> _Replica | None:
        """Remember that a replica fetched; if its log is a part of ours, that it has flushed so far."""
        node, now = request.replica_id, self._now
        if node == self.config.node_id or node < 0:
            return None
        known = self._replicas.get(node)
        if known is None:
            if len(self._replicas) - len(self.config.voters) >= OBSERVERS_MAX:
                self._forget_an_observer()
            known = self._replicas[node] = _Replica(False, now)
        if self._log.epoch_before(request.end_offset) == request.last_epoch:
            known.end_offset = max(known.end_offset, request.end_offset)
            if request.end_offset >= self._log.end_offset:
                known.last_caught_up_ms = now
            elif request.end_offset >= known.leader_end_offset:
                known.last_caught_up_ms = max(known.last_caught_up_ms, known.last_fetch_ms)
        known.seen_ms = known.last_fetch_ms = now
        known.leader_end_offset = self._log.end_offset
        return known

    def _forget_an_observer(self) -> None:
        observers = [(known.seen_ms, node) for node, known in self._replicas.items() if not known.is_voter]
        gone = self._replicas.pop(min(observers)[1])
        if gone.parked is not None:
            self._reply(gone.parked.ticket, self._fetch_answer(gone.parked.request))

    def _fetch_answer(self, request: FetchRequest) -> FetchResponse:
        log, end_offset = self._log, request.end_offset
        diverging: tuple[int, int] | None = None
        snapshot: SnapshotId | None = None
        entries: tuple[Entry, ...] = ()
        if end_offset < log.log_start.end_offset:
            snapshot = log.log_start
        elif log.epoch_before(end_offset) == request.last_epoch:
            entries = log.slice(end_offset, end_offset + max(1, min(request.max_entries, self.config.max_entries)))
        else:
            diverging = self._parting(log, request)
            if diverging is None:
                snapshot = log.log_start
        return FetchResponse(
            "", self.epoch, self.config.node_id, self.high_watermark, end_offset, entries, diverging, snapshot
        )

    def _parting(self, log: RaftLog, request: FetchRequest) -> tuple[int, int] | None:
        """Where the asker's log parts from ours at the latest; None when that is before the start of our log."""
        epoch, end_offset = log.end_of(request.last_epoch)
        if epoch == request.last_epoch and end_offset >= request.end_offset:  # a log that no leader of ours wrote
            epoch, end_offset = log.end_of(request.last_epoch - 1)
        return (epoch, end_offset) if end_offset >= log.log_start.end_offset else None

    def _is_news(self, known: _Replica, response: FetchResponse) -> bool:
        if response.entries or response.diverging is not None or response.snapshot is not None:
            return True
        return response.high_watermark > known.told_high_watermark

    def _serve_parked(self) -> None:
        """Answer the fetches that wait, where there is something new now or they have waited long enough."""
        for known in self._replicas.values():
            parked = known.parked
            if parked is None:
                continue
            response = self._fetch_answer(parked.request)
            if self._is_news(known, response) or self._now >= parked.until_ms:
                known.parked = None
                known.told_high_watermark = response.high_watermark
                self._reply(parked.ticket, response)

    def _on_snapshot(self, ticket: int, request: SnapshotRequest) -> None:
        error = self._leader_fault(request.epoch)
        if not error and request.snapshot != self._log.log_start:
            error = UNKNOWN_SNAPSHOT
        known = self._replicas.get(request.replica_id)
        if known is not None and not error:
            known.seen_ms = self._now
        self._reply(ticket, SnapshotResponse(error, self.epoch, self.leader_id, request.snapshot, None))

    # --- keeping the quorum together ---

    @property
    def _begin_interval_ms(self) -> int:
        return max(1, self.config.fetch_timeout_ms // 3)

    def _begin_due_ms(self, known: _Replica) -> int:
        """When to make ourselves known to a voter (again): it does not fetch, and the last call is some time ago."""
        return max(known.begin_sent_ms, known.last_fetch_ms) + self._begin_interval_ms + self.config.fetch_wait_ms

    def _quorum_until_ms(self) -> int | None:
        """Until when we lead without another sign of life from a majority; None: we are a majority by ourselves."""
        seen = sorted((known.seen_ms for known in self._replicas.values() if known.is_voter), reverse=True)
        needed = self.config.majority - 1
        return seen[needed - 1] + self.config.fetch_timeout_ms * 3 // 2 if needed else None

    def _leader_tick(self) -> None:
        until = self._quorum_until_ms()
        if until is not None and self._now >= until:
            self._resign()
            return
        for node, known in self._replicas.items():
            if known.is_voter and self._now >= self._begin_due_ms(known):
                known.begin_sent_ms = self._now
                self._send([node], BeginQuorumEpoch(self.config.node_id, self.epoch))
        self._serve_parked()

    def _leader_deadlines(self) -> list[int]:
        until = self._quorum_until_ms()
        due = [] if until is None else [until]
        due.extend(self._begin_due_ms(known) for known in self._replicas.values() if known.is_voter)
        due.extend(known.parked.until_ms for known in self._replicas.values() if known.parked is not None)
        return due

    def _on_begin_answer(self, response: BeginResponse) -> None:
        if response.epoch > self.epoch:
            self._learn(response.epoch, response.leader_id)

    def _resign(self) -> None:
        """Stop to lead, and let the others know who is closest behind us."""
        silent_ms = self._begin_interval_ms + self.config.fetch_wait_ms
        voters = [
            (self._now - known.seen_ms > silent_ms, -known.end_offset, node)
            for node, known in self._replicas.items()
            if known.is_voter
        ]
        preferred = tuple(node for *_, node in sorted(voters))
        epoch = self.epoch
        self._become(RESIGNED, epoch=epoch, leader_id=NO_NODE, deadline=self._election_deadline())
        self._send(preferred, EndQuorumEpoch(self.config.node_id, epoch, preferred))
