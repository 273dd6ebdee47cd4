"""What checking a partition brings to light: findings, and the counts of what was looked at.

A *problem*: bytes that were promised are not as they were written, or a file misleads its readers. A *note*: something
that the next start puts right by itself (a torn tail behind the recovery point, leftovers of a crash).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from odradek.disk.errors import DiskError
from odradek.log.errors import DamagedLogError


class Finding(NamedTuple):
    """One thing that a person should know of, and where it stands."""

    kind: Literal["problem", "note"]
    path: str
    text: str
    unit: Literal["byte", "entry", ""] = ""  # what `at` counts, from 0; empty: the file as a whole
    at: int = 0


@dataclass(slots=True)
class Totals:
    """What has been looked at so far."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0  # of the log files


def unreadable(error: DiskError | DamagedLogError) -> Finding:
    """Say that a file could not be looked at."""
    return Finding("problem", error.path, f"it cannot be read: {error.reason}")
