"""Opening a segment in a table whose last process may have died: what is checked, what is cut, what is kept.

The rules are those of file segments. Behind the recovery point nothing was promised to anybody, so the table is cut at
the first row that is not good; good ones behind it are kept in a file beside. Where no recovery point is known, only
a tail that nothing good follows is cut, and damage in the middle stays where it is: reported, and never served.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from odradek.log.backends.table import Row
from odradek.log.backends.table_check import damage_of
from odradek.log.errors import DamagedLogError
from odradek.log.segment import EndOfSegment, Recovered
from odradek.model import Offset

if TYPE_CHECKING:
    from odradek.log.backends.table_segment import TableSegment

log = logging.getLogger(__name__)


class _Damage(NamedTuple):
    """A row that is not good, and the next good one, if there is one."""

    row: Row
    error: DamagedLogError
    resumes: Row | None


def recover_table(segment: TableSegment, flushed: EndOfSegment | None) -> Recovered:
    """Check what came after `flushed` (None: everything), cut a torn tail, know the segment's end."""
    try:
        last = segment.table.last()
    except DamagedLogError as error:
        if flushed is None or flushed.size_bytes:
            raise
        # It was made and never flushed before the machine died: nobody was promised anything of it.
        log.warning("%s; nothing of it was flushed, so it begins anew", error)
        segment.table.reset()
        segment.next_offset = flushed.next_offset
        segment.learn(None)
        return Recovered(0, 1, error.reason)
    size, lost = last.end if last is not None else 0, False
    if flushed is not None and not _reaches(segment, flushed, size):
        text = "%s has %d bytes although %d were flushed; all of it is checked"
        log.error(text, segment.path, size, flushed.size_bytes)
        flushed, lost = None, True
    segment.next_offset = flushed.next_offset if flushed is not None else segment.base_offset
    start = flushed.size_bytes if flushed is not None else 0
    good_from, cut_bytes, reason = segment.next_offset, 0, ""
    damage = _take_note(segment, segment.next_offset, start)
    while damage is not None:
        if flushed is not None or damage.resumes is None:
            cut_bytes, reason = max(1, size - damage.row.position), damage.error.reason
            _cut(segment, damage, size, was_flushed=lost)
            break
        log.error("%s; what follows is whole and stays", damage.error)
        good_from = segment.next_offset = damage.resumes.base_offset
        damage = _take_note(segment, good_from, None)
    segment.learn(segment.table.last())
    segment.doubt_all()
    segment.mark_good(good_from, segment.next_offset)
    return Recovered(max(0, size - start), cut_bytes, reason)


def _reaches(segment: TableSegment, flushed: EndOfSegment, size: int) -> bool:
    """Whether the table still has all that was flushed."""
    if flushed.size_bytes > size:
        return False
    following = segment.table.find(flushed.next_offset)
    return following.position == flushed.size_bytes if following is not None else size == flushed.size_bytes


def _take_note(segment: TableSegment, start: Offset, position: int | None) -> _Damage | None:
    """Check the rows from an offset on and move the segment's end behind them; give the first damage."""
    expected: Offset | None = start
    rows = segment.table.rows(start)
    for row in rows:
        error = damage_of(segment.path, row, segment.check, expected)
        if error is None and position is not None and row.position != position:
            error = DamagedLogError(segment.path, row.position, f"the row stands where byte {position} belongs")
        if error is not None:
            good = (later for later in rows if later.base_offset > row.base_offset)
            whole = (later for later in good if damage_of(segment.path, later, segment.verify, None) is None)
            return _Damage(row, error, next(whole, None))
        segment.next_offset = expected = row.last_offset + 1
        position = row.end
    return None


def _cut(segment: TableSegment, damage: _Damage, size: int, *, was_flushed: bool) -> None:
    """Remove the rows from the damage on; keep a copy of what may still matter to somebody."""
    position = damage.row.position
    if damage.resumes is not None or was_flushed:
        copy = f"{segment.path}.cut-{position}"
        file = segment.disk.open(copy, create=True)
        for row in chain([damage.row], segment.table.rows(damage.row.last_offset + 1)):
            file.append(row.data)
        file.sync()
        file.close()
        log.warning("the last batches of %s, from byte %d on, are kept in %s", segment.path, position, copy)
    segment.cut(damage.row.base_offset)
    state = "were flushed and have been changed since" if was_flushed else "were not flushed when the last process died"
    text = "%s: cut %d bytes at position %d, which %s: %s"
    log.warning(text, segment.path, size - position, position, state, damage.error.reason)
