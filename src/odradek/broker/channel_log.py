"""Records of a partition's log for those who look at each: a channel's uploader and its readers by time.

A little that is in memory is read and taken apart on the loop; more than that, and all that must come from the disk,
in a thread.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from odradek.broker.topics import Partition
from odradek.log.reader import ReadJob, begin_read
from odradek.model import Offset
from odradek.records.buffers import ReadBuffer
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import Record

PLAIN_BYTES = 32 << 20  # of records that are held at once: some compress to almost nothing
_RECORD_BYTES = 128  # that an empty record takes here
_AT_ONCE_BYTES = 16 * 1024  # what the loop takes apart itself
_DECOMPRESSED_BYTES_MAX = 1 << 30  # of one batch: it was let in, so it is let out


class Piece(NamedTuple):
    """Some records of a log."""

    records: list[Record]  # without control records
    next_offset: Offset  # where to read on
    size_bytes: int  # of their batches in the log; 0: there was nothing
    plain_bytes: int  # of their keys and values


async def read_piece(partition: Partition, offset: Offset, max_bytes: int, upto: Offset) -> Piece:
    """Read records from an offset on and below another; of at least one batch, if there is one."""
    chunk = partition.log.read(offset, min(max_bytes, _AT_ONCE_BYTES), upto=upto, nowait=True)
    if chunk is not None and (not chunk.data or chunk.next_offset >= upto):
        return _take_apart(chunk.data, offset, chunk.next_offset)
    job = begin_read(partition.log, offset, max_bytes, upto)
    try:
        return await asyncio.get_running_loop().run_in_executor(None, _run, job)
    finally:
        job.finish()


def _run(job: ReadJob) -> Piece:
    chunk = job.run()
    return _take_apart(chunk.data, job.offset, chunk.next_offset)


def _take_apart(data: ReadBuffer, offset: Offset, next_offset: Offset) -> Piece:
    records: list[Record] = []
    plain_bytes = 0
    for at, header in iter_headers(data):
        if plain_bytes + len(records) * _RECORD_BYTES >= PLAIN_BYTES:
            return Piece(records, header.base_offset, at, plain_bytes)
        if not header.is_control:
            found = parse_batch(data, at, size_max=_DECOMPRESSED_BYTES_MAX)
            records += [record for record in found if record.offset >= offset]
            plain_bytes += sum([len(record.value or b"") + len(record.key or b"") for record in found])
    return Piece(records, max(next_offset, offset), len(data), plain_bytes)
