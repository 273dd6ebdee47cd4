"""Opening a file segment whose last process may have died: what is checked, what is cut, what is kept.

Behind the recovery point nothing was promised to anybody, so the file is cut at the first batch that is not whole;
whole batches behind the cut, which a rare order of events can leave, are kept in a file beside. Where no recovery
point is known, only a tail that nothing whole follows is cut, and damage in the middle stays where it is: reported,
and never served.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.log.config import Flush
from odradek.log.errors import DamagedLogError
from odradek.log.scan import OFFSET_SPAN_MAX, Damage, next_whole_batch, scan, survey
from odradek.log.segment import EndOfSegment, Recovered

if TYPE_CHECKING:
    from odradek.log.backends.file_segment import FileSegment

log = logging.getLogger(__name__)


def recover_segment(segment: FileSegment, flushed: EndOfSegment | None) -> Recovered:
    """Check what came after `flushed` (None: everything), cut a torn tail, bring the indexes up to date."""
    size, lost = segment.size_bytes, False
    if flushed is not None and flushed.size_bytes > size:
        log.error(
            "%s has %d bytes although %d were flushed; all of it is checked", segment.path, size, flushed.size_bytes
        )
        flushed, lost = None, True
    start = flushed.size_bytes if flushed is not None else 0
    segment.next_offset = flushed.next_offset if flushed is not None else segment.base_offset
    _resume_indexes(segment, start, trusted=flushed is not None and flushed.indexed)
    good_from, cut_bytes, reason = start, 0, ""
    damage = _take_note(segment, start, size)
    while damage is not None:
        if flushed is not None or damage.resumes is None:
            cut_bytes, reason = size - damage.position, damage.reason
            _cut(segment, damage, was_flushed=lost)
            break
        log.error("%s; what follows is whole and stays", damage.error())
        good_from = damage.resumes.position
        segment.next_offset = damage.resumes.header.base_offset
        damage = _take_note(segment, good_from, size)
    segment.indexes.enter_time()
    if flushed is not None and segment.config.flush is Flush.GROUP:
        # A flush that failed may have left pages that pass for clean: only what is written again is sure to be synced.
        segment.write_again(start)
    segment.mark_good(good_from, segment.size_bytes)
    return Recovered(size - start, cut_bytes, reason)


def _take_note(segment: FileSegment, start: int, end: int) -> Damage | None:
    """Check the batches between two positions and let the segment know them; give the first damage."""
    note = segment.indexes.note
    last = segment.next_offset - 1
    try:
        for position, header in scan(segment.file, start, end, segment.check, segment.next_offset):
            last = header[0] + header[6]
            note(position, last, header[8])
    except DamagedLogError as error:
        offsets = (last, segment.base_offset + OFFSET_SPAN_MAX)
        resumes = next_whole_batch(segment.file, error.position + 1, end, segment.verify, offsets)
        return Damage(segment.path, error.position, error.reason, resumes)
    finally:
        segment.next_offset = last + 1
    return None


def _cut(segment: FileSegment, damage: Damage, *, was_flushed: bool) -> None:
    """Shorten the file to where the damage begins; keep a copy of what may still matter to somebody."""
    count = segment.size_bytes - damage.position
    if damage.resumes is not None or was_flushed:
        copy = f"{segment.path}.cut-{damage.position}"
        segment.save_copy(copy, damage.position)
        log.warning("the last %d bytes of %s are kept in %s", count, segment.path, copy)
    segment.cut(damage.position)
    state = "were flushed and have been changed since" if was_flushed else "were not flushed when the last process died"
    text = "%s: cut %d bytes at position %d, which %s: %s"
    log.warning(text, segment.path, count, damage.position, state, damage.reason)


def _resume_indexes(segment: FileSegment, end: int, *, trusted: bool) -> None:
    """Let the indexes know the batches before `end`, without reading what they are known to know."""
    indexes = segment.indexes
    indexes.resume(end, segment.next_offset)
    try:
        if not trusted and not indexes.are_ordered():
            raise DamagedLogError(segment.path, 0, "its entries are not in order")
        known = indexes.known(trusted=trusted)
        claims = dict(known.claims)
        noted = indexes.offsets.last()  # up to here the offset index has its entries
        for position, header in scan(segment.file, known.position, end, segment.verify, None, crc=False):
            if claims.pop(position, header.last_offset) != header.last_offset:
                raise DamagedLogError(segment.path, position, "an entry of its index claims another batch here")
            if header.last_offset == known.time_offset and header.max_timestamp != known.timestamp:
                raise DamagedLogError(segment.path, position, "its time index claims another time for this batch")
            if noted is None or position > noted[1]:
                indexes.note(position, header.last_offset, header.max_timestamp)
            else:
                indexes.note_time(header.last_offset, header.max_timestamp)
        if claims:
            raise DamagedLogError(segment.path, min(claims), "an entry of its index claims a batch that is not there")
    except DamagedLogError as error:
        log.warning("rebuilding the indexes of %s: %s", segment.path, error.reason)
        rebuild_indexes(segment, end)


def rebuild_indexes(segment: FileSegment, end: int) -> None:
    """Make the indexes anew from the batches before `end`, stepping over damage."""
    found = survey(segment.file, 0, end, segment.verify, segment.base_offset, segment.base_offset, crc=False)
    segment.indexes.rebuild(placed for placed in found if not isinstance(placed, Damage))
