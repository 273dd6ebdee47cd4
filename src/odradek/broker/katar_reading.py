"""Reading for those who keep their own position (seed 000): from an offset, a time or the end, from several partitions.

A record is told with the base offset of the segment that holds it, as Katar's document has it. A read that finds
nothing may wait for what comes. Nothing is kept between two reads.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from typing import Literal, NamedTuple

from odradek.broker.archive_reading import find_offset, read_near
from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition
from odradek.model import Offset, TopicPartition
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import Record
from odradek.wire.errors import ErrorCode, PeerError

_READ_BYTES_MIN, _READ_BYTES_MAX = 1 << 16, 1 << 20  # at once
_RECORD_BYTES = 1 << 10  # a guess, for how much to read at once
_ANSWER_BYTES_MAX = 8 << 20  # beyond this no more records are read; one that is larger is given alone


class Start(NamedTuple):
    """Where to begin in a partition."""

    kind: Literal["offset", "timestamp", "latest"]
    at: int = 0


class Found(NamedTuple):
    """A record, where it is, and the first offset of the segment that it is in."""

    place: TopicPartition
    base_offset: Offset
    record: Record


Positions = dict[TopicPartition, Offset]  # the next offset to read


class KatarReader:
    """Reads partitions that this broker leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turn = 0  # of several partitions, another one is read first each time

    async def read(
        self, starts: Mapping[TopicPartition, Start], max_records: int, wait_ms: int
    ) -> tuple[list[Found], Positions]:
        """Read, and say where to go on; wait for a record if there is none. With no room for any it tells positions."""
        try:
            positions = {place: await self._begin(place, start) for place, start in starts.items()}
            found = await self._read_all(positions, max_records)
            if not found and wait_ms > 0 and max_records > 0:
                found = await self._wait(positions, max_records, wait_ms)
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error
        return found, positions

    async def _begin(self, place: TopicPartition, start: Start) -> Offset:
        partition = self._broker.partition(*place)
        first, end = partition.log_start, partition.log_end
        if start.kind == "offset":
            if start.at > end:
                raise PeerError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {start.at} is beyond the end of topic {place.topic!r}, partition {place.partition}: "
                    f"send one from {first} to {end}, which is the next record's",
                )
            return max(start.at, first)
        if not partition.is_settled:
            raise PeerError(ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader does not know yet what all replicas have")
        found = None if start.kind == "latest" else await find_offset(self._broker, partition, start.at)
        return partition.high_watermark if found is None else min(found.offset, partition.high_watermark)

    async def _wait(self, positions: Positions, max_records: int, wait_ms: int) -> list[Found]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        woken = asyncio.Event()
        partitions = [self._broker.partition(*place) for place in positions]
        for partition in partitions:
            partition.wake_on_advance(woken.set)
        try:
            while not (found := await self._read_all(positions, max_records)):
                try:
                    async with asyncio.timeout_at(deadline):
                        await woken.wait()
                except TimeoutError:
                    break
                woken.clear()
        finally:
            for partition in partitions:
                partition.forget(woken.set)
        return found

    async def _read_all(self, positions: Positions, max_records: int) -> list[Found]:
        """Read what there is, each partition a like share first; positions move on."""
        self._turn += 1
        places = list(positions)
        turn = self._turn % len(places)
        places = places[turn:] + places[:turn]
        found: list[Found] = []
        size_bytes = 0
        while places and len(found) < max_records and size_bytes < _ANSWER_BYTES_MAX:
            share = max((max_records - len(found)) // len(places), 1)
            full = []
            for place in places:
                room = min(share, max_records - len(found))
                if room == 0 or size_bytes >= _ANSWER_BYTES_MAX:
                    break
                partition = self._broker.partition(*place)
                records, positions[place], read_bytes = await self._read_one(partition, positions[place], room)
                found += records
                size_bytes += read_bytes
                if records and positions[place] < partition.high_watermark:  # without any there is but a gap
                    full.append(place)
            places = full
        return found

    async def _read_one(
        self, partition: Partition, offset: Offset, max_records: int
    ) -> tuple[list[Found], Offset, int]:
        """Records from an offset on, where to go on behind them, and their bytes."""
        place = partition.tp
        found: list[Found] = []
        offset = max(offset, partition.log_start)
        chunk_bytes = min(max(max_records * _RECORD_BYTES, _READ_BYTES_MIN), _READ_BYTES_MAX)
        size_bytes = 0
        while len(found) < max_records and offset < partition.high_watermark and size_bytes < _ANSWER_BYTES_MAX:
            bases = _segment_bases(partition)
            chunk = await read_near(self._broker, partition, offset, chunk_bytes)
            if not chunk.data:
                break
            for at, header in iter_headers(chunk.data):
                if not header.is_control:
                    base = bases[max(bisect_right(bases, header.base_offset) - 1, 0)]
                    for record in parse_batch(chunk.data, at):
                        if record.offset >= offset:
                            found.append(Found(place, base, record))
                            size_bytes += len(record.value or b"")
                if len(found) >= max_records:
                    break
            offset = chunk.next_offset
        if len(found) >= max_records:
            found = found[:max_records]
            offset = found[-1].record.offset + 1
        return found, offset, size_bytes


def _segment_bases(partition: Partition) -> list[Offset]:
    """The first offsets of all segments in their order, also of those that are in the archive only."""
    local = [segment.base_offset for segment in partition.log.segments]
    pieces = () if partition.archive is None else partition.archive.pieces
    return [piece.base_offset for piece in pieces if piece.base_offset < local[0]] + local
