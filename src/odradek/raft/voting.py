"""Elections: pre-votes (KIP-996), votes, and what a voter answers to a candidate."""

from __future__ import annotations

from abc import ABC, abstractmethod

from odradek.raft.core import (
    CANDIDATE,
    FOLLOWER,
    LEADER,
    OBSERVER,
    PROSPECTIVE,
    UNATTACHED,
    Chance,
    RaftConfig,
    RaftCore,
    Stored,
)
from odradek.raft.messages import NO_NODE, VoteRequest, VoteResponse


class Voting(RaftCore, ABC):
    """A voter that stands, or lets others stand."""

    def __init__(self, config: RaftConfig, stored: Stored, chance: Chance, now: int) -> None:
        super().__init__(config, stored, chance, now)
        self._ballot: VoteRequest | None = None  # this round's request, the same object for all voters
        self._granted: set[int] = set()  # who said yes to `_ballot`
        self._denied: set[int] = set()  # who said no
        self._heard_ms: int | None = None  # when the leader we follow last showed itself alive; None: not yet, or lost

    def _stand(self, *, pre_vote: bool) -> None:
        """Ask all voters; our own voice counts at once."""
        node_id = self.config.node_id
        if pre_vote:
            self._become(PROSPECTIVE, epoch=self.epoch, deadline=self._election_deadline())
        else:
            self._become(CANDIDATE, epoch=self.epoch + 1, deadline=self._election_deadline())
            self._vote_for(node_id)
        self._granted, self._denied = {node_id}, set()
        self._ballot = VoteRequest(node_id, self.epoch, self._log.last_epoch, self._log.end_offset, pre_vote)
        self._send(self._others(), self._ballot)
        self._count()

    def _count(self) -> None:
        if len(self._granted) < self.config.majority:
            return
        self._ballot = None
        if self.role == PROSPECTIVE:
            self._stand(pre_vote=False)
        else:
            self._lead()

    @abstractmethod
    def _lead(self) -> None:
        """Start to lead the present epoch."""

    def _on_vote(self, ticket: int, request: VoteRequest) -> None:
        granted = False
        if self._is_voter and request.candidate_id in self.config.voters - {self.config.node_id}:
            granted = self._would_vote(request) if request.pre_vote else self._votes(request)
        self._reply(ticket, VoteResponse(granted, self.epoch, self.leader_id, self.leader_epoch))

    def _would_vote(self, request: VoteRequest) -> bool:
        """Whether to grant a pre-vote: it changes no epoch, and nobody helps to disturb a leader that is at work."""
        if request.epoch < self.epoch or not self._is_up_to_date(request):
            return False
        if self.role == FOLLOWER and request.candidate_id == self.leader_id:
            self._doubt_leader()  # whoever asks for votes leads no longer
        return self.role != LEADER and not self._heard_lately()

    def _votes(self, request: VoteRequest) -> bool:
        """Whether to grant a vote, as in plain Raft: one an epoch, and only to a log that ends no earlier than ours."""
        if request.epoch < self.epoch:
            return False
        if request.epoch > self.epoch:
            self._unattach(request.epoch)
        if self.voted_id not in (NO_NODE, request.candidate_id) or not self._is_up_to_date(request):
            return False
        if self.voted_id == NO_NODE:
            self._vote_for(request.candidate_id)
        if self.role == UNATTACHED:
            self._deadline = self._election_deadline()
        return True

    def _is_up_to_date(self, request: VoteRequest) -> bool:
        return (request.last_epoch, request.end_offset) >= (self._log.last_epoch, self._log.end_offset)

    def _heard_lately(self) -> bool:
        if self.role != FOLLOWER or self._heard_ms is None:
            return False
        return self._now - self._heard_ms < self.config.fetch_timeout_ms

    def _doubt_leader(self) -> None:
        """There is a sign that our leader is gone: be ready to vote, and stand soon."""
        self._heard_ms = None
        self._deadline = min(self._deadline, self._soon())

    def _on_vote_answer(self, node: int, request: VoteRequest, response: VoteResponse) -> None:
        if not response.granted or response.epoch > self.epoch:
            if not self._learn(response.epoch, response.leader_id) and request is self._ballot:
                self._lose_voice(node)
        elif request is self._ballot and node in self.config.voters:
            self._granted.add(node)
            self._count()

    def _lose_voice(self, node: int) -> None:
        """A voter has said no; when too few are left for a majority, there is no use in waiting for them."""
        self._denied.add(node)
        if len(self.config.voters) - len(self._denied) < self.config.majority:
            self._ballot = None
            self._deadline = min(self._deadline, self._soon())

    def _learn(self, epoch: int, leader_id: int) -> bool:
        """Take notice of what an answer says of the epoch; whether that changed ours or our leader."""
        known = leader_id in self.config.voters - {self.config.node_id}
        if epoch < self.epoch:
            return False
        if epoch == self.epoch:
            if not known or self.leader_id != NO_NODE or self._epoch_leader not in (NO_NODE, leader_id):
                return False
            self._follow(leader_id, epoch, heard=False)
        elif known:
            self._follow(leader_id, epoch, heard=False)
        else:
            self._unattach(epoch)
        return True

    @abstractmethod
    def _follow(self, leader_id: int, epoch: int, *, heard: bool) -> None:
        """Follow a leader; `heard`: from itself, not by what others say."""

    def _leave(self, role: str, epoch: int, leader_id: int) -> None:
        super()._leave(role, epoch, leader_id)
        self._ballot = None
        self._heard_ms = None

    def _election_tick(self) -> None:
        """Our patience is at its end: stand, or stand again."""
        if self._now < self._deadline or self.role in (LEADER, OBSERVER):
            return
        self._stand(pre_vote=True)
