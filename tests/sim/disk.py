"""A disk of the simulation: what is synced survives a crash, of what is not synced any beginning may."""

from __future__ import annotations

from random import Random

from odradek.raft.machine import Stored, joined
from odradek.raft.messages import (
    NO_SNAPSHOT,
    Append,
    CutBefore,
    Entry,
    InstallSnapshot,
    Persist,
    QuorumState,
    SaveQuorumState,
    SnapshotId,
    Truncate,
)

SNAPSHOTS_KEPT = 2


class SimDisk:
    """The synced image of a metadata directory, and the writes that no fsync has covered yet."""

    def __init__(self) -> None:
        self.quorum_state = QuorumState()
        self.first_offset = 0
        self.entries: list[Entry] = []
        self.snapshots: dict[SnapshotId, bytes] = {}
        self._unsynced: list[Persist] = []

    @property
    def end_offset(self) -> int:
        return self.first_offset + len(self.entries)

    def write(self, persist: list[Persist]) -> None:
        self._unsynced.extend(persist)

    def sync(self) -> None:
        for change in self._unsynced:
            self._carry_out(change)
        self._unsynced.clear()

    def crash(self, chance: Random) -> None:
        """Lose what was not synced, but for some beginning: of the log and of the quorum state apart."""
        states = [change for change in self._unsynced if isinstance(change, SaveQuorumState)]
        changes = [change for change in self._unsynced if not isinstance(change, SaveQuorumState)]
        self._unsynced.clear()
        for state in states[: chance.randint(0, len(states))]:
            self._carry_out(state)
        survivors = chance.randint(0, len(changes))
        for change in changes[:survivors]:
            self._carry_out(change)
        if survivors < len(changes):
            self._half_done(changes[survivors], chance)

    def _half_done(self, change: Persist, chance: Random) -> None:
        if isinstance(change, Append):
            self._carry_out(Append(change.start_offset, change.entries[: chance.randint(0, len(change.entries))]))
        elif isinstance(change, InstallSnapshot) and chance.random() < 0.5:
            self.save_snapshot(change.snapshot, change.data)  # stored, but the log is not cut yet

    def save_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        self.snapshots[snapshot] = data
        while len(self.snapshots) > SNAPSHOTS_KEPT:
            del self.snapshots[min(self.snapshots)]

    def _carry_out(self, change: Persist) -> None:
        match change:
            case SaveQuorumState(state):
                self.quorum_state = state
            case Append(start_offset, entries):
                if start_offset != self.end_offset:
                    raise AssertionError(f"an append at {start_offset} to a log that ends at {self.end_offset}")
                self.entries.extend(entries)
            case Truncate(end_offset):
                del self.entries[end_offset - self.first_offset :]
            case CutBefore(offset):
                del self.entries[: offset - self.first_offset]
                self.first_offset = offset
            case InstallSnapshot(snapshot, data):
                self.save_snapshot(snapshot, data)
                self.entries.clear()
                self.first_offset = snapshot.end_offset

    def read(self) -> Stored:
        """What a node finds at its start."""
        snapshot = max(self.snapshots, default=NO_SNAPSHOT)
        log_start, entries = joined(snapshot, self.first_offset, self.entries)
        self.first_offset, self.entries = log_start.end_offset, entries
        return Stored(self.quorum_state, log_start, list(entries))

    def holds(self, offset: int, entry: Entry) -> bool:
        """Whether the synced image has this entry, in the log or within a snapshot."""
        if self.first_offset <= offset < self.end_offset:
            return self.entries[offset - self.first_offset] == entry
        return any(snapshot.end_offset > offset for snapshot in self.snapshots)
