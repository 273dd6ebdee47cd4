"""Raft machines and disks with one mistake each, to show that the simulation can fail."""

from __future__ import annotations

from random import Random
from typing import Any

from odradek.raft.core import UNATTACHED
from odradek.raft.log import RaftLog
from odradek.raft.machine import Raft, RaftConfig, Stored
from odradek.raft.messages import (
    NO_NODE,
    Append,
    Committed,
    CutBefore,
    FetchRequest,
    FetchResponse,
    Lost,
    Persist,
    Propose,
    Proposed,
    SaveQuorumState,
    SnapshotId,
    SnapshotRequest,
    Truncate,
    VoteRequest,
    VoteResponse,
)
from tests.sim.disk import SimDisk


class VotesWithoutPersisting(Raft):
    def _vote_for(self, node: int) -> None:
        self.voted_id = node


class ForgetsItsVoteAtRestart(Raft):
    def __init__(self, config: RaftConfig, stored: Stored, chance: Random, now: int) -> None:
        super().__init__(config, stored, chance, now)
        self.voted_id = NO_NODE


class ForgetsItsEpochAtRestart(Raft):
    def __init__(self, config: RaftConfig, stored: Stored, chance: Random, now: int) -> None:
        super().__init__(config, stored, chance, now)
        self.epoch, self.voted_id = max(0, self._log.last_epoch), NO_NODE


class VotesForAll(Raft):
    def _votes(self, request: VoteRequest) -> bool:
        if request.epoch >= self.epoch:
            self.voted_id = NO_NODE
        return super()._votes(request)


class VotesForAnyLog(Raft):
    def _is_up_to_date(self, request: VoteRequest) -> bool:
        return True


class VotesForTheLongerLog(Raft):
    def _is_up_to_date(self, request: VoteRequest) -> bool:
        return request.end_offset >= self._log.end_offset


class VotesForTheLaterEpoch(Raft):
    def _is_up_to_date(self, request: VoteRequest) -> bool:
        return request.last_epoch >= self._log.last_epoch


class TakesNoForYes(Raft):
    def _on_vote_answer(self, node: int, request: VoteRequest, response: VoteResponse) -> None:
        yes = VoteResponse(True, min(response.epoch, self.epoch), response.leader_id, response.leader_epoch)
        super()._on_vote_answer(node, request, yes)


class CountsDoubledVotes(Raft):
    def _on_vote_answer(self, node: int, request: VoteRequest, response: VoteResponse) -> None:
        if request is self._ballot and response.granted and node in self._granted:
            self._granted.add(-len(self._granted))
        super()._on_vote_answer(node, request, response)


class CountsVotesOfOtherRounds(Raft):
    def _on_vote_answer(self, node: int, request: VoteRequest, response: VoteResponse) -> None:
        super()._on_vote_answer(node, self._ballot or request, response)


class WinsWithAMinority(Raft):
    def _count(self) -> None:
        if len(self._granted) == self.config.majority - 1:
            self._granted |= {-1}
        super()._count()


class StandsInThePresentEpoch(Raft):
    def _stand(self, *, pre_vote: bool) -> None:
        if not pre_vote:
            self.epoch -= 1
        super()._stand(pre_vote=pre_vote)


class CommitsWithAMinority(Raft):
    def _advance(self) -> None:
        ends = sorted((known.end_offset for known in self._replicas.values() if known.is_voter), reverse=True)
        reached = ([self._log.end_offset, *ends])[max(0, self.config.majority - 2)]
        if reached > max(self.high_watermark, self._epoch_start):
            self._commit(reached)
        super()._advance()


class CommitsByCountingObservers(Raft):
    def _advance(self) -> None:
        for known in self._replicas.values():
            known.is_voter = True
        super()._advance()


class CommitsEntriesOfEarlierEpochs(Raft):
    def _advance(self) -> None:
        start, self._epoch_start = self._epoch_start, 0
        super()._advance()
        self._epoch_start = start


class CountsReplicasThatDiverge(Raft):
    def _fetch_fault(self, request: FetchRequest) -> str:
        error = super()._fetch_fault(request)
        known = self._replicas.get(request.replica_id)
        if not error and known is not None:
            known.end_offset = max(known.end_offset, min(request.end_offset, self._log.end_offset))
        return error


class SendsWithoutComparing(Raft):
    def _fetch_answer(self, request: FetchRequest) -> FetchResponse:
        epoch = self._log.epoch_before(request.end_offset)
        if epoch is not None:
            request = FetchRequest(request.replica_id, request.epoch, epoch, request.end_offset, request.max_entries)
        return super()._fetch_answer(request)


class TruncatesToTheHighWatermark(Raft):
    def _follow(self, leader_id: int, epoch: int, *, heard: bool) -> None:
        if self._log.end_offset > self.high_watermark:
            self._log.truncate(self.high_watermark)
            self._effects.persist.append(Truncate(self.high_watermark))
        super()._follow(leader_id, epoch, heard=heard)


class TruncatesOneTooFew(Raft):
    def _truncate(self, epoch: int, end_offset: int) -> bool:
        own_epoch, own_end = self._log.end_of(epoch)
        target = min(end_offset, own_end) if own_epoch == epoch else own_end
        entries = self._log.slice(target, target + 1)
        done = super()._truncate(epoch, end_offset)
        if done and self._log.end_offset == target:
            self._log.append(entries)
            self._effects.persist.append(Append(target, entries))
        return done


class AppendsAnswersThatDoNotFit(Raft):
    def _on_fetch_answer(self, node: int, request: FetchRequest, response: FetchResponse) -> None:
        if self._is_from_leader(node, request, response.epoch) and response.entries and not response.error:
            end = self._log.end_offset
            request = FetchRequest(request.replica_id, request.epoch, self._log.last_epoch, end, request.max_entries)
            response = FetchResponse(
                "", response.epoch, node, response.high_watermark, end, response.entries, None, None
            )
        super()._on_fetch_answer(node, request, response)


class LetsTheHighWatermarkFall(Raft):
    def _take(self, response: FetchResponse) -> bool:
        if not response.diverging and not response.snapshot:
            self.high_watermark = max(self.log_start.end_offset, min(self.high_watermark, response.high_watermark))
        return super()._take(response)


class AppliesTwice(Raft):
    def _commit(self, high_watermark: int) -> None:
        super()._commit(high_watermark)
        last = self._effects.apply[-1]
        if isinstance(last, Committed) and len(last.entries) > 2:
            self._effects.apply.append(last)


class LoadsAnySnapshot(Raft):
    def _needs(self, snapshot: SnapshotId) -> bool:
        return True


class GetsTheSnapshotsEpochWrong(Raft):
    def _on_snapshot_taken(self, snapshot: SnapshotId) -> None:
        super()._on_snapshot_taken(snapshot)
        self._log.log_start = SnapshotId(self._log.log_start.end_offset, self.epoch)


class CutsTheLogWithoutASnapshot(Raft):
    def _commit(self, high_watermark: int) -> None:
        super()._commit(high_watermark)
        if high_watermark > self.log_start.end_offset + 20:
            self._log.cut_before(SnapshotId(high_watermark, self.epoch_at(high_watermark - 1)))
            self._effects.persist.append(CutBefore(high_watermark))


class KeepsLostProposalsForItself(Raft):
    def _leave(self, role: str, epoch: int, leader_id: int) -> None:
        super()._leave(role, epoch, leader_id)
        self._effects.apply = [change for change in self._effects.apply if not isinstance(change, Lost)]


class SaysProposalsLandEarlier(Raft):
    def _on_propose(self, event: Propose) -> None:
        super()._on_propose(event)
        self._effects.apply = [
            Proposed(change.ticket, change.end_offset - 1) if isinstance(change, Proposed) else change
            for change in self._effects.apply
        ]


class NeverStandsAgain(Raft):
    def _stand(self, *, pre_vote: bool) -> None:
        super()._stand(pre_vote=pre_vote)
        if self.role != "leader":
            self._deadline += 1_000_000


class NeverFetchesAgainAfterAFailure(Raft):
    def _on_fetch_failed(self, request: FetchRequest | SnapshotRequest) -> None:
        super()._on_fetch_failed(request)
        self._fetch_ms = self._deadline = self._now + 1_000_000


class NeverResigns(Raft):
    """Without check-quorum and deaf to later epochs: its side of a cut never comes back."""

    def _quorum_until_ms(self) -> int | None:
        return None

    def _learn(self, epoch: int, leader_id: int) -> bool:
        return self.role != "leader" and super()._learn(epoch, leader_id)

    def _accepts(self, request: Any) -> bool:
        return self.role != "leader" and super()._accepts(request)

    def _votes(self, request: VoteRequest) -> bool:
        return self.role != "leader" and super()._votes(request)


class WithoutTheParting(Raft):
    """A leader that has lost sight of where logs part says nothing of it."""

    def _parting(self, log: RaftLog, request: FetchRequest) -> tuple[int, int] | None:
        return (request.last_epoch, request.end_offset)


class UnattachesInTheSameRole(Raft):
    def _unattach(self, epoch: int, deadline: int | None = None) -> None:
        if epoch > self.epoch and self.role != UNATTACHED:
            self.epoch = epoch
            self._deadline = self._election_deadline()
            self._save()
        else:
            super()._unattach(epoch, deadline)


class DiskThatSkipsFlushes(SimDisk):
    """One flush in three covers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._flushes = 0

    def sync(self) -> None:
        self._flushes += 1
        if self._flushes % 3:
            super().sync()


class DiskThatForgetsVotes(SimDisk):
    """The quorum state is written, and never flushed before something else is."""

    def write(self, persist: list[Persist]) -> None:
        states = [change for change in persist if isinstance(change, SaveQuorumState)]
        self._late, late = states, getattr(self, "_late", [])
        super().write([*late, *(change for change in persist if not isinstance(change, SaveQuorumState))])


MACHINES: tuple[type[Raft], ...] = (
    VotesWithoutPersisting,
    ForgetsItsVoteAtRestart,
    ForgetsItsEpochAtRestart,
    VotesForAll,
    VotesForAnyLog,
    VotesForTheLongerLog,
    VotesForTheLaterEpoch,
    TakesNoForYes,
    CountsDoubledVotes,
    CountsVotesOfOtherRounds,
    WinsWithAMinority,
    StandsInThePresentEpoch,
    CommitsWithAMinority,
    CommitsByCountingObservers,
    CommitsEntriesOfEarlierEpochs,
    CountsReplicasThatDiverge,
    SendsWithoutComparing,
    TruncatesToTheHighWatermark,
    TruncatesOneTooFew,
    AppendsAnswersThatDoNotFit,
    LetsTheHighWatermarkFall,
    AppliesTwice,
    LoadsAnySnapshot,
    GetsTheSnapshotsEpochWrong,
    CutsTheLogWithoutASnapshot,
    KeepsLostProposalsForItself,
    SaysProposalsLandEarlier,
    NeverStandsAgain,
    NeverFetchesAgainAfterAFailure,
    NeverResigns,
    WithoutTheParting,
    UnattachesInTheSameRole,
)
DISKS: tuple[type[SimDisk], ...] = (DiskThatSkipsFlushes, DiskThatForgetsVotes)
