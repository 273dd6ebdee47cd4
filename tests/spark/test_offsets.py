"""Offsets: their JSON, the sharing out of a rate limit, the cutting of ranges."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from odradek.model import TopicPartition
from odradek.spark.offsets import OffsetRange, StreamOffset, backlog, limited, ranges_between, split

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d_e-f"]), st.integers(0, 12))
offsets = st.integers(0, 2**62)
positions = st.dictionaries(partitions, offsets, max_size=8)
ids = st.dictionaries(st.sampled_from(["a", "b.c"]), st.text("0123456789abcdef", min_size=1))


@st.composite
def spans(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where some partitions are, and where they end: never before."""
    start = draw(positions)
    sizes = st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 2**60))
    return start, {partition: offset + draw(sizes) for partition, offset in start.items()}


def part(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, start, end)


# JSON.


@given(st.builds(StreamOffset, positions, st.one_of(st.none(), positions), ids))
def test_an_offset_survives_the_checkpoint(offset: StreamOffset) -> None:
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_an_offset_looks_like_that_of_sparks_kafka_source() -> None:
    offset = StreamOffset({TopicPartition("b", 10): 3, TopicPartition("b", 9): 2, TopicPartition("a", 0): 1})
    assert json.dumps(offset.to_json()) == '{"a": {"0": 1}, "b": {"9": 2, "10": 3}}'


def test_the_beginning_of_the_first_batch_is_kept_beside_the_topics() -> None:
    here, there = {TopicPartition("a", 0): 7}, {TopicPartition("a", 0): 5}
    assert StreamOffset(here, there, {"a": "beef"}).to_json() == {
        "a": {"0": 7},
        "$from": {"a": {"0": 5}},
        "$ids": {"a": "beef"},
    }


@given(positions)
def test_equal_positions_have_equal_texts(given_positions: dict[TopicPartition, int]) -> None:
    turned = dict(reversed(given_positions.items()))
    assert json.dumps(StreamOffset(turned).to_json()) == json.dumps(StreamOffset(given_positions).to_json())


# Rate limits.


@given(spans(), st.integers(1, 2**40))
def test_a_limit_never_leaves_what_there_is_and_never_starves_a_partition(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], most: int
) -> None:
    start, end = span
    moved = limited(start, end, most)
    assert moved.keys() == end.keys()
    for partition, offset in moved.items():
        assert start[partition] <= offset <= end[partition]
        assert (offset > start[partition]) == (end[partition] > start[partition])
    busy = sum(1 for partition in end if end[partition] > start[partition])
    assert backlog(start, moved) <= most + busy  # one offset a partition is the price of not starving any


@given(spans(), st.integers(1, 2**40))
def test_a_limit_takes_about_as_much_as_it_allows(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], most: int
) -> None:
    start, end = span
    taken, there = backlog(start, limited(start, end, most)), backlog(start, end)
    assert taken >= min(most, there) - len(end)  # rounding down costs less than one offset a partition
    if there <= most:
        assert taken == there


@given(spans(), st.integers(1, 2**40))
def test_steps_of_a_limit_reach_the_end(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], most: int
) -> None:
    start, end = span
    most = max(most, backlog(start, end) // 20)
    for _ in range(200):
        start = limited(start, end, most)
        if start == end:
            return
    raise AssertionError(f"not there after 200 steps: {start} of {end}")


def test_a_limit_is_shared_out_by_backlog() -> None:
    start = {TopicPartition("t", number): 100 for number in range(4)}
    sizes = (600, 300, 100, 0)
    end = {TopicPartition("t", number): 100 + size for number, size in enumerate(sizes)}
    assert list(limited(start, end, 100).values()) == [160, 130, 110, 100]
    assert list(limited(start, end, 1).values()) == [101, 101, 101, 100]


def test_a_partition_without_a_known_beginning_is_left_as_it_is() -> None:
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limited({old: 0}, {old: 10, new: 10}, 5) == {old: 5, new: 10}
    assert backlog({old: 0}, {old: 10, new: 10}) == 10


# Ranges.


def test_only_what_is_new_is_read_and_what_has_shrunk_is_not() -> None:
    start = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 5, TopicPartition("t", 2): 5, TopicPartition("t", 3): 1}
    end = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 9, TopicPartition("t", 2): 4, TopicPartition("t", 4): 7}
    assert ranges_between(start, end) == [part(5, 9, 1)]


some_ranges = st.lists(
    st.builds(lambda start, size: (start, start + size), st.integers(0, 2**40), st.integers(0, 10_000)), max_size=8
).map(lambda items: [part(start, end, number) for number, (start, end) in enumerate(items)])
counts = st.one_of(st.none(), st.integers(1, 40))
sizes_max = st.one_of(st.none(), st.integers(50, 5_000))


@given(some_ranges, counts, sizes_max)
def test_pieces_have_no_gaps_and_no_overlap(whole: list[OffsetRange], least: int | None, most: int | None) -> None:
    pieces = split(whole, at_least=least, records_max=most)
    for item in whole:
        mine = [piece for piece in pieces if piece.partition == item.partition]
        position = item.start
        for piece in mine:
            assert piece.start == position < piece.end
            position = piece.end
        assert position == item.end if item.size else mine == []
    if most is not None:
        assert all(piece.size <= most for piece in pieces)


@given(some_ranges, st.integers(1, 40))
def test_there_are_about_as_many_pieces_as_wanted(whole: list[OffsetRange], least: int) -> None:
    pieces = split(whole, at_least=least)
    busy = [item for item in whole if item.size]
    if len(busy) >= least:
        assert pieces == busy
    elif sum(item.size for item in busy) >= least * 40:
        assert abs(len(pieces) - least) <= len(busy)  # rounding, as in Spark's source


def test_a_large_partition_is_cut_and_a_small_one_is_not() -> None:
    assert split([part(0, 1000), part(0, 10, 1)], at_least=3) == [part(0, 500), part(500, 1000), part(0, 10, 1)]


def test_without_a_wish_every_partition_is_one_piece() -> None:
    assert split([part(0, 1000), part(5, 5, 1), part(0, 10, 2)]) == [part(0, 1000), part(0, 10, 2)]


def test_pieces_do_not_exceed_the_most_that_a_task_may_read() -> None:
    assert split([part(0, 7)], records_max=3) == [part(0, 2), part(2, 4), part(4, 7)]
    assert split([part(0, 4)], at_least=4, records_max=2) == [part(n, n + 1) for n in range(4)]


def test_one_record_cannot_be_cut() -> None:
    assert split([part(3, 4)], at_least=5) == [part(3, 4)]
