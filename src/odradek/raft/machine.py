"""The Raft machine (KIP-595): one event and the time in, effects out; no clock, disk or socket of its own.

The driver hands over each event with a monotonic time in milliseconds, carries out the effects in their order, and
sends a Tick when `next_deadline` has come. Several steps may share one fsync: persist all that they want, in order,
then send and reply, then apply. Their answers and late repeats of them may come in any order.
"""

from __future__ import annotations

from odradek.raft.core import LEADER, OBSERVER, RaftConfig, Stored
from odradek.raft.following import Following
from odradek.raft.leading import ReplicaProgress
from odradek.raft.log import RaftError, joined
from odradek.raft.messages import (
    Answered,
    BeginQuorumEpoch,
    BeginResponse,
    Effects,
    EndQuorumEpoch,
    Event,
    Failed,
    FetchRequest,
    FetchResponse,
    PeerLost,
    Propose,
    Request,
    Requested,
    Resign,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    Tick,
    VoteRequest,
    VoteResponse,
)

__all__ = ["Raft", "RaftConfig", "RaftError", "ReplicaProgress", "Stored", "joined"]

QUIET_MS = 60_000  # the longest pause between two ticks


class Raft(Following):
    """One node of the quorum."""

    def step(self, event: Event, now: int) -> Effects:
        """Take one event; what it brings about is in the effects, and nothing else."""
        self._now = max(self._now, now)
        self._effects = Effects()
        match event:
            case Tick():
                self._tick()
            case Requested(ticket, request):
                self._on_request(ticket, request)
            case Answered():
                self._on_answer(event)
            case Failed(_, request):
                if isinstance(request, FetchRequest | SnapshotRequest):
                    self._on_fetch_failed(request)
            case Propose():
                self._on_propose(event)
            case SnapshotTaken(snapshot):
                self._on_snapshot_taken(snapshot)
            case PeerLost(node):
                self._on_peer_lost(node)
            case Resign():
                if self.role == LEADER:
                    self._resign()
        return self._effects

    def next_deadline(self) -> int:
        """When the next Tick is due, if nothing happens before."""
        due = [self._now + QUIET_MS]
        if self.role == LEADER:
            due.extend(self._leader_deadlines())
        elif self.role != OBSERVER or self.leader_id >= 0:
            due.append(self._deadline)
        if self._fetches:
            due.append(self._fetch_ms)
        return min(due)

    def _tick(self) -> None:
        if self.role == LEADER:
            self._leader_tick()
            return
        self._election_tick()
        self._fetch_tick()

    def _on_request(self, ticket: int, request: Request) -> None:
        match request:
            case VoteRequest():
                self._on_vote(ticket, request)
            case BeginQuorumEpoch():
                self._on_begin(ticket, request)
            case EndQuorumEpoch():
                self._on_end(ticket, request)
            case FetchRequest():
                self._on_fetch(ticket, request)
            case SnapshotRequest():
                self._on_snapshot(ticket, request)

    def _on_answer(self, event: Answered) -> None:
        match event.request, event.response:
            case VoteRequest() as request, VoteResponse() as response:
                self._on_vote_answer(event.node, request, response)
            case FetchRequest() as request, FetchResponse() as response:
                self._on_fetch_answer(event.node, request, response)
            case SnapshotRequest() as request, SnapshotResponse() as response:
                self._on_snapshot_answer(event.node, request, response)
            case BeginQuorumEpoch(), BeginResponse() as response:
                self._on_begin_answer(response)
