"""How what is to be read is cut into tasks, and what filters on the time leave of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from odradek.spark.store.filters import times_of
from odradek.spark.store.options import ALWAYS, TimeRange
from odradek.spark.store.planning import grouped

MOMENT = datetime(2026, 5, 4, 12, 0, 0, 1500, tzinfo=UTC)
MS = 1_777_896_000_001
COLUMN = ("timestamp",)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100), st.none() | st.integers(1, 80))
def test_everything_is_in_one_task_in_order_and_no_task_is_much_too_large(
    sizes: list[int], bytes_max: int, at_least: int | None
) -> None:
    groups = grouped(list(enumerate(sizes)), lambda item: item[1], bytes_max=bytes_max, at_least=at_least)
    assert [item for group in groups for item in group] == list(enumerate(sizes))
    assert all(groups)
    assert len(groups) >= min(at_least or 0, len(sizes))
    largest = max([1, *sizes])
    assert all(sum(max(1, size) for _, size in group) <= bytes_max + largest for group in groups)


def test_small_neighbours_go_together() -> None:
    assert [len(group) for group in grouped([1] * 1440, lambda _: 1, bytes_max=360)] == [360] * 4
    assert grouped([], lambda _: 1, bytes_max=5, at_least=3) == []


def test_one_that_is_large_is_alone_and_the_others_make_up_the_number() -> None:
    assert grouped([1, 1, 90, 1, 1], lambda size: size, bytes_max=1000, at_least=3) == [[1, 1], [90], [1, 1]]


@pytest.mark.parametrize(
    ("filters", "times"),
    [
        ([], ALWAYS),
        ([EqualTo(COLUMN, MOMENT)], TimeRange(MS, MS + 1)),
        ([EqualNullSafe(COLUMN, MOMENT)], TimeRange(MS, MS + 1)),
        ([GreaterThan(COLUMN, MOMENT)], TimeRange(MS, ALWAYS.end_ms)),
        ([GreaterThanOrEqual(("TimeStamp",), MOMENT)], TimeRange(MS, ALWAYS.end_ms)),
        ([LessThan(COLUMN, MOMENT)], TimeRange(ALWAYS.start_ms, MS + 1)),
        (
            [LessThanOrEqual(COLUMN, MOMENT.astimezone(timezone(timedelta(hours=2))))],
            TimeRange(ALWAYS.start_ms, MS + 1),
        ),
        ([In(COLUMN, (MOMENT, MOMENT - timedelta(milliseconds=5)))], TimeRange(MS - 5, MS + 1)),
        ([GreaterThan(COLUMN, MOMENT), LessThan(COLUMN, MOMENT + timedelta(seconds=1))], TimeRange(MS, MS + 1001)),
        ([Not(GreaterThan(COLUMN, MOMENT))], ALWAYS),
        ([IsNotNull(COLUMN), GreaterThan(("offset",), 5), EqualTo(COLUMN, None)], ALWAYS),
        ([EqualTo(("headers", "timestamp"), MOMENT)], ALWAYS),
    ],
)
def test_filters_leave_a_range_of_times(filters: list[Filter], times: TimeRange) -> None:
    assert times_of(filters) == times
