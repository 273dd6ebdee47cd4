"""One node of the simulation: the machine, its disk and its clock, driven as the real driver does it.

Events wait while a flush is under way; all that waited is stepped as one batch with one flush, then sent and applied.
"""

from __future__ import annotations

from math import ceil
from random import Random

from odradek.raft.machine import Raft, RaftConfig
from odradek.raft.messages import (
    UNKNOWN_SNAPSHOT,
    Committed,
    Effects,
    Event,
    LoadSnapshot,
    Lost,
    Proposed,
    Refused,
    Reply,
    SnapshotId,
    SnapshotResponse,
    SnapshotTaken,
)
from tests.sim.disk import SimDisk
from tests.sim.invariants import Invariants

Pairs = tuple[tuple[str, str], ...]  # what a client proposes: types and bodies


class SimNode:
    """A process that can crash and come back."""

    def __init__(self, node_id: int, config: RaftConfig, make: type[Raft], disk: SimDisk, rate: float) -> None:
        self.id = node_id
        self.config = config
        self.disk = disk
        self.machine: Raft | None = None
        self.incarnation = 0
        self.exposed_epoch = 0  # the last epoch that others may have seen of us
        self.applied = 0
        self.checksum = 0
        self.tick_at = -1  # in the simulation's time; the one Tick that counts
        self.batch: list[Effects] | None = None  # what waits for the flush that is under way
        self.inbox: list[Event] = []
        self.waiting: dict[int, tuple[int, Pairs]] = {}  # ticket -> end offset (-1: not known yet) and entries
        self._rate = rate
        self._make = make

    @property
    def running(self) -> Raft:
        assert self.machine is not None
        return self.machine

    def local_ms(self, now: int) -> int:
        """What this node's clock says; it runs a little fast or slow."""
        return int(now * self._rate)

    def global_ms(self, local: int) -> int:
        return ceil(local / self._rate)

    def start(self, chance: Random, now: int, invariants: Invariants) -> None:
        stored = self.disk.read()
        self.applied, self.checksum = 0, 0
        if stored.log_start.end_offset:
            self.checksum = invariants.loads(self, stored.log_start, self.disk.snapshots[stored.log_start])
            self.applied = stored.log_start.end_offset
        self.machine = self._make(self.config, stored, chance, self.local_ms(now))
        self.incarnation += 1
        invariants.restarted(self)

    def crash(self, chance: Random) -> None:
        self.machine = None
        self.disk.crash(chance)
        self.batch, self.inbox, self.waiting, self.tick_at = None, [], {}, -1

    def step(self, event: Event, now: int, invariants: Invariants) -> Effects:
        machine = self.running
        before = (machine.role, machine.epoch, machine.high_watermark)
        effects = machine.step(event, self.local_ms(now))
        invariants.stepped(self, *before)
        return effects

    def apply(self, effects: Effects, invariants: Invariants) -> None:
        """The last stage: what is committed becomes state, and answers go to the clients."""
        for change in effects.apply:
            match change:
                case Committed(start_offset, entries):
                    self.checksum = invariants.commits(self, start_offset, entries)
                    self.applied = start_offset + len(entries)
                    self._answer(invariants)
                case LoadSnapshot(snapshot, data):
                    self.checksum = invariants.loads(self, snapshot, data)
                    self.applied = snapshot.end_offset
                case Proposed(ticket, end_offset):
                    self.waiting[ticket] = (end_offset, self.waiting[ticket][1])
                case Lost(ticket) | Refused(ticket):
                    del self.waiting[ticket]

    def _answer(self, invariants: Invariants) -> None:
        for ticket, (end_offset, entries) in list(self.waiting.items()):
            if 0 <= end_offset <= self.applied:
                del self.waiting[ticket]
                invariants.answers(end_offset - len(entries), entries)

    def take_snapshot(self) -> SnapshotTaken | None:
        """Store a snapshot of what is applied, if that is more than the last one holds."""
        machine = self.running
        if self.batch is not None or self.applied <= machine.log_start.end_offset:
            return None
        snapshot = SnapshotId(self.applied, machine.epoch_at(self.applied - 1))
        self.disk.save_snapshot(snapshot, f"{self.applied} {self.checksum}".encode())
        return SnapshotTaken(snapshot)

    def fill(self, reply: Reply) -> Reply:
        """Put the data into an answer to a SnapshotRequest."""
        response = reply.response
        if not isinstance(response, SnapshotResponse) or response.error:
            return reply
        data = self.disk.snapshots.get(response.snapshot)
        error = "" if data is not None else UNKNOWN_SNAPSHOT
        return Reply(reply.ticket, SnapshotResponse(error, response.epoch, response.leader_id, response.snapshot, data))
