"""Reading whole batches out of a file segment.

Three ways, the first of which is the usual one: what has been checked since the process began is cut to whole
batches with the help of the index; what has not is checked batch by batch on the way out; and where that stumbles,
over damage or over an index that does not tell the truth, it is walked slowly, and only what is whole is served.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from odradek.disk.interface import Buffer
from odradek.log.scan import Damage, survey
from odradek.log.segment import Chunk
from odradek.model import Offset
from odradek.records.errors import CorruptBatchError
from odradek.records.header import HEADER_BYTES, LENGTH_OVERHEAD, check_batch

if TYPE_CHECKING:
    from odradek.log.backends.file_segment import FileSegment

UNINDEXED_BYTES_MAX = 1 << 20  # walking further than this without an index entry means that the index is wrong
_READ_BYTES_MIN = 4 << 10  # so that a small batch needs one read, however few bytes are asked for
_EXTRA_BYTES_MAX = 16 << 10  # read beyond what was asked for, since the index entry may stand before the batch

_WALKED_BATCHES = 8  # as many are walked over in the time of a look at the index

_peek = struct.Struct(">qi11xi").unpack_from  # base offset, length, last offset delta

logger = logging.getLogger(__name__)


class WrongIndexError(Exception):
    """An index entry points at something else than it says, or is missing."""


def read_segment(segment: FileSegment, offset: Offset, max_bytes: int, upto: Offset, nowait: bool) -> Chunk | None:
    """Give whole batches from the one that holds `offset`, or the next one, up to `upto` and `max_bytes`."""
    try:
        return _read(segment, offset, max_bytes, upto, nowait)
    except WrongIndexError as error:
        if nowait:
            return None
        position = 0
        if segment.rebuild_indexes(str(error)):
            position = (segment.indexes.offsets.floor(offset - segment.base_offset) or (-1, 0))[1]
        return _read_slowly(segment, offset, upto, position)


def _read(  # noqa: PLR0912 - the way of every fetch, in one piece
    segment: FileSegment, offset: Offset, max_bytes: int, upto: Offset, nowait: bool
) -> Chunk | None:
    cuts = segment.cuts  # first: what is found from here on is void if it changes
    ended_at, position, known_cuts = segment.read_end
    claim, extra = -1, 0
    if offset != ended_at or cuts != known_cuts:  # else the reader goes on, and the index need not be asked
        entry = segment.indexes.offsets.floor(offset - segment.base_offset, nowait=nowait)
        if entry is None:
            return None
        claim, position = entry
        extra = min(segment.config.index_interval_bytes, _EXTRA_BYTES_MAX) + HEADER_BYTES
    size = segment.size_bytes  # after the entry, which an append makes last
    if position >= size:
        if claim < 0:
            return _nothing(offset)
        raise WrongIndexError(f"an entry points at byte {position} of {size}")
    end = min(size, position + max(max_bytes, _READ_BYTES_MIN) + extra)
    if not segment.is_good(position, end):
        return None if nowait else _read_unchecked(segment, offset, max_bytes, upto, (claim, position), end)
    fetch = segment.file.read_cached if nowait else segment.file.read
    data = fetch(end - position, position)
    if data is None:
        return None
    at = 0
    while at + HEADER_BYTES <= len(data):
        base, length, delta = _peek(data, at)
        whole = length + LENGTH_OVERHEAD
        if (at == 0 and claim >= 0 and base + delta != segment.base_offset + claim) or whole < HEADER_BYTES:
            raise WrongIndexError(f"no batch that ends at {segment.base_offset + claim} stands at byte {position}")
        if base + delta < offset:
            at += whole
        elif base >= upto:
            return _nothing(offset)
        elif at + whole > len(data):  # a batch larger than what was read comes alone
            if position + at + whole > size or not segment.is_good(position + at, position + at + whole):
                break
            data = fetch(whole, position + at)
            if data is None:
                return None
            if len(data) < whole:  # it was cut meanwhile
                break
            segment.read_end = (base + delta + 1, position + at + whole, cuts)
            return Chunk(memoryview(data), base, base + delta + 1)
        else:
            behind, following = _whole_batches(segment, data, at, max(max_bytes, whole), position, upto, nowait)
            segment.read_end = (following, position + behind, cuts)
            return Chunk(memoryview(data)[at:behind], base, following)
    if position + at == size:  # a consumer that waits for more asks again and again: not in a thread
        return _nothing(offset)
    # It is far from its index entry, or has not been checked.
    return None if nowait else _read_slowly(segment, offset, upto, min(position + at, size))


def _whole_batches(
    segment: FileSegment, data: Buffer, start: int, max_bytes: int, position: int, upto: Offset, nowait: bool
) -> tuple[int, Offset]:
    """Where the last whole batch of checked bytes ends, and the offset there; the first one, at `start`, is whole.

    `data` stands at `position`.
    """
    limit = min(len(data), start + max_bytes)
    at, following, walked = start, upto, 0
    while at + HEADER_BYTES <= limit:
        if walked == _WALKED_BATCHES:  # do not walk over what the index can jump over
            at = _jump(segment, data, at, limit, position, upto, nowait)
        walked += 1
        base, length, delta = _peek(data, at)
        following = base
        end = at + length + LENGTH_OVERHEAD
        if end > limit or base >= upto:
            break
        following = base + delta + 1
        at = end
    return at, following


def _jump(segment: FileSegment, data: Buffer, at: int, limit: int, position: int, upto: Offset, nowait: bool) -> int:
    """The place of the last batch in `data` below `limit` and `upto` that has an index entry; `at` if none is later."""
    offsets = segment.indexes.offsets
    entry = offsets.floor_position(position + limit - HEADER_BYTES, nowait=nowait)
    if upto < segment.next_offset:
        entry = min(entry, offsets.floor(upto - segment.base_offset, nowait=nowait) or (-1, 0))
    if entry[1] - position > at:
        base, _, delta = _peek(data, entry[1] - position)
        if base + delta == segment.base_offset + entry[0]:
            return entry[1] - position
    return at


def _read_unchecked(
    segment: FileSegment, offset: Offset, max_bytes: int, upto: Offset, entry: tuple[int, int], end: int
) -> Chunk:
    """Read what nobody has checked since this process began: every batch, before it is served."""
    claim, position = entry
    view = memoryview(segment.file.read(end - position, position))
    expected = segment.base_offset if position == 0 else None
    start = at = 0
    first = following = None
    while at < len(view):
        try:
            header = check_batch(view, at)
        except CorruptBatchError:
            break  # damaged, or only cut off by what was read
        behind = at + header.size_bytes
        if segment.verify(header, expected) is not None or (first is not None and behind - start > max_bytes):
            break
        if at == 0 and claim >= 0 and header.last_offset != segment.base_offset + claim:
            raise WrongIndexError(f"an entry claims offset {segment.base_offset + claim} at byte {position}")
        if header.base_offset >= upto:
            break
        expected = header.next_offset
        if first is None and header.last_offset >= offset:
            start, first = at, header.base_offset
        following, at = expected, behind
    if first is not None and following is not None:
        segment.mark_good(position, position + at)
        return Chunk(view[start:at], first, following)
    if at == 0 and claim >= 0 and not segment.rebuilt and not _ends_at(view, segment.base_offset + claim):
        raise WrongIndexError(f"an entry points at byte {position}, where no whole batch stands")
    return _read_slowly(segment, offset, upto, position)


def _ends_at(view: memoryview, last_offset: Offset) -> bool:
    """Whether an index entry is right about what stands here, which may be damaged or larger than what was read."""
    if len(view) < HEADER_BYTES:
        return False
    base, _, delta = _peek(view)
    return bool(base + delta == last_offset)


def _read_slowly(segment: FileSegment, offset: Offset, upto: Offset, position: int) -> Chunk:
    """Find one batch that is large, far from its index entry, or behind damage; it is checked before it is served."""
    expected = segment.base_offset if position == 0 else None
    damage: Damage | None = None
    begin = position
    for found in survey(segment.file, position, segment.size_bytes, segment.verify, expected, segment.base_offset):
        if isinstance(found, Damage):
            damage = found
            continue
        header = found.header
        if header.last_offset < offset:
            damage = None
            continue
        if damage is not None and header.base_offset > offset:
            break
        if header.base_offset >= upto:
            return _nothing(offset)
        if found.position - begin > max(UNINDEXED_BYTES_MAX, 4 * segment.config.index_interval_bytes):
            segment.rebuild_indexes(f"there is no entry between the bytes {begin} and {found.position}")
        data = memoryview(segment.file.read(header.size_bytes, found.position))
        return Chunk(data, header.base_offset, header.next_offset)
    if damage is not None:
        logger.error("%s; it is not served", damage.error())
        raise damage.error()
    return _nothing(offset)


def _nothing(offset: Offset) -> Chunk:
    return Chunk(memoryview(b""), offset, offset)
