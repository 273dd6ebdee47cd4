"""Which segments retention lets go: a table of cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.retention import SegmentFacts, expired_count
from tests.log.support import log_config

NOW = 1_000_000
HOUR = 3_600


def segments(*sizes: int, ages: tuple[int, ...] = ()) -> list[SegmentFacts]:
    """Segments of ten offsets each, oldest first, the last one active; ages are of their newest records."""
    ages = ages or (0,) * len(sizes)
    return [
        SegmentFacts(10 * (number + 1), size, NOW - age)
        for number, (size, age) in enumerate(zip(sizes, ages, strict=True))
    ]


def count(
    facts: list[SegmentFacts], *, log_start: int = 0, upto: int | None = None, policy: str = "delete", **settings: int
) -> int:
    config = log_config(cleanup_policy=policy, **{"retention_ms": -1, "retention_bytes": -1, **settings})
    limit = facts[-1].next_offset if upto is None else upto
    return expired_count(facts, config, log_start=log_start, upto=limit, now_ms=NOW)


def test_without_limits_everything_stays() -> None:
    assert count(segments(100, 100, 100, ages=(9 * HOUR, 8 * HOUR, 7 * HOUR))) == 0


@pytest.mark.parametrize(
    ("limit", "gone"), [(0, 3), (99, 3), (100, 3), (101, 2), (200, 2), (201, 1), (300, 1), (301, 0), (400, 0), (999, 0)]
)
def test_by_size_the_oldest_go_as_long_as_the_rest_is_large_enough(limit: int, gone: int) -> None:
    assert count(segments(100, 100, 100, 100), retention_bytes=limit) == gone


def test_by_size_a_large_old_segment_stays_if_the_rest_would_be_too_small() -> None:
    assert count(segments(1000, 10, 10), retention_bytes=100) == 0
    assert count(segments(10, 1000, 10), retention_bytes=100) == 1


@pytest.mark.parametrize(("limit", "gone"), [(0, 3), (99, 3), (100, 2), (199, 2), (200, 1), (300, 0)])
def test_by_time_those_go_whose_newest_record_is_older_than_the_limit(limit: int, gone: int) -> None:
    assert count(segments(1, 1, 1, 1, ages=(300, 200, 100, 0)), retention_ms=limit) == gone


def test_a_young_segment_keeps_the_old_ones_behind_it() -> None:
    assert count(segments(1, 1, 1, ages=(50, 900, 900)), retention_ms=100) == 0


def test_a_segment_without_timestamps_never_gets_old() -> None:
    assert count([SegmentFacts(10, 5, -1), SegmentFacts(20, 5, NOW)], retention_ms=0) == 0


def test_a_record_from_the_future_is_not_old() -> None:
    assert count(segments(1, 1, ages=(-500, 0)), retention_ms=0) == 0


@pytest.mark.parametrize(("log_start", "gone"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_what_lies_below_the_log_start_goes_by_any_policy(policy: str, log_start: int, gone: int) -> None:
    assert count(segments(1, 1, 1), log_start=log_start, policy=policy) == gone


def test_a_topic_that_is_only_compacted_keeps_what_is_old_and_large() -> None:
    facts = segments(100, 100, 100, ages=(900, 900, 900))
    assert count(facts, policy="compact", retention_ms=1, retention_bytes=1) == 0
    assert count(facts, policy="compact,delete", retention_ms=1, retention_bytes=1) == 2


@pytest.mark.parametrize(("upto", "gone"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 3), (40, 3)])
def test_nothing_goes_that_reaches_beyond_the_given_offset(upto: int, gone: int) -> None:
    facts = segments(1, 1, 1, 1, ages=(900, 900, 900, 900))
    assert count(facts, upto=upto, retention_ms=1) == gone
    assert count(facts, upto=upto, log_start=40) == gone


def test_the_active_segment_never_goes() -> None:
    assert count(segments(5, ages=(900,)), retention_ms=0, retention_bytes=0, log_start=10) == 0
    assert count(segments(5, 5, ages=(900, 900)), retention_ms=0, retention_bytes=0, log_start=20) == 1


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(-10, 500)), min_size=1, max_size=8),
    st.integers(-1, 300),
    st.integers(-1, 300),
    st.integers(0, 90),
    st.integers(0, 90),
)
def test_size_and_time_together_let_go_a_run_of_the_oldest(
    shape: list[tuple[int, int]], retention_bytes: int, retention_ms: int, log_start: int, upto: int
) -> None:
    facts = segments(*(size for size, _ in shape), ages=tuple(age for _, age in shape))
    gone = count(facts, log_start=log_start, upto=upto, retention_bytes=retention_bytes, retention_ms=retention_ms)

    def may_go(number: int) -> bool:
        fact, rest = facts[number], sum(later.size_bytes for later in facts[number + 1 :])
        return fact.next_offset <= upto and (
            fact.next_offset <= log_start
            or fact.size_bytes == 0
            or 0 <= retention_bytes <= rest
            or (retention_ms >= 0 and NOW - fact.max_timestamp > retention_ms)
        )

    assert 0 <= gone < len(facts)
    assert all(may_go(number) for number in range(gone))
    assert gone == len(facts) - 1 or not may_go(gone)
