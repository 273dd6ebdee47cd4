"""Counters and histograms: what is counted where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metrics import LATENCY_BOUNDS_SECONDS, DoorStats, Histogram


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (1.0, 0), (1.0001, 1), (2.0, 1), (5.0, 2), (5.1, 3)])
def test_a_value_is_counted_below_the_first_bound_that_it_does_not_exceed(value: float, bucket: int) -> None:
    histogram = Histogram((1.0, 2.0, 5.0))
    histogram.observe(value)
    assert histogram.counts == [int(number == bucket) for number in range(4)]
    assert (histogram.count, histogram.total) == (1, value)


@given(st.lists(st.floats(0, 100)))
def test_every_value_is_counted_once(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(sum(values))
    for number, bound in enumerate(histogram.bounds):
        assert sum(histogram.counts[: number + 1]) == sum(value <= bound for value in values)


def test_the_bounds_of_latency_grow_from_a_tenth_of_a_millisecond_to_half_a_minute() -> None:
    assert list(LATENCY_BOUNDS_SECONDS) == sorted(set(LATENCY_BOUNDS_SECONDS))
    assert (LATENCY_BOUNDS_SECONDS[0], LATENCY_BOUNDS_SECONDS[-1]) == (0.0001, 30.0)


def test_each_api_has_counters_of_its_own_that_stay() -> None:
    stats = DoorStats()
    stats.api("FETCH").errors += 1
    stats.api("FETCH").request_bytes += 5
    stats.api("PRODUCE").latency.observe(0.5)
    assert (stats.api("FETCH").errors, stats.api("FETCH").request_bytes) == (1, 5)
    assert (stats.api("PRODUCE").errors, stats.api("PRODUCE").latency.count) == (0, 1)
    assert sorted(stats.apis) == ["FETCH", "PRODUCE"]
