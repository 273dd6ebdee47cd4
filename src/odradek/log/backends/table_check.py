"""What a row must satisfy before it is served: it holds one whole batch, the one that it says, in its place."""

from __future__ import annotations

from odradek.log.backends.table import Row
from odradek.log.errors import DamagedLogError
from odradek.log.segment import BatchCheck
from odradek.model import Offset
from odradek.records.errors import CorruptBatchError
from odradek.records.header import check_batch


def damage_of(path: str, row: Row, verify: BatchCheck, expected: Offset | None) -> DamagedLogError | None:
    """Say what is wrong with a row that follows offset `expected` (None: not known); None if nothing is."""
    try:
        header = check_batch(row.data)
    except CorruptBatchError as error:
        return DamagedLogError(path, row.position, str(error).replace("batch at byte 0", "the batch"))
    if len(row.data) != header.size_bytes:
        reason = f"{len(row.data) - header.size_bytes} bytes follow the batch in its row"
        return DamagedLogError(path, row.position, reason)
    said = (row.base_offset, row.last_offset, row.max_timestamp)
    if said != (header.base_offset, header.last_offset, header.max_timestamp):
        reason = (
            f"the row of offset {row.base_offset} holds the batch of offset {header.base_offset}, or of other times"
        )
        return DamagedLogError(path, row.position, reason)
    reason_or_none = verify(header, expected)
    return DamagedLogError(path, row.position, reason_or_none) if reason_or_none is not None else None
