from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from odradek.client.partitioner import StickyChoice, murmur2, partition_of_key, shown_partitions


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_java_gives(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


@given(st.binary(max_size=64))
def test_murmur2_agrees_with_kafka_python(data: bytes) -> None:
    assert murmur2(data) == kafka_python_murmur2(data) % 2**32


@given(st.binary(max_size=32), st.integers(1, 1000))
def test_a_key_has_one_partition_and_it_exists(key: bytes, count: int) -> None:
    assert partition_of_key(key, count) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % count


def first(partitions: object) -> int:
    assert isinstance(partitions, list | range)
    return int(partitions[0])


def test_records_without_a_key_stay_with_a_partition_for_a_batchs_worth_of_bytes() -> None:
    sticky = StickyChoice(100, choose=first)
    assert [sticky.next(40, range(3)) for _ in range(8)] == [0, 0, 0, 1, 1, 1, 0, 0]


def test_a_partition_that_loses_its_leader_is_left_at_once() -> None:
    sticky = StickyChoice(100, choose=first)
    assert sticky.next(10, range(3)) == 0
    assert sticky.next(10, [1, 2]) == 1


def test_the_only_partition_is_chosen_again_and_again() -> None:
    sticky = StickyChoice(10, choose=first)
    assert [sticky.next(40, range(1)) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], "no partition"),
        ([4], "partition 4"),
        ([1, 0, 2], "partitions 0 to 2"),
        ([2, 5], "partitions 2, 5"),
        (range(0, 40, 3), "partitions 0, 3, 6, 9, 12, 15, 18, 21, 24, 27 and 4 more"),
    ],
)
def test_people_are_told_which_partitions_there_are(numbers: Iterable[int], shown: str) -> None:
    assert shown_partitions(numbers) == shown
