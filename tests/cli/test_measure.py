"""The figures of a measurement."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.live import curve
from odradek.cli.load import payloads
from odradek.cli.measure import Histogram, Meter


def test_percentiles_are_those_of_the_values() -> None:
    histogram = Histogram()
    for number in range(1, 1001):
        histogram.add(number / 1000)
    assert histogram.count == 1000
    found = histogram.in_ms()
    assert found["p50"] == pytest.approx(500, rel=0.01)
    assert found["p99"] == pytest.approx(990, rel=0.01)
    assert found["p99.9"] == pytest.approx(999, rel=0.01)
    assert found["max"] == 1000


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.floats(0.1, 100))
def test_a_percentile_is_within_a_percent_of_the_right_one(values: list[float], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    index = max(0, -(-len(values) * percent // 100) - 1)
    exact = sorted(values)[int(index)]
    assert histogram.percentile(percent) == pytest.approx(exact, rel=0.01, abs=2e-7)


def test_nothing_measured_is_nothing() -> None:
    assert Histogram().percentile(99) == 0
    assert Meter(started_at=5.0).seconds(7.0) == 2.0
    assert Meter(started_at=5.0, stopped_at=6.0).seconds(7.0) == 1.0


@pytest.mark.parametrize("record_bytes", [0, 1, 100, 1024, 2**20])
def test_payloads_have_their_size_and_differ(record_bytes: int) -> None:
    values = payloads(record_bytes)
    assert {len(value) for value in values} == {record_bytes}
    assert record_bytes < 100 or len(set(values)) == len(values) > 1


def test_the_curve_is_as_high_as_the_highest() -> None:
    assert curve(deque()) == ""
    assert curve(deque([0.0, 0.0])) == "▁▁"
    assert curve(deque([0.0, 50.0, 100.0])) == "▁▅█"
