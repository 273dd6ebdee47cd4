"""Walking over the batches of a log file, block by block, and finding the next whole one after damage.

Recovery, first reads, `odradek log verify` and the rebuilding of indexes all read files through this one loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from odradek.disk.interface import File
from odradek.log.errors import DamagedLogError
from odradek.log.segment import BatchCheck, Placed
from odradek.model import Offset
from odradek.records.crc import crc32c
from odradek.records.errors import CorruptBatchError
from odradek.records.header import (
    BATCH_LENGTH_MIN,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_batch,
    read_header,
)

BLOCK_BYTES = 512 << 10  # measured: smaller ones cost calls, larger ones leave the processor's cache
BATCH_BYTES_MAX = 1 << 30  # a length beyond this is damage, not a batch
OFFSET_SPAN_MAX = 2**31 - 1  # relative offsets in an index are four bytes, and Kafka's are signed
_FAR = 1 << 63
_MAGIC_AT = 16
_IN_BLOCK = re.compile(r"^batch at byte [0-9]+")


class Damage(NamedTuple):
    """Bytes that are no batch, and where the next whole batch begins, if there is one."""

    path: str
    position: int
    reason: str
    resumes: Placed | None

    def error(self) -> DamagedLogError:
        """The same as an exception."""
        return DamagedLogError(self.path, self.position, self.reason)


def survey(
    file: File,
    start: int,
    end: int,
    check: BatchCheck,
    expected: Offset | None,
    base_offset: Offset | None,
    *,
    crc: bool = True,
) -> Iterator[Placed | Damage]:
    """Yield the batches between two positions; where one is damaged, say so and go on with the next whole one.

    `base_offset` is the segment's, if it is known: no offset in it is lower, or higher by more than an index can hold.
    """
    position, after = start, -1 if base_offset is None else base_offset - 1
    limit = _FAR if base_offset is None else base_offset + OFFSET_SPAN_MAX
    while position < end:
        try:
            for placed in scan(file, position, end, check, expected, crc=crc):
                yield placed
                after = placed.header.last_offset
            return
        except DamagedLogError as error:
            resumes = next_whole_batch(file, error.position + 1, end, check, (after, limit))
            yield Damage(file.path, error.position, error.reason, resumes)
            if resumes is None:
                return
            position, expected = resumes.position, None


def scan(
    file: File, start: int, end: int, check: BatchCheck, expected: Offset | None, *, crc: bool = True
) -> Iterator[Placed]:
    """Yield each batch between two positions; DamagedLogError names the first that is not what was written."""
    position, wanted, shortened = start, BLOCK_BYTES, False
    new_tuple, unpack, checksum = tuple.__new__, HEADER.unpack_from, crc32c
    while position < end:
        wanted = min(wanted, end - position)
        block = file.read(wanted, position)
        view, length = memoryview(block), len(block)
        if length < wanted:
            end, shortened = position + length, True  # it was cut meanwhile: what is gone is not waited for
        at, wanted = 0, BLOCK_BYTES
        while at + HEADER_BYTES <= length:
            # As fast as it can be, since recovery waits for it: a look by position here, a word on what is wrong below.
            header: BatchHeader = new_tuple(BatchHeader, unpack(block, at))
            behind = at + header[1] + LENGTH_OVERHEAD
            if behind > length or header[3] != MAGIC or header[1] < BATCH_LENGTH_MIN or header[6] < 0 or header[12] < 0:
                break
            if crc and checksum(view[at + CRC_START : behind]) != header[4]:
                break
            reason = check(header, expected)
            if reason is not None:
                raise DamagedLogError(file.path, position + at, reason)
            yield new_tuple(Placed, (position + at, header))
            expected = header[0] + header[6] + 1
            at = behind
        if at < length:
            wanted = _more_bytes(file, view, at, position, end)
        position += at
    if shortened:
        raise DamagedLogError(file.path, position, "the file ends here, although it was longer")


def _more_bytes(file: File, block: memoryview, at: int, position: int, end: int) -> int:
    """How many bytes must be read to have a batch whole that the block cuts off; raises if it is damaged."""
    left = end - position - at
    if left < HEADER_BYTES:
        raise DamagedLogError(file.path, position + at, f"{left} bytes are too few for a batch")
    if len(block) - at < HEADER_BYTES:
        return BLOCK_BYTES
    try:
        header = read_header(block, at)
        if header.magic == MAGIC and len(block) - at < header.size_bytes <= BATCH_BYTES_MAX:
            if header.size_bytes <= left:
                return max(BLOCK_BYTES, header.size_bytes)
            reason = f"the batch is cut off: it takes {header.size_bytes} bytes, {left} are left"
            raise DamagedLogError(file.path, position + at, reason)
        check_batch(block, at)
    except CorruptBatchError as error:
        raise DamagedLogError(file.path, position + at, _IN_BLOCK.sub("the batch", str(error))) from error
    raise DamagedLogError(file.path, position + at, "it is not a batch")


def next_whole_batch(
    file: File, start: int, end: int, check: BatchCheck, offsets: tuple[Offset, Offset]
) -> Placed | None:
    """Find the first position from `start` on at which a whole batch begins, between two offsets (exclusive)."""
    position = start
    while position + HEADER_BYTES <= end:
        block = file.read(min(BLOCK_BYTES, end - position), position)
        if len(block) < HEADER_BYTES:
            return None
        at = block.find(MAGIC, _MAGIC_AT)
        while 0 <= at <= len(block) - HEADER_BYTES + _MAGIC_AT:
            begin = at - _MAGIC_AT
            header = read_header(block, begin)
            if _plausible(header, end - position - begin, offsets) and check(header, None) is None:
                batch = file.read(header.size_bytes, position + begin)
                if _is_whole(batch):
                    return Placed(position + begin, header)
            at = block.find(MAGIC, at + 1)
        position += len(block) - HEADER_BYTES + 1
    return None


def _plausible(header: BatchHeader, left: int, offsets: tuple[Offset, Offset]) -> bool:
    size = header.batch_length + LENGTH_OVERHEAD
    return (
        HEADER_BYTES <= size <= min(left, BATCH_BYTES_MAX)
        and offsets[0] < header.base_offset <= header.last_offset < offsets[1]
        and header.record_count >= 0
    )


def _is_whole(batch: bytes) -> bool:
    try:
        check_batch(batch)
    except CorruptBatchError:
        return False
    return True
