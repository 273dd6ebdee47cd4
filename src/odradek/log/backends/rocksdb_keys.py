"""The keys of a partition's RocksDB database.

`c` base offset: which run is the segment of that base offset. `d` base offset, run, batch's base offset: a batch, so
that the batches of a segment lie one behind the other. `r` base offset, suffix: the run of a replacement that is not
installed. A run is one making of a segment: what replaces a segment under the same base offset is another run.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from odradek.model import Offset

CATALOG = b"c"
DATA = b"d"
REPLACEMENT = b"r"

NUMBER = struct.Struct(">Q")
PREFIX = struct.Struct(">cQQ")  # begins the keys of a run's batches
KEY_BYTES = PREFIX.size + NUMBER.size
_BEHIND = b"\xff" * (NUMBER.size + 1)  # ends a key that is beyond all keys of its run


class Range(NamedTuple):
    """Keys from `begin` up to `end`, exclusive."""

    begin: bytes
    end: bytes


class Run(NamedTuple):
    """One making of a segment."""

    base_offset: Offset
    number: int

    @property
    def keys(self) -> Range:
        """The keys of its batches."""
        prefix = PREFIX.pack(DATA, *self)
        return Range(prefix, prefix + _BEHIND)


def catalog_key(base_offset: Offset) -> bytes:
    """The entry that names the run of a segment."""
    return CATALOG + NUMBER.pack(base_offset)


def replacement_key(base_offset: Offset, suffix: str) -> bytes:
    """The entry that names the run of a replacement."""
    return REPLACEMENT + NUMBER.pack(base_offset) + suffix.encode()
