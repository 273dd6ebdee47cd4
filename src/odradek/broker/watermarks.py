"""How far partitions could be read when this broker was last at work: `metadata/high-watermarks`, a JSON object.

A leader that starts knows by it what its readers have seen, although the replicas that confirmed it may be away. It is
written now and then and never ahead of the truth, so an old one only hides records a little longer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from odradek.broker.limits import log_owner
from odradek.broker.topics import Partition
from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.model import Offset

FILE_NAME = "high-watermarks"

logger = logging.getLogger(__name__)


class Watermarks:
    """The file of one data directory."""

    def __init__(self, disk: Disk, data_directory: str) -> None:
        self._disk = disk
        self._path = f"{data_directory}/metadata/{FILE_NAME}"
        self._known = self._load()

    def of(self, topic_id: bytes, index: int, generation: int = 0) -> Offset:
        """What is remembered of a partition; 0 if nothing is."""
        return self._known.get(log_owner(topic_id, generation), {}).get(str(index), 0)

    def save(self, partitions: Iterable[Partition]) -> None:
        """Remember these, and forget all others."""
        known: dict[str, dict[str, Offset]] = {}
        for partition in partitions:
            if len(partition.role.replicas) > 1:  # a single replica knows by its own log
                owner = log_owner(partition.topic_id, partition.generation)
                known.setdefault(owner, {})[str(partition.index)] = partition.high_watermark
        if known == self._known:
            return
        try:
            self._disk.write_atomic(self._path, json.dumps(known).encode() + b"\n", durable=False)
        except DiskError as error:
            logger.warning("%s is not written: %s", self._path, error)
            return
        self._known = known

    def _load(self) -> dict[str, dict[str, Offset]]:
        try:
            known = json.loads(self._disk.read_file(self._path) or b"{}")
            return {
                str(topic_id): {str(index): int(offset) for index, offset in marks.items()}
                for topic_id, marks in known.items()
            }
        except (ValueError, AttributeError, TypeError, DiskError) as error:
            logger.warning("%s cannot be read, so all replicas are asked how far they are: %s", self._path, error)
            return {}
