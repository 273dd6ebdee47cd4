"""The row of segments: finding by offset, and changes at both ends and in the middle."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.chain import Chain
from odradek.log.segment import Segment
from tests.log.support import LogOnDisk


def segments(*bases: int) -> list[Segment]:
    """Empty segments that begin at these offsets."""
    backend = LogOnDisk().log.backend
    return [backend.create(base) for base in bases]


def chain_of(*bases: int) -> Chain:
    return Chain(segments(*bases))


def bases(found: list[Segment]) -> list[int]:
    return [segment.base_offset for segment in found]


@given(st.sets(st.integers(0, 50), min_size=1, max_size=8), st.integers(-1, 60))
def test_the_segment_that_holds_an_offset_is_found(starts: set[int], offset: int) -> None:
    chain, ordered = chain_of(*sorted(starts)), sorted(starts)
    expected = max(0, bisect_right(ordered, offset) - 1)
    assert chain.find(offset) == expected
    assert bases(chain.since(offset)) == ordered[expected:]
    found = chain.get(expected)
    assert found is not None and found.base_offset == ordered[expected]
    assert chain.get(len(chain)) is None


def test_the_last_one_is_active_and_the_others_are_sealed() -> None:
    chain = chain_of(0, 10, 20)
    assert chain.active.base_offset == 20 and bases(chain.sealed) == [0, 10]
    assert len(chain) == 3 and bases(list(chain)) == [0, 10, 20] and chain.first_offset == 0


def test_a_chain_goes_on_with_another_segment() -> None:
    chain = chain_of(0)
    (following,) = segments(7)
    chain.add(following)
    assert chain.active is following and chain.find(7) == 1 and bases(chain.sealed) == [0]


@pytest.mark.parametrize(("count", "gone"), [(0, []), (1, [0]), (2, [0, 10]), (3, [0, 10]), (9, [0, 10])])
def test_the_oldest_go_but_never_the_active_one(count: int, gone: list[int]) -> None:
    chain = chain_of(0, 10, 20)
    assert bases(chain.drop_oldest(count)) == gone
    assert chain.active.base_offset == 20
    assert chain.first_offset == [0, 10, 20][len(gone)]
    assert chain.find(5) == 0, "what is gone is looked for in the first that is left"


@pytest.mark.parametrize(("number", "gone"), [(0, [20, 10]), (1, [20]), (2, [])])
def test_all_behind_one_go_newest_first(number: int, gone: list[int]) -> None:
    chain = chain_of(0, 10, 20)
    assert bases(chain.drop_after(number)) == gone
    assert chain.active.base_offset == [0, 10, 20][number]
    assert chain.find(99) == number


def test_one_takes_the_place_of_several() -> None:
    row = segments(0, 10, 20, 30)
    chain = Chain(row[:])
    (merged,) = segments(10)
    chain.replace(row[1:3], merged)
    assert bases(list(chain)) == [0, 10, 30] and chain.get(1) is merged
    assert chain.find(25) == 1 and chain.active is row[3]


def test_only_a_row_of_sealed_members_is_held() -> None:
    row = segments(0, 10, 20, 30)
    chain = Chain(row[:])
    assert chain.holds(row[0:1]) and chain.holds(row[1:3]) and chain.holds(row[:3])
    assert not chain.holds(row[2:]), "the last one is active"
    assert not chain.holds([row[0], row[2]])
    assert not chain.holds(segments(0)), "another segment with the same base"
    chain.drop_oldest(1)
    assert not chain.holds(row[0:2])


def test_the_next_segment_is_found_also_of_one_that_is_gone() -> None:
    row = segments(0, 10, 20)
    chain = Chain(row[:])
    assert chain.after(row[0]) is row[1] and chain.after(row[2]) is None
    chain.drop_oldest(1)
    assert chain.after(row[0]) is row[1]
