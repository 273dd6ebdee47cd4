"""What a log remembers of itself beside its segments.

`recovery-point`: how far the last segment is known to be flushed. It is overwritten in place after every flush and
not synced itself: it is written after the sync that it speaks of, so an old one after a power loss only means more
reading. `log-state.json`: what rarely changes and must be durable at once: the topic's id, the log start,
compaction's progress, a swap under way.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from threading import RLock
from typing import NamedTuple

from odradek.disk.interface import Disk
from odradek.model import Offset
from odradek.records.crc import crc32c

RECOVERY_POINT_NAME = "recovery-point"
STATE_NAME = "log-state.json"

_POINT = struct.Struct(">qqq?")
_CRC = struct.Struct(">I")
_SLOT_BYTES = 512  # a sector: a write that a crash tears leaves the other slot whole
_SLOTS = 2


class RecoveryPoint(NamedTuple):
    """All before this is on stable storage."""

    next_offset: Offset
    segment: Offset  # base offset of the segment that was the last one
    size_bytes: int  # of that segment
    indexed: bool = False  # its indexes are on stable storage, too: the log was closed in good order


def read_recovery_point(disk: Disk, directory: str) -> RecoveryPoint | None:
    """The recovery point, or None if there is none that can be trusted."""
    data = disk.read_file(f"{directory}/{RECOVERY_POINT_NAME}") or b""
    points = []
    for at in range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES):
        packed, crc = data[at : at + _POINT.size], data[at + _POINT.size : at + _POINT.size + _CRC.size]
        if len(crc) == _CRC.size and _CRC.unpack(crc)[0] == crc32c(packed):
            points.append(RecoveryPoint(*_POINT.unpack(packed)))
    return max(points, default=None)  # both are true, the further one tells more


def set_recovery_point(disk: Disk, directory: str, point: RecoveryPoint, *, durable: bool = True) -> None:
    """Replace what is remembered: at the beginning, at the end, and when the log becomes shorter."""
    slots = _slot(point).ljust(_SLOT_BYTES, b"\0") * _SLOTS
    disk.write_atomic(f"{directory}/{RECOVERY_POINT_NAME}", slots, durable=durable)


def advance_recovery_point(disk: Disk, directory: str, point: RecoveryPoint, turn: int) -> None:
    """Remember a further point after a flush; `turn` counts flushes, so that the slots take turns."""
    disk.overwrite(f"{directory}/{RECOVERY_POINT_NAME}", _slot(point), at=turn % _SLOTS * _SLOT_BYTES)


def _slot(point: RecoveryPoint) -> bytes:
    data = _POINT.pack(*point)
    return data + _CRC.pack(crc32c(data))


class Swap(NamedTuple):
    """A compacted segment that takes the place of others."""

    base_offset: Offset
    replaced: list[Offset]
    suffix: str  # of the replacement's files


@dataclass
class LogState:
    """The small durable facts of one log."""

    disk: Disk
    directory: str
    log_start: Offset = 0
    cleaned_to: Offset = 0  # compaction has been here; from here on the log is dirty
    sparse: bool = False  # offsets may have gaps: compaction ran, here or at the leader this log was copied from
    swap: Swap | None = None  # to be finished at the next start if it stands there
    restart_at: Offset | None = None  # likewise: everything is thrown away, and the log goes on at this offset
    topic_id: str = ""  # in hexadecimal: a topic of the same name may be another one; "" in directories of old

    def __post_init__(self) -> None:
        self.lock = RLock()  # removals save from another thread
        self.abandoned = False  # the partition is deleted: nothing may be written under its names any more
        self.known = self._load()

    def save(self, *, durable: bool = True) -> None:
        """Write all of it."""
        with self.lock:
            if self.abandoned:
                return
            text = json.dumps(
                {
                    "version": 1,
                    "log_start": self.log_start,
                    "cleaned_to": self.cleaned_to,
                    "sparse": self.sparse,
                    "swap": self.swap and self.swap._asdict(),
                    "restart_at": self.restart_at,
                    "topic_id": self.topic_id,
                },
                indent=1,
            )
            self.disk.write_atomic(f"{self.directory}/{STATE_NAME}", text.encode() + b"\n", durable=durable)

    def abandon(self) -> None:
        """Wait for a removal that runs, and see that none does any more."""
        with self.lock:
            self.abandoned = True

    def _load(self) -> bool:
        data = self.disk.read_file(f"{self.directory}/{STATE_NAME}")
        if data is None:
            return False
        try:
            fields = json.loads(data)
            log_start, cleaned_to = int(fields["log_start"]), int(fields["cleaned_to"])
            sparse = bool(fields["sparse"])
            swap = Swap(**fields["swap"]) if fields["swap"] else None
            restart_at = None if fields.get("restart_at") is None else int(fields["restart_at"])
            topic_id = str(fields.get("topic_id", ""))
        except (ValueError, KeyError, TypeError, OverflowError):
            return False
        self.log_start, self.cleaned_to, self.sparse = log_start, cleaned_to, sparse
        self.swap, self.restart_at, self.topic_id = swap, restart_at, topic_id
        return True
