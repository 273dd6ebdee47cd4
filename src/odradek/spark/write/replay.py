"""Finds out what an earlier attempt has written of a batch, and what is left to do. In any order of the rows.

Batches that are the same byte for byte, as they are when the rows come in the same order, are compared as a whole. What
differs is compared row by row: key, value and headers, each row as often as it occurs. Times are not compared: they are
the time of writing unless the rows bring one. A row that chose its partition freely may have gone to another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.errors import ClientError
from odradek.client.offsets import bounds
from odradek.model import TopicPartition
from odradek.records.compression import codec_from_id
from odradek.records.header import HEADER_BYTES, SEQUENCE_MAX, BatchHeader, iter_headers, read_header
from odradek.records.parse import parse_batch
from odradek.records.record import Record
from odradek.spark.read.fetching import OutOfRange, PartitionFetcher
from odradek.spark.write.sender import BrokenSequenceError, Lane, Prepared, WriteError, rebuilt
from odradek.spark.write.sink_state import Claim
from odradek.spark.write.spool import Spool
from odradek.wire.errors import ErrorCode

FETCH_BYTES = 8 * 1024 * 1024
DIGEST_BYTES = 16
_LENGTHS = struct.Struct(">qqq")


class _Found(NamedTuple):
    """A batch of our producer in a partition."""

    header: BatchHeader
    data: memoryview


class Written:
    """What is in the topics of a batch, compared with what is to be written."""

    def __init__(self, spool: Spool, claim: Claim) -> None:
        self.record_count = 0  # found, of this producer
        self.epoch_max = claim.epoch
        self.is_cut = False  # the beginning of what may have been written is gone from a log
        self._spool = spool
        self._claim = claim
        self._sequences: dict[TopicPartition, int] = {}
        self._whole: dict[TopicPartition, set[int]] = {}  # batches of the spool that are there as they are
        self._rows: dict[TopicPartition, Counter[bytes]] = {}  # all else that is there
        self._elsewhere: dict[str, Counter[bytes]] = {}  # of those, what does not belong where it is

    async def look(self, cluster: Cluster) -> None:
        """Read what our producer has written since the batch was claimed."""
        first, last = await bounds(cluster, self._claim.starts)
        for partition, start in self._claim.starts.items():
            self.is_cut = self.is_cut or first[partition] > start
            waiting: dict[bytes, list[int]] = {}
            for spooled in self._spool.batches(partition):
                waiting.setdefault(_digest(memoryview(spooled.data)[HEADER_BYTES:]), []).append(spooled.place)
            async for found in self._found(cluster, partition, max(start, first[partition]), last[partition]):
                self._take(partition, found, waiting)
        self._compare()

    async def _found(self, cluster: Cluster, partition: TopicPartition, at: int, end: int) -> AsyncIterator[_Found]:
        timeout_ms = cluster.timeouts.total_ms
        fetcher = PartitionFetcher(cluster, partition, read_committed=False, timeout_ms=timeout_ms)
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while at < end:
            answer = await fetcher.fetch(at, FETCH_BYTES)
            if isinstance(answer, OutOfRange):
                self.is_cut, at, end = True, max(at, answer.first), min(end, answer.last)
                continue
            for position, header in iter_headers(answer.records):
                if header.next_offset <= at:
                    continue
                at = header.next_offset
                if header.producer_id == self._claim.producer_id and not header.is_control:
                    yield _Found(header, answer.records[position : position + header.size_bytes])
            if asyncio.get_running_loop().time() > deadline:
                raise WriteError(f"partition {partition} could not be read up to {end} within {timeout_ms / 1000:g} s")

    def _take(self, partition: TopicPartition, found: _Found, waiting: dict[bytes, list[int]]) -> None:
        header = found.header
        self.record_count += header.record_count
        self.epoch_max = max(self.epoch_max, header.producer_epoch)
        if header.producer_epoch == self._claim.epoch:
            self._sequences[partition] = (header.last_sequence + 1) & SEQUENCE_MAX
        same = waiting.get(_digest(found.data[HEADER_BYTES:]))
        if same:
            self._whole.setdefault(partition, set()).add(same.pop())
        else:
            rows = self._rows.setdefault(partition, Counter())
            rows.update(map(_row_digest, parse_batch(found.data, check_crc=True)))

    def _compare(self) -> None:
        """See which rows that were found do not belong where they are: rows of other partitions, then."""
        for partition, found in self._rows.items():
            left = Counter(found)
            for spooled in self._unwritten(partition):
                for record in parse_batch(spooled.data):
                    digest = _row_digest(record)
                    if left[digest] > 0:
                        left[digest] -= 1
            self._elsewhere.setdefault(partition.topic, Counter()).update(+left)

    def _unwritten(self, partition: TopicPartition) -> Iterator[Prepared]:
        whole = self._whole.get(partition, ())
        for spooled in self._spool.batches(partition):
            if spooled.place not in whole:
                yield Prepared(spooled.record_count, spooled.data)

    def lanes(self) -> list[Lane]:
        """What is left to be sent."""
        return [
            Lane(partition, self._left(partition), self._sequences.get(partition, 0))
            for partition in self._spool.partitions()
        ]

    def _left(self, partition: TopicPartition) -> Iterator[Prepared]:
        """The batches of a partition without the rows that are there; the first has one row.

        An earlier attempt that still runs has a batch of another size under way with the same number. So the partition
        takes one of the two, and refuses the second: neither can be mistaken for a repetition of the other. Where both
        send single rows, each looks at what it was acknowledged; see Verifier.
        """
        is_first = True
        rows = Counter(self._rows.get(partition, ()))
        for batch in self._unwritten(partition):
            left = self._without(batch, partition, rows)
            if left is None:
                continue
            if is_first and left.count > 1:
                yield from left.split(1)
            else:
                yield left
            is_first = False

    def _without(self, batch: Prepared, partition: TopicPartition, rows: Counter[bytes]) -> Prepared | None:
        elsewhere = self._elsewhere.get(partition.topic)
        if not rows and not elsewhere:
            return batch
        kept = []
        for record in parse_batch(batch.data):
            digest = _row_digest(record)
            for found in (rows, elsewhere):
                if found and found[digest] > 0:
                    found[digest] -= 1
                    break
            else:
                kept.append(record)
        if len(kept) == batch.count:
            return batch
        return rebuilt(kept, codec_from_id(read_header(batch.data).codec)) if kept else None


class Verifier:
    """Looks whether a batch that was acknowledged is really ours: two attempts may have used the same numbers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def check(self, partition: TopicPartition, batch: Prepared, offset: int) -> None:
        """Raise BrokenSequenceError if somebody else's rows stand at the offset."""
        if offset < 0 or not await self._is_there(partition, batch, offset):
            message = f"what stands at offset {offset} was written by another attempt"
            raise BrokenSequenceError(partition, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, message)

    async def _is_there(self, partition: TopicPartition, batch: Prepared, offset: int) -> bool:
        timeout_ms = self._cluster.timeouts.total_ms
        fetcher = PartitionFetcher(self._cluster, partition, read_committed=False, timeout_ms=timeout_ms)
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while asyncio.get_running_loop().time() < deadline:
            answer = await fetcher.fetch(offset, len(batch.data) + HEADER_BYTES)
            if isinstance(answer, OutOfRange):
                return False
            for position, header in iter_headers(answer.records):
                if header.base_offset == offset:
                    return _is_same(answer.records[position : position + header.size_bytes], batch)
                if header.base_offset > offset:
                    return False
        raise ClientError(f"the record at offset {offset} of partition {partition} cannot be read")


def _is_same(found: memoryview, batch: Prepared) -> bool:
    if found[HEADER_BYTES:] == memoryview(batch.data)[HEADER_BYTES:]:
        return True
    # A broker may have compressed the records in another way.
    return list(map(_row_digest, parse_batch(found))) == list(map(_row_digest, parse_batch(batch.data)))


def _digest(data: memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _row_digest(record: Record) -> bytes:
    key, value, headers = record.key, record.value, record.headers
    lengths = _LENGTHS.pack(-1 if key is None else len(key), -1 if value is None else len(value), len(headers))
    parts = [lengths, key or b"", value or b""]
    for name, content in headers:
        named = name.encode()
        parts += [_LENGTHS.pack(len(named), -1 if content is None else len(content), 0), named, content or b""]
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()
