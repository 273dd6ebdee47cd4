"""The replicated log in memory: the entries since the snapshot at which it starts, and where each epoch ends.

It knows nothing of roles or commits; the machine says what goes in and what is cut off.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from odradek.raft.messages import NO_EPOCH, Entry, SnapshotId


class RaftError(Exception):
    """A rule that keeps data safe is about to be broken: the node must stop, and its data be looked at."""


class RaftLog:
    """Entries at `log_start.end_offset` and above."""

    __slots__ = ("_entries", "_epoch_starts", "_epochs", "log_start")

    def __init__(self, log_start: SnapshotId, entries: Iterable[Entry]) -> None:
        self.log_start = log_start
        self._entries: list[Entry] = []
        self._epochs: list[int] = []  # ascending: the epochs of `_entries`
        self._epoch_starts: list[int] = []  # the offset at which each of them starts
        self.append(entries)

    @property
    def end_offset(self) -> int:
        """The offset behind the last entry."""
        return self.log_start.end_offset + len(self._entries)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last entry; -1 when there has never been one."""
        return self._epochs[-1] if self._epochs else self.log_start.epoch

    def entry(self, offset: int) -> Entry:
        """The entry at an offset that is in the log."""
        if not self.log_start.end_offset <= offset < self.end_offset:
            raise IndexError(f"offset {offset} is not in {self.log_start.end_offset}..{self.end_offset}")
        return self._entries[offset - self.log_start.end_offset]

    def slice(self, start: int, end: int) -> tuple[Entry, ...]:
        """The entries from `start` up to `end`, as far as there are any."""
        base = self.log_start.end_offset
        if start < base:
            raise IndexError(f"offset {start} lies before the start of the log, {base}")
        return tuple(self._entries[start - base : end - base])

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the last entry below `offset`; None when the log cannot tell."""
        base = self.log_start.end_offset
        if not base <= offset <= self.end_offset:
            return None
        return self._entries[offset - base - 1].epoch if offset > base else self.log_start.epoch

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The latest epoch in the log that is not above `epoch`, and the offset at which it ends (KIP-101).

        When even the snapshot's epoch lies above, that is (-1, 0): nothing that we know of is of so early an epoch.
        """
        index = bisect_right(self._epochs, epoch)
        end = self._epoch_starts[index] if index < len(self._epochs) else self.end_offset
        if index:
            return self._epochs[index - 1], end
        if self.log_start.epoch <= epoch:
            return self.log_start.epoch, end
        return NO_EPOCH, 0

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries at the end; their epochs never fall."""
        for entry in entries:
            if entry.epoch != self.last_epoch or not self._epochs:
                if entry.epoch < self.last_epoch:
                    raise RaftError(f"an entry of epoch {entry.epoch} cannot follow one of epoch {self.last_epoch}")
                self._epochs.append(entry.epoch)
                self._epoch_starts.append(self.end_offset)
            self._entries.append(entry)

    def truncate(self, end_offset: int) -> None:
        """Drop all entries from `end_offset` on."""
        if end_offset < self.log_start.end_offset:
            raise RaftError(f"cannot truncate to {end_offset}: the log starts at {self.log_start.end_offset}")
        del self._entries[end_offset - self.log_start.end_offset :]
        keep = bisect_left(self._epoch_starts, end_offset)
        del self._epochs[keep:], self._epoch_starts[keep:]

    def cut_before(self, snapshot: SnapshotId) -> None:
        """Let the log start at a snapshot that lies within it."""
        if self.epoch_before(snapshot.end_offset) != snapshot.epoch:
            raise RaftError(f"there is no entry of epoch {snapshot.epoch} before offset {snapshot.end_offset}")
        del self._entries[: snapshot.end_offset - self.log_start.end_offset]
        self.log_start = snapshot
        gone = bisect_right(self._epoch_starts, snapshot.end_offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._epoch_starts[:gone]
            self._epoch_starts[0] = snapshot.end_offset
        if not self._entries:
            self._epochs.clear()
            self._epoch_starts.clear()

    def start_at(self, snapshot: SnapshotId) -> None:
        """Drop everything: the log is empty and starts at the snapshot."""
        self._entries.clear()
        self._epochs.clear()
        self._epoch_starts.clear()
        self.log_start = snapshot


def joined(snapshot: SnapshotId, first_offset: int, entries: Sequence[Entry]) -> tuple[SnapshotId, list[Entry]]:
    """What of a stored log, whose first entry is at `first_offset`, still counts beside the newest stored snapshot.

    For a driver that died between storing a snapshot and cutting its log: entries before the snapshot's end are in it;
    those after it go on from it only if the entry just before has the snapshot's epoch, else they are of another past.
    """
    known = snapshot.end_offset - first_offset  # how many entries the snapshot covers
    if known < 0:
        raise RaftError(
            f"the log starts at offset {first_offset}, but the newest snapshot ends at {snapshot.end_offset}: "
            "the entries between them are missing"
        )
    if known == 0:
        return snapshot, list(entries)
    if known > len(entries) or entries[known - 1].epoch != snapshot.epoch:
        return snapshot, []
    return snapshot, list(entries[known:])
