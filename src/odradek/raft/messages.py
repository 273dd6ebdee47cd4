"""What goes into the Raft machine and what comes out: requests, answers, events and effects.

Plain values without behaviour. Offsets are counted from 0; an `end_offset` is the offset behind the last entry. Node
id -1 is "none", epoch -1 that of an empty log. The requests are those of KIP-595, KIP-630 (snapshots) and KIP-996.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

NO_NODE = -1
NO_EPOCH = -1

# What a FetchResponse or SnapshotResponse may say in `error`; an empty text is success.
NOT_LEADER = "not-leader"  # ask `leader_id`, if it is not -1
FENCED_EPOCH = "fenced-epoch"  # the asker's epoch is over; `epoch` is the present one
UNKNOWN_EPOCH = "unknown-epoch"  # the asker knows a later epoch than we do
FUTURE = "future"  # the asker claims entries that cannot exist
UNKNOWN_SNAPSHOT = "unknown-snapshot"  # not the snapshot at which our log starts (any more): fetch again


class Entry(NamedTuple):
    """One entry of the log. The body is JSON text, which Raft does not look into."""

    epoch: int
    type: str
    body: str


class SnapshotId(NamedTuple):
    """A snapshot: all entries below `end_offset` are in it; `epoch` is that of the last of them."""

    end_offset: int
    epoch: int


NO_SNAPSHOT = SnapshotId(0, NO_EPOCH)


class QuorumState(NamedTuple):
    """What a voter must remember over a restart."""

    epoch: int = 0
    voted_id: int = NO_NODE  # to whom our vote of `epoch` went
    leader_id: int = NO_NODE  # the leader of `epoch`, as far as we have heard of one
    leader_epoch: int = 0  # the last epoch of which we knew a leader; 0: never one


# --- requests and their answers ---


class VoteRequest(NamedTuple):
    """Asks for a vote; with `pre_vote`, only whether one would be given."""

    candidate_id: int
    epoch: int  # a pre-vote carries the present epoch, a vote the new one
    last_epoch: int  # -1 when the log is empty
    end_offset: int  # behind the candidate's last entry
    pre_vote: bool


class VoteResponse(NamedTuple):
    """Yes or no, and what the voter knows of the epoch."""

    granted: bool
    epoch: int
    leader_id: int  # -1: none known in `epoch`
    leader_epoch: int  # epoch of the last known leader; 0: never one


class BeginQuorumEpoch(NamedTuple):
    """A new leader makes itself known."""

    leader_id: int
    epoch: int


class BeginResponse(NamedTuple):
    """Whether we follow it now; if not, whom and what we know instead."""

    accepted: bool
    epoch: int
    leader_id: int


class EndQuorumEpoch(NamedTuple):
    """A leader gives up; the first of `preferred` should stand at once."""

    leader_id: int
    epoch: int
    preferred: tuple[int, ...]


class EndResponse(NamedTuple):
    """Taken note of."""

    epoch: int
    leader_id: int


class FetchRequest(NamedTuple):
    """Asks for what follows, and says by it that all below `end_offset` is flushed."""

    replica_id: int
    epoch: int
    last_epoch: int
    end_offset: int
    max_entries: int


class FetchResponse(NamedTuple):
    """Entries from `start_offset` on, or where the logs part, or a snapshot to load, or an error."""

    error: str
    epoch: int
    leader_id: int
    high_watermark: int
    start_offset: int
    entries: tuple[Entry, ...]
    diverging: tuple[int, int] | None  # (epoch, end_offset): the asker's log parts from ours at or before that point
    snapshot: SnapshotId | None  # load this one first: our log starts there


class SnapshotRequest(NamedTuple):
    """Asks for the snapshot that a FetchResponse named."""

    replica_id: int
    epoch: int
    snapshot: SnapshotId


class SnapshotResponse(NamedTuple):
    """The snapshot. The machine answers without data: when `error` is empty the driver puts its bytes in."""

    error: str
    epoch: int
    leader_id: int
    snapshot: SnapshotId
    data: bytes | None


Request = VoteRequest | BeginQuorumEpoch | EndQuorumEpoch | FetchRequest | SnapshotRequest
Response = VoteResponse | BeginResponse | EndResponse | FetchResponse | SnapshotResponse


# --- events ---


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


class Requested(NamedTuple):
    """A peer asks; the answer is a Reply with this ticket, now or later."""

    ticket: int
    request: Request


class Answered(NamedTuple):
    """A peer answers. `request` is the very object that the Send held; late and doubled answers do no harm."""

    node: int
    request: Request
    response: Response


class Failed(NamedTuple):
    """There is no answer: refused, broken or timed out. `request` is the very object that the Send held."""

    node: int
    request: Request


class Propose(NamedTuple):
    """Entries, as (type, body), that should go into the log; only a leader takes them."""

    entries: tuple[tuple[str, str], ...]
    ticket: int


class SnapshotTaken(NamedTuple):
    """The driver has a durable snapshot of what it had applied up to there: the log before it may be cut."""

    snapshot: SnapshotId


class PeerLost(NamedTuple):
    """A peer's connection broke: a hint that it died, never a proof."""

    node: int


@dataclass(frozen=True, slots=True)
class Resign:
    """The process is about to stop; a leader says so to the others."""


Event = Tick | Requested | Answered | Failed | Propose | SnapshotTaken | PeerLost | Resign


# --- effects: to persist, in this order, then one fsync ---


class SaveQuorumState(NamedTuple):
    """Replace the stored quorum state."""

    state: QuorumState


class Truncate(NamedTuple):
    """Drop all entries from `end_offset` on."""

    end_offset: int


class Append(NamedTuple):
    """Add entries at the log's end, which is `start_offset`."""

    start_offset: int
    entries: tuple[Entry, ...]


class InstallSnapshot(NamedTuple):
    """Store this snapshot and drop the whole log, which starts anew at the snapshot's end."""

    snapshot: SnapshotId
    data: bytes


class CutBefore(NamedTuple):
    """Drop all entries below `offset`: a stored snapshot ends there."""

    offset: int


Persist = SaveQuorumState | Truncate | Append | InstallSnapshot | CutBefore


# --- effects: to send, once all of the above is on stable storage ---


class Send(NamedTuple):
    """Ask a peer; what comes of it returns as Answered or Failed, with the same request object."""

    node: int
    request: Request


class Reply(NamedTuple):
    """The answer to the Requested with this ticket."""

    ticket: int
    response: Response


# --- effects: to apply, in this order, at the end ---


class Committed(NamedTuple):
    """A majority has these: in order, each once since the start or since the snapshot last loaded."""

    start_offset: int
    entries: tuple[Entry, ...]


class LoadSnapshot(NamedTuple):
    """Forget the applied state and take this one; Committed goes on at the snapshot's end."""

    snapshot: SnapshotId
    data: bytes


class LeaderChanged(NamedTuple):
    """Whom we take for the leader of `epoch` now; -1: nobody."""

    leader_id: int
    epoch: int


class Elected(NamedTuple):
    """We lead, and all up to our own first entry, which is at `start_offset`, is committed and applied."""

    epoch: int
    start_offset: int


class Deposed(NamedTuple):
    """We lead no longer; only ever after an Elected of the same epoch."""

    epoch: int


class Proposed(NamedTuple):
    """The proposal lies in our log; unless it is Lost first, it is committed once Committed reaches `end_offset`."""

    ticket: int
    end_offset: int


class Refused(NamedTuple):
    """We do not lead: nothing of the proposal went into the log."""

    ticket: int


class Lost(NamedTuple):
    """We were deposed before the proposal was committed: it may be gone, or be committed by another leader yet."""

    ticket: int


Apply = Committed | LoadSnapshot | LeaderChanged | Elected | Deposed | Proposed | Refused | Lost


@dataclass(slots=True)
class Effects:
    """What one step wants done: persist all and fsync once, then send and reply, then apply."""

    persist: list[Persist] = field(default_factory=list)
    send: list[Send] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    apply: list[Apply] = field(default_factory=list)
