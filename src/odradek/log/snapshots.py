"""Producer snapshots on disk: `<offset>.snapshot`, the state of all producers as of that offset.

Written without waiting for the disk: each carries a CRC, one that is not whole is passed over for the one before
it, and what a snapshot does not cover is read from the batch headers again.
"""

from __future__ import annotations

import re

from odradek.disk.interface import Disk
from odradek.log.producers import Producers
from odradek.model import Offset

KEPT = 2

_NAME = re.compile(r"(?P<offset>[0-9]{20})\.snapshot")


class ProducerSnapshots:
    """The snapshots of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(
            int(match["offset"]) for entry in disk.list(directory) if (match := _NAME.fullmatch(entry.name))
        )

    def save(self, producers: Producers, offset: Offset) -> None:
        """Keep the state as of `offset`; older snapshots than the last two go."""
        if self._offsets and self._offsets[-1] == offset:
            return
        self._disk.write_atomic(self._path(offset), producers.snapshot(), durable=False)
        self._offsets.append(offset)
        while len(self._offsets) > KEPT:
            self._disk.remove(self._path(self._offsets.pop(0)))

    def restore(self, producers: Producers, next_offset: Offset) -> Offset | None:
        """Load the newest whole snapshot up to `next_offset` and give its offset; None if there is none.

        Those beyond are removed: they speak of batches that the log has lost or given up.
        """
        self.remove_after(next_offset)
        while self._offsets:
            offset = self._offsets[-1]
            if producers.restore(self._disk.read_file(self._path(offset)) or b""):
                return offset
            self._disk.remove(self._path(self._offsets.pop()))
        return None

    def remove_after(self, offset: Offset) -> None:
        """Remove the snapshots beyond an offset."""
        while self._offsets and self._offsets[-1] > offset:
            self._disk.remove(self._path(self._offsets.pop()))

    def _path(self, offset: Offset) -> str:
        return f"{self._directory}/{offset:020d}.snapshot"
