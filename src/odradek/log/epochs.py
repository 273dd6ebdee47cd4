"""Leader epochs: which leader wrote from which offset on (KIP-101), in Kafka's `leader-epoch-checkpoint`.

The file is durable before the first batch of an epoch is, so it always knows at least what the log knows. That makes it
a witness: a batch whose epoch differs from the file's is damaged, although its CRC does not cover the epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from odradek.disk.interface import Disk
from odradek.log.errors import StaleLeaderEpochError
from odradek.model import Offset

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1


class EpochEnd(NamedTuple):
    """The last epoch at or before the one asked for, and the offset at which it ended (exclusive)."""

    epoch: int
    end_offset: Offset


class LeaderEpochs:
    """The epochs of one log, each with its start offset; both grow."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._epochs: list[int] = []
        self._starts: list[Offset] = []
        self.latest = NO_EPOCH  # the newest epoch, and where it began
        self.latest_start: Offset = 0
        self.known = self._load()  # False: there was no readable file, so the log itself must be asked

    def items(self) -> list[tuple[int, Offset]]:
        """All epochs with their start offsets."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: Offset, *, durable: bool = True) -> None:
        """Begin an epoch at an offset; nothing if it began already."""
        latest = self.latest
        if epoch == latest:
            return
        if epoch < latest:
            raise StaleLeaderEpochError(f"{self._path}: epoch {epoch} is over, {latest} has begun")
        # An epoch that wrote nothing is replaced: a start belongs to one epoch.
        if self._starts and self._starts[-1] >= start:
            self._cut_from(start)
        self._epochs.append(epoch)
        self._starts.append(start)
        self.save(durable=durable)

    def epoch_at(self, offset: Offset) -> int:
        """The epoch that wrote this offset; -1 if it is older than all we know."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else NO_EPOCH

    def end_of(self, epoch: int, log_end: Offset) -> EpochEnd:
        """Where an epoch ended: what a follower asks to find the point of divergence (KIP-279)."""
        if not 0 <= epoch <= self.latest:
            return EpochEnd(NO_EPOCH, NO_EPOCH)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end)
        at = bisect_right(self._epochs, epoch) - 1
        return EpochEnd(self._epochs[at] if at >= 0 else epoch, self._starts[at + 1])

    def truncate_end(self, next_offset: Offset) -> None:
        """Forget the epochs that begin at or after the log's new end."""
        if self._starts and self._starts[-1] >= next_offset:
            self._cut_from(next_offset)
            self.save()

    def truncate_start(self, log_start: Offset) -> None:
        """Forget the epochs that ended before the log's new start."""
        at = bisect_right(self._starts, log_start) - 1
        if at > 0:
            del self._epochs[:at], self._starts[:at]
            self.save()

    def replace(self, items: list[tuple[int, Offset]]) -> None:
        """Take over a list that was read from the batches themselves."""
        self._epochs = [epoch for epoch, _ in items]
        self._starts = [start for _, start in items]
        self.save()

    def _cut_from(self, offset: Offset) -> None:
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()

    def save(self, *, durable: bool = True) -> None:
        """Write the file: version, number of entries, then `epoch start` a line."""
        self._look_at_last()
        lines = ["0", str(len(self._epochs)), *(f"{epoch} {start}" for epoch, start in self.items())]
        self._disk.write_atomic(self._path, "\n".join(lines).encode() + b"\n", durable=durable)
        self.known = True

    def _look_at_last(self) -> None:
        self.latest, self.latest_start = (self._epochs[-1], self._starts[-1]) if self._epochs else (NO_EPOCH, 0)

    def _load(self) -> bool:
        data = self._disk.read_file(self._path)
        if data is None:
            return False
        try:
            version, count, *lines = data.decode().splitlines()
            entries = [tuple(map(int, line.split())) for line in lines]
            if version != "0" or len(entries) != int(count):
                return False
            epochs, starts = [epoch for epoch, _ in entries], [start for _, start in entries]
        except ValueError:
            return False
        if epochs != sorted(set(epochs)) or starts != sorted(set(starts)):
            return False
        self._epochs, self._starts = epochs, starts
        self._look_at_last()
        return True
