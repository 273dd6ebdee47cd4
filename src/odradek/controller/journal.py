"""The metadata log of a broker that stands alone: `metadata/__cluster_metadata.log`, one line a record.

A line is `offset epoch type json`. It is on stable storage before `append` returns. A last line without its end was
never acknowledged and is cut off; anything else that cannot be read stops the start, since nothing is guessed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from odradek.controller.image import ClusterImage, MetadataError, MetadataRecord
from odradek.disk.interface import Disk

DIRECTORY_NAME = "metadata"
FILE_NAME = "__cluster_metadata.log"
EPOCH_ALONE = 1  # without a quorum there is one epoch


def journal_path(data_directory: str) -> str:
    """Where the metadata log of a data directory lies."""
    return f"{data_directory}/{DIRECTORY_NAME}/{FILE_NAME}"


class MetadataJournal:
    """Appends changes to the file and keeps the image that they make. The owner holds the data directory's lock."""

    def __init__(self, disk: Disk, data_directory: str) -> None:
        self._disk = disk
        self._path = journal_path(data_directory)
        self.image, self._next_offset, whole_bytes = read_image(disk, data_directory)
        disk.make_directory(f"{data_directory}/{DIRECTORY_NAME}")
        if not disk.exists(self._path):
            disk.write_atomic(self._path, b"")
        elif len(disk.read_file(self._path) or b"") > whole_bytes:
            disk.truncate_file(self._path, whole_bytes)
            disk.sync_file(self._path)

    @property
    def next_offset(self) -> int:
        """The offset that the next change gets."""
        return self._next_offset

    def append(self, type_: str, body: Mapping[str, Any]) -> None:
        """Make one change durable, then part of the image. Waits for the disk; one call at a time."""
        text = json.dumps(body, separators=(",", ":"), sort_keys=True)
        line = f"{self._next_offset} {EPOCH_ALONE} {type_} {text}\n"
        self._disk.append_file(self._path, line.encode())
        self._disk.sync_file(self._path)
        self._next_offset += 1
        self.image.apply(MetadataRecord(type_, json.loads(text)))


def read_image(disk: Disk, data_directory: str) -> tuple[ClusterImage, int, int]:
    """Read the file without changing it: the image, the next offset, and how many bytes are whole lines."""
    path = journal_path(data_directory)
    content = disk.read_file(path) or b""
    whole_bytes = content.rfind(b"\n") + 1
    image, offset = ClusterImage(), 0
    for number, record in _records(path, content[:whole_bytes]):
        try:
            image.apply(record)
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(path, number, f"{type(error).__name__}: {error}") from error
        offset = number
    return image, offset, whole_bytes


def _records(path: str, content: bytes) -> Iterator[tuple[int, MetadataRecord]]:
    """Yield each line's number, from 1, and its record."""
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            offset, _, type_, text = line.decode().split(" ", 3)
            body = json.loads(text)
        except ValueError as error:
            raise _unreadable(path, number, str(error)) from error
        if offset != str(number - 1) or not isinstance(body, dict):
            raise _unreadable(path, number, f"offset {number - 1} and a JSON object were expected")
        yield number, MetadataRecord(type_, body)


def _unreadable(path: str, number: int, reason: str) -> MetadataError:
    return MetadataError(
        f"{path}, line {number}, is damaged ({reason}); restore the file from a copy, or move the data directory away "
        "to begin with an empty one"
    )
