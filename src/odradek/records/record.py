"""A record in its two lives: handed in by a producer, and stored at an offset.

Two types, because the first has no offset and the second always has one. Both are tuples: they are made by
the hundred thousand a second, and nothing changes them.
"""

from typing import NamedTuple

from odradek.records.header import NO_TIMESTAMP


class Header(NamedTuple):
    """A name and a value beside the record's own; names may repeat, and their order counts (KIP-82)."""

    key: str
    value: bytes | None


class NewRecord(NamedTuple):
    """A record to be written: its place in the batch gives its offset."""

    value: bytes | None  # None is a tombstone
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP  # milliseconds; this package has no clock, so whoever builds a batch sets it
    headers: tuple[Header, ...] = ()


class Record(NamedTuple):
    """A record as a log holds it, with its absolute offset."""

    offset: int
    timestamp: int  # milliseconds; the broker's if the batch uses log append time
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
