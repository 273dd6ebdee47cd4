"""Producer snapshots on disk: `<offset>.snapshot`, the state of all producers as of that offset.

They are written without waiting for the disk and synced by the next flush. Each carries a CRC: one that is not
whole is passed over for the one before it, and what a snapshot does not cover is read from the batch headers again.
That is why the newest synced one and the batches behind it are never removed (`safe_offset`).
"""

from __future__ import annotations

import re

from odradek.disk.interface import Disk
from odradek.log.producers import Producers
from odradek.model import Offset

_NAME = re.compile(r"(?P<offset>[0-9]{20})\.snapshot")


class ProducerSnapshots:
    """The snapshots of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(
            int(match["offset"]) for entry in disk.list(directory) if (match := _NAME.fullmatch(entry.name))
        )
        self._unsynced = list(self._offsets)  # a killed process may have left them in the page cache only
        self.safe_offset: Offset = 0  # the producers can be learned from a synced snapshot and the batches from here on

    def save(self, producers: Producers, offset: Offset) -> None:
        """Keep the state as of `offset`."""
        if self._offsets and self._offsets[-1] == offset:
            return
        self._disk.write_atomic(self._path(offset), producers.snapshot(), durable=False)
        self._offsets.append(offset)
        self._unsynced.append(offset)

    def begin_sync(self) -> list[Offset]:
        """Give what `sync` has to do."""
        offsets, self._unsynced = self._unsynced, []
        return offsets

    def add_unsynced(self, offsets: list[Offset]) -> None:
        """Take back what a flush did not do."""
        self._unsynced[:0] = offsets

    def clear(self) -> None:
        """Remove all of them."""
        while self._offsets:
            self._disk.remove(self._path(self._offsets.pop()))
        self.safe_offset = 0

    def sync(self, offsets: list[Offset]) -> None:
        """Return when these are on stable storage. May run in another thread."""
        for offset in offsets:
            self._disk.sync_file(self._path(offset))

    def finish_sync(self, offsets: list[Offset]) -> None:
        """Take note of what `sync` did; what is older than the newest synced one is not needed any more."""
        newest = max((offset for offset in offsets if offset in self._offsets), default=None)
        if newest is None or newest < self.safe_offset:
            return
        self.safe_offset = newest
        while self._offsets[0] < newest:
            self._disk.remove(self._path(self._offsets.pop(0)))

    def restore(self, producers: Producers, next_offset: Offset) -> Offset | None:
        """Load the newest whole snapshot up to `next_offset` and give its offset; None if there is none.

        Those beyond are removed: they speak of batches that the log has lost or given up.
        """
        while self._offsets:
            offset = self._offsets[-1]
            if offset <= next_offset and producers.restore(self._disk.read_file(self._path(offset)) or b""):
                return offset
            self._disk.remove(self._path(self._offsets.pop()))
            self.safe_offset = min(self.safe_offset, self._offsets[-1] if self._offsets else 0)
        producers.clear()
        return None

    def _path(self, offset: Offset) -> str:
        return f"{self._directory}/{offset:020d}.snapshot"
