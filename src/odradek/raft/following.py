"""A follower or observer: fetches from the leader, appends, truncates what diverges, loads a snapshot.

An answer counts only if it fits the log and the epoch as they are when it arrives, so that a late or doubled one does
no harm; whether it is the one we wait for only decides when to fetch again.
"""

from __future__ import annotations

from odradek.raft.core import FOLLOWER, LEADER, OBSERVER, RESIGNED, Chance, RaftConfig, Stored
from odradek.raft.leading import Leading
from odradek.raft.log import RaftError
from odradek.raft.messages import (
    NO_NODE,
    NOT_LEADER,
    Append,
    BeginQuorumEpoch,
    BeginResponse,
    CutBefore,
    EndQuorumEpoch,
    EndResponse,
    FetchRequest,
    FetchResponse,
    InstallSnapshot,
    LoadSnapshot,
    Request,
    SnapshotId,
    SnapshotRequest,
    SnapshotResponse,
    Truncate,
)


class Following(Leading):
    """The follower's part."""

    def __init__(self, config: RaftConfig, stored: Stored, chance: Chance, now: int) -> None:
        super().__init__(config, stored, chance, now)
        self._asked: Request | None = None  # the fetch that is under way, one at a time
        self._fetch_ms = now  # when to fetch (again), whether or not `_asked` was answered

    @property
    def _fetches(self) -> bool:
        return self.role == OBSERVER or (self.role == FOLLOWER and self.leader_id != NO_NODE)

    def _follow(self, leader_id: int, epoch: int, *, heard: bool) -> None:
        if self.role == OBSERVER:
            self._become(OBSERVER, epoch=epoch, leader_id=leader_id, deadline=self._fetch_deadline())
        else:
            deadline = self._fetch_deadline() if heard else self._election_deadline()
            self._become(FOLLOWER, epoch=epoch, leader_id=leader_id, deadline=deadline)
        if heard:
            self._heard_ms = self._now
        self._fetch()

    def _leave(self, role: str, epoch: int, leader_id: int) -> None:
        super()._leave(role, epoch, leader_id)
        self._asked = None
        self._fetch_ms = self._now + self.config.retry_ms

    def _fetch_deadline(self) -> int:
        """How long to believe in a silent leader; a little by chance, so that not all lose faith at once."""
        timeout_ms = self.config.fetch_timeout_ms
        return self._now + timeout_ms + self._chance.randrange(timeout_ms // 4 + 1)

    def _hear(self) -> None:
        self._heard_ms = self._now
        self._deadline = self._fetch_deadline()

    def _fetch(self) -> None:
        """Ask the leader for what comes next; an observer without a leader asks any voter where it is."""
        node = self.leader_id
        if node == NO_NODE:
            others = self._others()
            node = others[self._chance.randrange(len(others))]
        self._asked = FetchRequest(
            self.config.node_id, self.epoch, self._log.last_epoch, self._log.end_offset, self.config.max_entries
        )
        self._fetch_ms = self._now + (self.config.fetch_wait_ms + self.config.fetch_timeout_ms) // 2 + 1
        self._send([node], self._asked)

    def _fetch_tick(self) -> None:
        """Fetch when it is time; an observer that hears nothing looks for another leader."""
        if not self._fetches:
            return
        if self.role == OBSERVER and self.leader_id != NO_NODE and self._now >= self._deadline:
            self._lose_leader()
        if self._now >= self._fetch_ms:
            self._fetch()

    def _lose_leader(self) -> None:
        """The leader is gone, as far as we can tell: stand soon, or, as an observer, look around."""
        self._unattach(self.epoch, self._soon())

    def _on_fetch_failed(self, request: FetchRequest | SnapshotRequest) -> None:
        if request is not self._asked:
            return
        self._asked = None
        self._fetch_ms = self._now + self.config.retry_ms
        if self.role == FOLLOWER and self._heard_ms is None:
            self._deadline = min(self._deadline, self._soon())

    def _is_from_leader(self, node: int, request: FetchRequest | SnapshotRequest, epoch: int) -> bool:
        """Whether an answer comes from the leader that we follow, in the epoch that we are in."""
        return node == self.leader_id and self._fetches and request.epoch == self.epoch == epoch

    def _on_fetch_answer(self, node: int, request: FetchRequest, response: FetchResponse) -> None:
        if self._learn(response.epoch, response.leader_id):
            return
        is_asked = request is self._asked
        if not self._is_from_leader(node, request, response.epoch):
            self._on_fetch_failed(request)
            return
        if response.error:
            if response.error == NOT_LEADER:
                self._lose_leader()
            self._on_fetch_failed(request)
            return
        if is_asked:
            self._hear()
        if (request.last_epoch, request.end_offset) != (self._log.last_epoch, self._log.end_offset):
            self._on_fetch_failed(request)
            return
        done = self._take(response)
        if is_asked and self._asked is request:
            if done:
                self._fetch()
            else:
                self._on_fetch_failed(request)

    def _take(self, response: FetchResponse) -> bool:
        """Do as the leader's answer says; False when it makes no sense."""
        if response.diverging is not None:
            return self._truncate(*response.diverging)
        if response.snapshot is not None:
            return self._ask_snapshot(response.snapshot)
        entries = response.entries
        if entries:
            epochs = [self._log.last_epoch, *(entry.epoch for entry in entries), self.epoch]
            if response.start_offset != self._log.end_offset or epochs != sorted(epochs):
                return False
            self._log.append(entries)
            self._effects.persist.append(Append(response.start_offset, entries))
        # What we hold up to our end is the leader's log, so its high watermark is good as far as that.
        high_watermark = min(response.high_watermark, self._log.end_offset)
        if high_watermark > self.high_watermark:
            self._commit(high_watermark)
        return True

    def _truncate(self, epoch: int, end_offset: int) -> bool:
        """Cut our log where it parts from the leader's (KIP-101, KIP-279); it never parts below what is committed."""
        own_epoch, own_end = self._log.end_of(epoch)
        target = min(end_offset, own_end) if own_epoch == epoch else own_end
        if target >= self._log.end_offset:
            return False
        if target < self.high_watermark:
            raise RaftError(
                f"leader {self.leader_id} of epoch {self.epoch} wants the log cut to {target}, "
                f"but all below {self.high_watermark} is committed: its log has lost entries"
            )
        self._log.truncate(target)
        self._effects.persist.append(Truncate(target))
        return True

    # --- snapshots ---

    def _ask_snapshot(self, snapshot: SnapshotId) -> bool:
        if not self._needs(snapshot):
            return False
        self._asked = SnapshotRequest(self.config.node_id, self.epoch, snapshot)
        self._fetch_ms = self._now + 10 * self.config.fetch_timeout_ms
        self._send([self.leader_id], self._asked)
        return True

    def _needs(self, snapshot: SnapshotId) -> bool:
        """Whether the snapshot holds what we lack: not when it is behind us, or when our log has its last entry."""
        if snapshot.end_offset <= self.high_watermark:
            return False
        return self._log.epoch_before(snapshot.end_offset) != snapshot.epoch

    def _on_snapshot_answer(self, node: int, request: SnapshotRequest, response: SnapshotResponse) -> None:
        if self._learn(response.epoch, response.leader_id):
            return
        fits = self._is_from_leader(node, request, response.epoch) and response.snapshot == request.snapshot
        if not fits or response.error or response.data is None or not self._needs(request.snapshot):
            self._on_fetch_failed(request)
            return
        snapshot = request.snapshot
        self._log.start_at(snapshot)
        self.high_watermark = snapshot.end_offset
        self._effects.persist.append(InstallSnapshot(snapshot, response.data))
        self._effects.apply.append(LoadSnapshot(snapshot, response.data))
        self._hear()
        self._fetch()

    def _on_snapshot_taken(self, snapshot: SnapshotId) -> None:
        """Cut the log at our own snapshot; one that is older than the log's start says nothing new."""
        if snapshot.end_offset <= self._log.log_start.end_offset:
            return
        if snapshot.end_offset > self.high_watermark:
            raise RaftError(f"a snapshot up to {snapshot.end_offset} holds more than what is committed")
        self._log.cut_before(snapshot)
        self._effects.persist.append(CutBefore(snapshot.end_offset))

    # --- what a leader tells us ---

    def _on_begin(self, ticket: int, request: BeginQuorumEpoch) -> None:
        accepted = self._accepts(request)
        if accepted:
            if (self.leader_id, self.epoch) == (request.leader_id, request.epoch):
                self._hear()
            else:
                self._follow(request.leader_id, request.epoch, heard=True)
        self._reply(ticket, BeginResponse(accepted, self.epoch, self.leader_id))

    def _accepts(self, request: BeginQuorumEpoch) -> bool:
        if request.leader_id not in self.config.voters or request.leader_id == self.config.node_id:
            return False
        if request.epoch == self.epoch:
            return self._epoch_leader in (NO_NODE, request.leader_id)
        return request.epoch > self.epoch

    def _on_end(self, ticket: int, request: EndQuorumEpoch) -> None:
        """The leader of our epoch gives up: the first that it prefers stands at once, the others soon after."""
        if request.epoch == self.epoch and self.leader_id == request.leader_id and self.role not in (LEADER, RESIGNED):
            place = (
                list(request.preferred).index(self.config.node_id) if self.config.node_id in request.preferred else -1
            )
            if self.role == FOLLOWER and place == 0:
                self._stand(pre_vote=False)
            else:
                self._lose_leader()
                self._deadline += max(0, place) * self.config.election_timeout_ms // 2
        self._reply(ticket, EndResponse(self.epoch, self.leader_id))

    def _on_peer_lost(self, node: int) -> None:
        if node != self.leader_id:
            return
        if self.role == FOLLOWER:
            self._doubt_leader()
        elif self.role == OBSERVER:
            self._lose_leader()
