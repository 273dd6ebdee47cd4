"""A place in a partition from which values are taken, batch after batch: what Eeylops' readers stand on.

Goes through record batches of any codec, past control batches and what compaction has removed, and never beyond the
high watermark. It holds one read of the log; whoever waits for more does so elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple, TypeAlias

from odradek.broker.archive_reading import read_near
from odradek.broker.broker import Broker
from odradek.broker.topics import Partition
from odradek.log.errors import OffsetOutOfRangeError
from odradek.model import Offset
from odradek.records.header import iter_headers
from odradek.records.parse import iter_values

VALUE_BYTES_MORE = 32  # what a value takes at most in an answer beside its bytes
NO_TIME = 0

Value: TypeAlias = tuple[Offset, int, bytes]  # offset, timestamp, value


class Batch(NamedTuple):
    """Values in the order of their offsets, and where to go on."""

    values: list[Value]
    next_offset: Offset


class Range(NamedTuple):
    """Which times are wanted, in milliseconds."""

    since: int = NO_TIME  # values before the first one at or after it are passed over
    until: int = NO_TIME  # the first value at or after it ends the reading; 0: nothing does


class ValueCursor:
    """Moves forward only."""

    def __init__(
        self, broker: Broker, partition: Partition, offset: Offset, read_bytes: int, times: Range | None = None
    ) -> None:
        self.offset = offset  # of the next value to be taken
        self.is_over = False  # a value at or after the end of the range has come
        self.has_lost = False  # values were removed before they were taken; whoever sees it resets it
        self._broker = broker
        self._partition = partition
        self._read_bytes = read_bytes  # at once
        self._since, self._until = times or Range()
        self._values: Iterator[Value] | None = None  # read and not taken
        self._read_to = offset  # where to go on behind them

    async def take(self, count_max: int, bytes_max: int) -> Batch:
        """Take so many values, of so many bytes, at least one if there is any; fewer at the high watermark.

        If retention has been faster there are none, and the next offset is the first that is still there.
        """
        values: list[Value] = []
        room = bytes_max
        while len(values) < count_max and not self.is_over:
            if self._values is None and not await self._read():
                break
            room = self._move(values, count_max, room)
            if self._values is not None:  # the values that were read did not all fit
                break
        return Batch(values, self.offset)

    def _move(self, values: list[Value], count_max: int, room: int) -> int:
        """Take of what was read; say how many bytes have room still."""
        assert self._values is not None, "something was read"
        since, until = self._since, self._until
        for value in self._values:
            offset, timestamp, data = value
            if since:
                if timestamp < since:
                    continue
                since = self._since = NO_TIME
            room -= len(data) + VALUE_BYTES_MORE
            self.is_over = bool(until) and timestamp >= until
            if self.is_over or (room < 0 and values):
                self._values, self.offset = chain((value,), self._values), offset
                return 0
            values.append(value)
            if len(values) >= count_max:
                self.offset = offset + 1
                return room
        self._values, self.offset = None, self._read_to
        return room

    async def _read(self) -> bool:
        """Read on; False if there is nothing to be read now, or nothing from there on any more."""
        partition, offset = self._partition, self.offset
        if offset < partition.log_start:
            return self._skip()
        if offset >= partition.high_watermark:
            return False
        try:
            chunk = await read_near(self._broker, partition, offset, self._read_bytes)
        except OffsetOutOfRangeError:
            if offset >= partition.log_start:
                raise
            return self._skip()
        if not chunk.data:
            return False
        self._values = _values(chunk.data, offset)
        self._read_to = chunk.next_offset
        return True

    def _skip(self) -> bool:
        """Go on at the first value that is still there; there is nothing to be read at this moment."""
        self.offset = self._partition.log_start
        self.has_lost = True
        return False


def _values(data: memoryview, since: Offset) -> Iterator[Value]:
    """All values of whole batches from an offset on."""
    for at, header in iter_headers(data):
        if header.is_control or header.last_offset < since:
            continue
        if header.base_offset >= since:
            yield from iter_values(data, at)
        else:
            yield from (value for value in iter_values(data, at) if value[0] >= since)
