"""Reading what is no longer on the disk: archived segments, by ranged reads from the object store, in threads.

Which segment has an offset stands in the metadata; where in it to begin says its index, a small object that is kept in
memory for the segments read lately. A store that is away is an error that clients try again (KAFKA_STORAGE_ERROR: both
librdkafka and the Java client do), never a hole in what they read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.channel_stores import ChannelStores
from odradek.broker.topics import Partition
from odradek.controller.image_archive import Piece
from odradek.log.errors import OffsetOutOfRangeError
from odradek.log.reader import begin_read
from odradek.log.segment import Chunk, TimestampOffset
from odradek.model import Offset
from odradek.objects.archive import ArchivedSegment, find_time, read_batches, read_index
from odradek.objects.archive_index import OffsetIndex
from odradek.objects.errors import StoreError
from odradek.objects.stores import ObjectStore
from odradek.records.header import read_header
from odradek.wire.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker

INDEX_BYTES_MAX = 16 << 20  # of the indexes that are kept
_NOTHING = memoryview(b"")
_Result = TypeVar("_Result")


def segment_of(partition: Partition, piece: Piece) -> ArchivedSegment:
    """Where a piece's objects are."""
    base, end, size_bytes, _ = piece
    return ArchivedSegment(partition.tp.topic, partition.topic_id.hex(), partition.index, base, end, size_bytes)


class ArchiveReader:
    """Reads archived segments; called on the loop."""

    def __init__(self, stores: ChannelStores, url: str) -> None:
        self._stores = stores
        self._url = url
        self._indexes: OrderedDict[ArchivedSegment, OffsetIndex] = OrderedDict()
        self._index_bytes = 0
        self._lock = Lock()

    async def read(self, partition: Partition, offset: Offset, max_bytes: int) -> Chunk:
        """Give whole batches from the one that holds `offset`, or the next one; at least one, however large.

        Empty data: the archive has nothing from there on.
        """
        while (piece := _piece_at(partition, offset)) is not None:
            segment = segment_of(partition, piece)
            begin = max(offset, piece.base_offset)

            def work(store: ObjectStore, segment: ArchivedSegment = segment, begin: Offset = begin) -> Chunk:
                found = read_batches(store, segment, self._index(store, segment), begin, max_bytes)
                first = read_header(found.data).base_offset if found.data else begin
                return Chunk(found.data, first, found.next_offset)

            chunk = await self._run(partition, offset, work)
            if chunk.data:
                return chunk
            offset = piece.end_offset  # what stood there was compacted away before it was archived
        return Chunk(_NOTHING, offset, offset)

    async def find_time(self, partition: Partition, timestamp: int) -> TimestampOffset | None:
        """The first record at or after a time that is in the archive only; None if all of those are older."""
        archive, start = partition.archive, partition.log_start
        for piece in archive.pieces if archive is not None else ():
            if piece.base_offset >= partition.log.log_start or piece.max_timestamp < timestamp:
                continue
            segment = segment_of(partition, piece)

            def work(store: ObjectStore, segment: ArchivedSegment = segment) -> TimestampOffset | None:
                found = find_time(store, segment, timestamp, start, self._index(store, segment))
                return None if found is None else TimestampOffset(*found)

            result = await self._run(partition, max(piece.base_offset, start), work)
            if result is not None:
                return result if result.offset < partition.log.log_start else None
        return None

    async def _run(self, partition: Partition, offset: Offset, work: Callable[[ObjectStore], _Result]) -> _Result:
        try:
            return await self._stores.run(self._url, work, only_reads=True)
        except StoreError as error:
            if offset < partition.log_start:  # retention has taken it away meanwhile
                log = partition.log
                raise OffsetOutOfRangeError(log.directory, offset, partition.log_start, log.next_offset) from error
            problem = f"offset {offset} of {partition.tp} is in the archive, which cannot be read: {error}"
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, problem) from error

    def _index(self, store: ObjectStore, segment: ArchivedSegment) -> OffsetIndex:
        """A segment's index, from memory or from the store. Runs in a thread."""
        with self._lock:
            kept = self._indexes.get(segment)
            if kept is not None:
                self._indexes.move_to_end(segment)
                return kept
        index = read_index(store, segment)
        with self._lock:
            if segment not in self._indexes:
                self._indexes[segment] = index
                self._index_bytes += index.size_bytes
            while self._index_bytes > INDEX_BYTES_MAX and len(self._indexes) > 1:
                self._index_bytes -= self._indexes.popitem(last=False)[1].size_bytes
        return index


def _piece_at(partition: Partition, offset: Offset) -> Piece | None:
    return None if partition.archive is None else partition.archive.piece_at(offset)


async def read_chunk(
    broker: Broker, partition: Partition, offset: Offset, max_bytes: int, upto: Offset | None = None
) -> Chunk:
    """Read from the disk, or from the archive what is there only; waits in threads. Raises LogError or PeerError."""
    if broker.archive is not None and partition.is_in_archive_only(offset):
        chunk = await broker.archive.read(partition, offset, max_bytes)
        if chunk.data:
            return chunk
        offset = max(chunk.next_offset, partition.log.log_start)
    job = begin_read(partition.log, offset, max_bytes, upto)
    try:
        return await asyncio.get_running_loop().run_in_executor(None, job.run)
    finally:
        job.finish()


async def read_near(broker: Broker, partition: Partition, offset: Offset, max_bytes: int) -> Chunk:
    """Read what consumers may see: from memory here, from the disk or the archive in a thread. Raises as above."""
    end = partition.high_watermark
    if not partition.is_in_archive_only(offset):
        chunk = partition.log.read(offset, max_bytes, upto=end, nowait=True)
        if chunk is not None:
            return chunk
    return await read_chunk(broker, partition, offset, max_bytes, end)


async def find_offset(broker: Broker, partition: Partition, timestamp: int) -> TimestampOffset | None:
    """The first record at or after a time, in the archive or on the disk; None if all are older."""
    if broker.archive is not None and partition.log_start < partition.log.log_start:
        found = await broker.archive.find_time(partition, timestamp)
        if found is not None:
            return found
    return partition.log.offset_for_timestamp(timestamp)
