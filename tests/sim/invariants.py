"""What must hold after every event of a simulation, whatever happens; each rule has a name."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.raft.messages import Entry, SnapshotId

if TYPE_CHECKING:
    from tests.sim.node import Pairs, SimNode


class ViolationError(AssertionError):
    """A rule is broken."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def next_checksum(checksum: int, entry: Entry) -> int:
    """The checksum of a state after one more entry."""
    return zlib.crc32(f"{entry.epoch} {entry.type} {entry.body}".encode(), checksum)


class Invariants:
    """All that has ever been committed or led, beside which each node is held after it took a step."""

    def __init__(self, nodes: Mapping[int, SimNode], voters: frozenset[int]) -> None:
        self._nodes = nodes
        self._voters = voters
        self._majority = len(voters) // 2 + 1
        self._leaders: dict[int, int] = {}  # epoch -> node
        self._votes: dict[tuple[int, int], int] = {}  # (voter, epoch) -> candidate
        self.committed: list[Entry] = []
        self._committed_in: list[int] = []  # the epoch in which each was first seen committed; never falls
        self._checksums = [0]  # of the state before each offset
        self.answered: list[tuple[int, Pairs]] = []

    def stepped(self, node: SimNode, role_before: str, epoch_before: int, high_watermark_before: int) -> None:
        """A node took a step; what it wants persisted need not be synced yet."""
        machine = node.running
        if machine.epoch < epoch_before:
            raise ViolationError("MonotonicEpoch", f"node {node.id} went from {epoch_before} to {machine.epoch}")
        if machine.high_watermark < high_watermark_before:
            raise ViolationError("MonotonicHighWatermark", f"node {node.id} went back to {machine.high_watermark}")
        if machine.high_watermark > machine.end_offset:
            raise ViolationError("MonotonicHighWatermark", f"node {node.id} is past its own end {machine.end_offset}")
        if machine.role == "leader":
            if (
                machine.high_watermark > high_watermark_before
                and machine.epoch_at(machine.high_watermark - 1) != machine.epoch
            ):
                raise ViolationError(
                    "MajorityReachedHighWatermark", f"leader {node.id} commits only entries of earlier epochs"
                )
            leader = self._leaders.setdefault(machine.epoch, node.id)
            if leader != node.id:
                raise ViolationError("SingleLeader", f"epoch {machine.epoch} has leaders {leader} and {node.id}")
            if role_before != "leader":
                self._leads(node)

    def _leads(self, node: SimNode) -> None:
        """A new leader has all that was committed in earlier epochs."""
        machine = node.running
        for offset in range(machine.log_start.end_offset, len(self.committed)):
            if self._committed_in[offset] >= machine.epoch:
                break
            if offset >= machine.end_offset or machine.entry(offset) != self.committed[offset]:
                raise ViolationError("LeaderCompleteness", f"leader {node.id} of {machine.epoch} lacks offset {offset}")

    def votes(self, voter: int, epoch: int, candidate: int) -> None:
        """A vote leaves a node."""
        if self._votes.setdefault((voter, epoch), candidate) != candidate:
            raise ViolationError("SingleVote", f"node {voter} votes twice in epoch {epoch}")

    def settled(self, node: SimNode) -> None:
        """A node's writes are synced and its effects carried out."""
        machine = node.running
        node.exposed_epoch = max(node.exposed_epoch, machine.epoch)
        if node.applied != machine.high_watermark:
            raise ViolationError("ConsistentCommittedData", f"node {node.id} applied {node.applied} of its commits")
        start = machine.log_start
        if start.end_offset and start not in node.disk.snapshots:
            raise ViolationError("SnapshotAtLogStart", f"node {node.id} has no snapshot at {start}")

    def restarted(self, node: SimNode) -> None:
        """A node came back with what its disk kept."""
        if node.running.epoch < node.exposed_epoch:
            raise ViolationError("MonotonicEpoch", f"node {node.id} came back before epoch {node.exposed_epoch}")
        self.majority_holds()

    def majority_holds(self) -> None:
        """The last committed entry is on the disks of a majority."""
        if not self.committed:
            return
        offset, entry = len(self.committed) - 1, self.committed[-1]
        holders = [node for node in self._voters if self._nodes[node].disk.holds(offset, entry)]
        if len(holders) < self._majority:
            raise ViolationError("MajorityReachedHighWatermark", f"offset {offset} is on the disks of {holders} only")

    def commits(self, node: SimNode, start_offset: int, entries: Sequence[Entry]) -> int:
        """A node applies entries; the checksum of its state behind them."""
        if start_offset != node.applied:
            raise ViolationError(
                "ConsistentCommittedData", f"node {node.id} goes on at {start_offset}, not {node.applied}"
            )
        for offset, entry in enumerate(entries, start_offset):
            if offset == len(self.committed):
                self.committed.append(entry)
                epochs = self._committed_in
                epochs.append(max(node.running.epoch, epochs[-1] if epochs else 0))
                self._checksums.append(next_checksum(self._checksums[-1], entry))
                self.majority_holds()
            elif self.committed[offset] != entry:
                raise ViolationError("ConsistentCommittedData", f"node {node.id} has another entry at {offset}")
        return self._checksums[start_offset + len(entries)]

    def loads(self, node: SimNode, snapshot: SnapshotId, data: bytes) -> int:
        """A node loads a snapshot; the checksum of the state in it."""
        end_offset, checksum = (int(part) for part in data.split())
        known = self._checksums[end_offset] if end_offset < len(self._checksums) else None
        if end_offset != snapshot.end_offset or checksum != known or end_offset < node.applied:
            raise ViolationError(
                "ConsistentCommittedData", f"node {node.id} loads {snapshot}, which is not what was committed"
            )
        if self.committed[end_offset - 1].epoch != snapshot.epoch:
            raise ViolationError(
                "SnapshotAtLogStart", f"the epoch of {snapshot} is {self.committed[end_offset - 1].epoch}"
            )
        return checksum

    def answers(self, start_offset: int, entries: Pairs) -> None:
        """A client is told that its proposal stands."""
        self.answered.append((start_offset, entries))
        self._stands(start_offset, entries)

    def _stands(self, start_offset: int, entries: Pairs) -> None:
        there = self.committed[start_offset : start_offset + len(entries)]
        if tuple((entry.type, entry.body) for entry in there) != entries:
            raise ViolationError("AnsweredNeverLost", f"the proposal at {start_offset} was answered and is not there")

    def at_the_end(self) -> None:
        """All is healed: every node has applied all, and every answered proposal with it."""
        for start_offset, entries in self.answered:
            self._stands(start_offset, entries)
        for node in self._nodes.values():
            if node.applied != len(self.committed) or node.checksum != self._checksums[-1]:
                raise ViolationError("AnsweredNeverLost", f"node {node.id} ended with another state")
