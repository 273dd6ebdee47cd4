"""What every role of the Raft machine shares: its state, the table of legal transitions, and commits.

Only `_become` changes the role or the epoch, and only what `_save` has put among the effects may be told to a peer.
The roles' rules are in `voting`, `leading` and `following`; `machine` hands events to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from odradek.raft.log import RaftError, RaftLog
from odradek.raft.messages import (
    NO_NODE,
    NO_SNAPSHOT,
    Committed,
    Effects,
    Entry,
    LeaderChanged,
    QuorumState,
    Reply,
    Request,
    Response,
    SaveQuorumState,
    Send,
    SnapshotId,
)

UNATTACHED = "unattached"  # a voter that knows no leader
PROSPECTIVE = "prospective"  # asks whether it would be elected, without a new epoch (KIP-996)
CANDIDATE = "candidate"
LEADER = "leader"
FOLLOWER = "follower"
RESIGNED = "resigned"  # led this epoch, and will not again
OBSERVER = "observer"  # not a voter: reads the log, with or without a leader

LEGAL_TRANSITIONS: Mapping[str, frozenset[str]] = {
    UNATTACHED: frozenset({UNATTACHED, PROSPECTIVE, FOLLOWER}),
    PROSPECTIVE: frozenset({UNATTACHED, PROSPECTIVE, CANDIDATE, FOLLOWER}),
    CANDIDATE: frozenset({UNATTACHED, PROSPECTIVE, LEADER, FOLLOWER}),
    LEADER: frozenset({UNATTACHED, FOLLOWER, RESIGNED}),
    FOLLOWER: frozenset({UNATTACHED, PROSPECTIVE, CANDIDATE, FOLLOWER}),
    RESIGNED: frozenset({UNATTACHED, PROSPECTIVE, FOLLOWER}),
    OBSERVER: frozenset({OBSERVER}),
}
NEW_EPOCH_ONLY: frozenset[tuple[str, str]] = frozenset({(LEADER, UNATTACHED), (LEADER, FOLLOWER), (RESIGNED, FOLLOWER)})


class Chance(Protocol):
    """Where chance comes from; `random.Random` is one."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 up to `stop`, without it."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Who we are, who votes, and how long to wait."""

    node_id: int
    voters: frozenset[int]
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    fetch_wait_ms: int = 500  # how long a leader holds back an answer that has nothing new
    max_entries: int = 1000  # in one answer

    def __post_init__(self) -> None:
        if not self.voters or min(self.voters) < 0 or self.node_id < 0:
            raise ValueError("a quorum needs at least one voter, and ids that are not negative")
        if not 0 <= self.fetch_wait_ms < self.fetch_timeout_ms:
            raise ValueError(
                "fetch_wait_ms must be shorter than fetch_timeout_ms, or a quiet leader looks like a dead one"
            )
        if self.election_timeout_ms < 1 or self.max_entries < 1:
            raise ValueError("election_timeout_ms and max_entries must be at least 1")

    @property
    def majority(self) -> int:
        """How many voters are enough."""
        return len(self.voters) // 2 + 1

    @property
    def retry_ms(self) -> int:
        """The pause after a fetch that failed."""
        return max(1, self.fetch_timeout_ms // 20)


@dataclass(slots=True)
class Stored:
    """What the disk holds at the start: `entries` go on from the end of the snapshot `log_start`."""

    quorum_state: QuorumState = field(default_factory=QuorumState)
    log_start: SnapshotId = NO_SNAPSHOT
    entries: list[Entry] = field(default_factory=list)


class RaftCore:
    """State, transitions, persistence and commits."""

    def __init__(self, config: RaftConfig, stored: Stored, chance: Chance, now: int) -> None:
        self.config = config
        self._chance = chance
        self._now = now
        self._effects = Effects()
        self._log = RaftLog(stored.log_start, stored.entries)
        saved = stored.quorum_state
        self._saved = saved
        self.epoch = saved.epoch
        self.voted_id = saved.voted_id
        self.leader_epoch = saved.leader_epoch  # <= epoch
        # Who leads or led `epoch`, kept when we lose sight of it: an epoch has one leader at most.
        self._epoch_leader = saved.leader_id if saved.leader_epoch == saved.epoch else NO_NODE
        if self._log.last_epoch > saved.epoch:  # a log without its quorum state, as a broker that stood alone leaves it
            self.epoch, self.voted_id, self._epoch_leader = self._log.last_epoch, NO_NODE, NO_NODE
        self.role = UNATTACHED if config.node_id in config.voters else OBSERVER
        self.leader_id = NO_NODE  # whom we follow now, or ourselves
        self.high_watermark = (
            self.log_start.end_offset
        )  # log_start <= high_watermark <= end_offset; all below is applied
        alone = config.voters == {config.node_id}
        self._deadline = now if alone else now + chance.randrange(config.election_timeout_ms // 2 + 1)

    # --- read by the driver ---

    @property
    def log_start(self) -> SnapshotId:
        """The snapshot at which the log starts."""
        return self._log.log_start

    @property
    def end_offset(self) -> int:
        """The offset behind the last entry."""
        return self._log.end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last entry; -1 when there has never been one."""
        return self._log.last_epoch

    def entry(self, offset: int) -> Entry:
        """The entry at an offset between the log's start and its end."""
        return self._log.entry(offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the entry at an offset that is in the log, or the last one of its snapshot."""
        epoch = self._log.epoch_before(offset + 1)
        if epoch is None:
            raise IndexError(f"offset {offset} is not in the log")
        return epoch

    # --- for the roles ---

    @property
    def _is_voter(self) -> bool:
        return self.config.node_id in self.config.voters

    def _others(self) -> list[int]:
        return sorted(self.config.voters - {self.config.node_id})

    def _send(self, nodes: Iterable[int], request: Request) -> None:
        self._effects.send.extend(Send(node, request) for node in nodes)

    def _reply(self, ticket: int, response: Response) -> None:
        self._effects.replies.append(Reply(ticket, response))

    def _election_deadline(self) -> int:
        timeout_ms = self.config.election_timeout_ms
        return self._now + timeout_ms + self._chance.randrange(timeout_ms)

    def _soon(self) -> int:
        """A short while: one voter after the other, and a little by chance, so that not all stand at once."""
        timeout_ms = self.config.election_timeout_ms
        node_id = self.config.node_id
        rank = sum(voter < node_id and voter != self._epoch_leader for voter in self.config.voters)
        return self._now + 1 + rank * timeout_ms // 8 + self._chance.randrange(timeout_ms // 20 + 1)

    def _become(self, role: str, *, epoch: int, leader_id: int = NO_NODE, deadline: int) -> None:
        """Take another role or epoch; the one place where that happens."""
        if role not in LEGAL_TRANSITIONS[self.role]:
            raise RaftError(f"a {self.role} cannot become {role}")
        if epoch < self.epoch or (epoch == self.epoch and (self.role, role) in NEW_EPOCH_ONLY):
            raise RaftError(f"a {self.role} of epoch {self.epoch} cannot become {role} of epoch {epoch}")
        before = (self.role, self.epoch, self.leader_id)
        if epoch > self.epoch:
            self.epoch, self.voted_id, self._epoch_leader = epoch, NO_NODE, NO_NODE
        if leader_id != NO_NODE:
            if self._epoch_leader not in (NO_NODE, leader_id):
                raise RaftError(f"epoch {epoch} has the leader {self._epoch_leader}, and {leader_id} cannot be another")
            self._epoch_leader, self.leader_epoch = leader_id, epoch
        self.role, self.leader_id, self._deadline = role, leader_id, deadline
        self._leave(*before)
        self._save()
        if leader_id != before[2] or (leader_id != NO_NODE and epoch != before[1]):
            self._effects.apply.append(LeaderChanged(leader_id, epoch))

    def _leave(self, role: str, epoch: int, leader_id: int) -> None:
        """Give up what the role before this one held."""

    def _vote_for(self, node: int) -> None:
        self.voted_id = node
        self._save()

    def _save(self) -> None:
        state = QuorumState(self.epoch, self.voted_id, self._epoch_leader, self.leader_epoch)
        if state != self._saved:
            self._saved = state
            persist = self._effects.persist
            if persist and isinstance(persist[-1], SaveQuorumState):
                persist.pop()  # the later one says it all
            persist.append(SaveQuorumState(state))

    def _unattach(self, epoch: int, deadline: int | None = None) -> None:
        """Know no leader (any more)."""
        role = UNATTACHED if self._is_voter else OBSERVER
        self._become(role, epoch=epoch, deadline=self._election_deadline() if deadline is None else deadline)

    def _commit(self, high_watermark: int) -> None:
        """Move the high watermark up, and apply what it passes."""
        start = self.high_watermark
        if not start < high_watermark <= self._log.end_offset:
            raise RaftError(f"the high watermark cannot go from {start} to {high_watermark}")
        self.high_watermark = high_watermark
        self._effects.apply.append(Committed(start, self._log.slice(start, high_watermark)))
