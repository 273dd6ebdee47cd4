"""Single machines for the tests of rules: made, elected, and asked."""

from __future__ import annotations

from typing import TypeVar

from odradek.raft.machine import Raft, RaftConfig, Stored
from odradek.raft.messages import (
    Answered,
    Apply,
    BeginQuorumEpoch,
    Effects,
    Entry,
    FetchRequest,
    FetchResponse,
    Persist,
    QuorumState,
    Request,
    Requested,
    Response,
    Send,
    SnapshotId,
    Tick,
    VoteRequest,
    VoteResponse,
)
from tests.raft.scenario import FixedChance

T = TypeVar("T", bound=Persist | Apply)
VOTERS = (1, 2, 3)


def make(
    node_id: int = 1,
    voters: tuple[int, ...] = VOTERS,
    epochs: tuple[int, ...] = (),
    state: QuorumState | None = None,
    log_start: SnapshotId | None = None,
    max_entries: int = 100,
) -> Raft:
    """A machine at time 0 whose log has entries of these epochs."""
    stored = Stored(state or QuorumState(max(epochs, default=0)))
    if log_start is not None:
        stored.log_start = log_start
    stored.entries = [Entry(epoch, "set", f"{epoch}.{number}") for number, epoch in enumerate(epochs)]
    return Raft(RaftConfig(node_id, frozenset(voters), 1000, 2000, 500, max_entries), stored, FixedChance(node_id), 0)


def ask(machine: Raft, request: Request, now: int = 0, ticket: int = 7) -> Response | None:
    """Let a peer ask; its answer, or None when it has to wait."""
    effects = machine.step(Requested(ticket, request), now)
    return next((reply.response for reply in effects.replies if reply.ticket == ticket), None)


def vote(
    machine: Raft, candidate: int, epoch: int, log: tuple[int, int] = (99, 99), *, pre_vote: bool = False, now: int = 0
) -> VoteResponse:
    response = ask(machine, VoteRequest(candidate, epoch, *log, pre_vote), now)
    assert isinstance(response, VoteResponse)
    return response


def fetch(machine: Raft, replica: int, last_epoch: int, end_offset: int, now: int = 0) -> FetchResponse | None:
    """Fetch in the machine's own epoch."""
    response = ask(machine, FetchRequest(replica, machine.epoch, last_epoch, end_offset, 100), now)
    assert response is None or isinstance(response, FetchResponse)
    return response


def elect(machine: Raft, now: int = 10_000) -> Effects:
    """Let the machine stand, and all others say yes; the effects of the last vote."""
    effects = machine.step(Tick(), now)
    while machine.role != "leader":
        send = effects.send[0]
        assert isinstance(send.request, VoteRequest)
        answers = [machine.step(Answered(one.node, one.request, yes(machine)), now) for one in effects.send[:]]
        effects = next((one for one in answers if one.send), effects)
    return effects


def yes(machine: Raft) -> VoteResponse:
    return VoteResponse(True, machine.epoch, -1, 0)


def follow(machine: Raft, leader: int, epoch: int, now: int = 0) -> Send:
    """Let the machine follow a leader; the fetch that it sends."""
    effects = machine.step(Requested(0, BeginQuorumEpoch(leader, epoch)), now)
    assert (machine.role, machine.leader_id, machine.epoch) == ("follower", leader, epoch)
    return effects.send[0]


def answer(
    machine: Raft,
    send: Send,
    entries: tuple[Entry, ...] = (),
    high_watermark: int = 0,
    *,
    diverging: tuple[int, int] | None = None,
    snapshot: SnapshotId | None = None,
    error: str = "",
    now: int = 0,
) -> Effects:
    """Answer a fetch as its leader would."""
    request = send.request
    assert isinstance(request, FetchRequest)
    response = FetchResponse(
        error, request.epoch, send.node, high_watermark, request.end_offset, entries, diverging, snapshot
    )
    return machine.step(Answered(send.node, request, response), now)


def of_type(changes: list[Persist] | list[Apply], kind: type[T]) -> list[T]:
    return [change for change in changes if isinstance(change, kind)]
