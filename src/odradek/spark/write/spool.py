"""Holds the encoded batches of a task until its whole input has been seen: in memory, then in a file without a name.

The file lies in Spark's directory for temporary data and is gone with the process, however that ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

from odradek.model import TopicPartition
from odradek.records.buffers import WriteBuffer

MEMORY_BYTES_MAX = 64 * 1024 * 1024


class _Place(NamedTuple):
    """A batch in the file."""

    at: int
    size_bytes: int


class Spooled(NamedTuple):
    """A batch that waits, and its place among those of its partition."""

    place: int
    record_count: int
    data: WriteBuffer


class Spool:
    """Batches by partition, in the order in which they were added. Closed by whoever made it."""

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.record_count = 0
        self._memory_bytes_left = memory_bytes_max
        self._batches: dict[TopicPartition, list[tuple[int, WriteBuffer | _Place]]] = {}
        self._file: IO[bytes] | None = None
        self._file_bytes = 0

    def add(self, partition: TopicPartition, record_count: int, data: WriteBuffer) -> None:
        """Keep a batch."""
        self.record_count += record_count
        kept: WriteBuffer | _Place = data
        if len(data) > self._memory_bytes_left:
            kept = self._written(data)
        else:
            self._memory_bytes_left -= len(data)
        self._batches.setdefault(partition, []).append((record_count, kept))

    def partitions(self) -> list[TopicPartition]:
        """Those that have batches."""
        return list(self._batches)

    def batches(self, partition: TopicPartition) -> Iterator[Spooled]:
        """The batches of a partition, each a copy that may be changed if it comes from the file."""
        for place, (record_count, kept) in enumerate(self._batches.get(partition, ())):
            yield Spooled(place, record_count, self._read(kept) if isinstance(kept, _Place) else kept)

    def close(self) -> None:
        """Give the memory and the disk back."""
        self._batches.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _written(self, data: WriteBuffer) -> _Place:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0, prefix="odradek-sink-", dir=_directory())  # noqa: SIM115
        place = _Place(self._file_bytes, len(data))
        done = 0
        while done < len(data):
            done += os.pwrite(self._file.fileno(), memoryview(data)[done:], place.at + done)
        self._file_bytes += len(data)
        return place

    def _read(self, place: _Place) -> bytearray:
        assert self._file is not None, "what has a place is in the file"
        data = bytearray(place.size_bytes)
        done = 0
        while done < len(data):
            read = os.preadv(self._file.fileno(), [memoryview(data)[done:]], place.at + done)
            if read == 0:
                raise OSError(f"the spool file ends at byte {place.at + done} of {self._file_bytes}")
            done += read
        return data


def _directory() -> str | None:
    """The first of Spark's directories for temporary data that is there, or else the system's own."""
    for directory in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if directory and os.path.isdir(directory):  # noqa: PTH112
            return directory
    return None
