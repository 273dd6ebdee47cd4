"""Filters on the column `timestamp` that Spark hands over, as a range of times.

The range only says what need not be read: readers hand every filter back, and Spark looks at each row all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek.spark.store.options import ALWAYS, TimeRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def times_of(filters: Sequence[Filter]) -> TimeRange:
    """The milliseconds in which rows can lie that pass all of these filters, and perhaps some more."""
    times = ALWAYS
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        if [name.lower() for name in attribute] == ["timestamp"]:
            times = times.within(*_bounds(one))
    return times


def _bounds(one: Any) -> tuple[int, int]:
    match one:
        case EqualTo() | EqualNullSafe() if isinstance(one.value, datetime):
            return _floor_ms(one.value), _floor_ms(one.value) + 1
        case GreaterThan() | GreaterThanOrEqual() if isinstance(one.value, datetime):
            return _floor_ms(one.value), ALWAYS.end_ms
        case LessThan() | LessThanOrEqual() if isinstance(one.value, datetime):
            return ALWAYS.start_ms, _floor_ms(one.value) + 1
        case In() if one.value and all(isinstance(value, datetime) for value in one.value):
            moments = [_floor_ms(value) for value in one.value]
            return min(moments), max(moments) + 1
        case _:
            return ALWAYS.start_ms, ALWAYS.end_ms


def _floor_ms(moment: datetime) -> int:
    """Milliseconds; a moment without a zone is in that of this machine, as everywhere in Python."""
    return (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND
