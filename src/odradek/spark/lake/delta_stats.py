"""What Delta's log says of a file, so that readers can skip it: rows, and each column's nulls, minimum and maximum."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq

TEXT_MAX = 32  # longer ones would have to be cut, and a maximum be rounded up


def statistics(footer: pq.FileMetaData) -> str:
    """Read a footer; columns inside of others, binaries and decimals are left out."""
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for index, name in enumerate(footer.schema.names):
        if footer.schema.column(index).path != name:
            continue
        columns = [footer.row_group(group).column(index) for group in range(footer.num_row_groups)]
        known = [column.statistics for column in columns if column.is_stats_set]
        if len(known) < len(columns) or not all(one.has_null_count for one in known):
            continue
        nulls[name] = sum(one.null_count for one in known)
        ranges = [one for one in known if one.num_values]
        if ranges and all(one.has_min_max for one in ranges):
            low, high = min(one.min for one in ranges), max(one.max for one in ranges)
            if _has_order(low) and _has_order(high):
                least[name], greatest[name] = _written(low), _written(high, up=True)
    return json.dumps({"numRecords": footer.num_rows, "nullCount": nulls, "minValues": least, "maxValues": greatest})


def _has_order(value: Any) -> bool:
    if isinstance(value, bool | bytes):
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return len(value) <= TEXT_MAX
    return isinstance(value, int | date)


def _written(value: Any, *, up: bool = False) -> Any:
    """Delta's log has times in milliseconds: what bounds from above is rounded up."""
    if isinstance(value, datetime):
        if up and value.microsecond % 1000:
            value += timedelta(milliseconds=1)
        zone = "Z" if value.tzinfo is not None else ""
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
    return value.isoformat() if isinstance(value, date) else value
