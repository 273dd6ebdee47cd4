from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client import partitioner
from odradek.model import TopicPartition
from odradek.spark.write.encode import RowError, Rows
from odradek.spark.write.partitioning import Sticky, murmur2, partitions_of_keys
from odradek.spark.write.routing import Router

keys = st.lists(st.binary(max_size=70), max_size=40)


@given(keys, st.integers(0, 10))
def test_murmur2_of_an_array_is_that_of_each_key(given_keys: list[bytes], skipped: int) -> None:
    array = pa.array(given_keys, pa.binary())[skipped:]
    assert murmur2(array).tolist() == [partitioner.murmur2(key) for key in given_keys[skipped:]]


def test_murmur2_reads_no_further_than_the_last_key() -> None:
    whole = pa.array([b"abc", b"abcd", b"abcde"], pa.binary())
    assert murmur2(whole[:1]).tolist() == [partitioner.murmur2(b"abc")]


@given(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=40), st.integers(1, 300))
def test_a_key_goes_where_the_client_sends_it(given_keys: list[bytes | None], count: int) -> None:
    found = partitions_of_keys(pa.array(given_keys, pa.binary()), count)
    for key, partition in zip(given_keys, found.tolist(), strict=True):
        assert key is None or partition == partitioner.partition_of_key(key, count)


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    sticky = Sticky(5, batch_bytes=100)
    assert sticky.assign(np.full(6, 40), 3).tolist() == [2, 2, 2, 0, 0, 1]
    assert sticky.assign(np.full(3, 40), 3).tolist() == [1, 1, 2]
    assert sticky.assign(np.array([], np.int64), 3).tolist() == []


def router(**partitions: int | list[int]) -> Router:
    """With topics that have so many partitions, or these."""
    numbers = {name: range(each) if isinstance(each, int) else each for name, each in partitions.items()}
    return Router(numbers.__getitem__, seed="s", batch_bytes=1_000)


def routed(
    made: Router, rows: Rows, topics: str | pa.Array, partitions: pa.Array | None = None
) -> list[TopicPartition]:
    targets = made.route(rows, topics, partitions)
    indexes = [targets] * len(rows.value) if isinstance(targets, int) else targets.tolist()
    return [made.targets[index] for index in indexes]


def make(given_keys: list[bytes | None]) -> Rows:
    return Rows(pa.array([b"v"] * len(given_keys), pa.binary()), pa.array(given_keys, pa.binary()))


def test_a_partition_that_a_row_names_wins_over_its_key() -> None:
    found = routed(router(t=4), make([b"a", b"b", None]), "t", pa.array([3, None, 0], pa.int32()))
    assert found == [("t", 3), ("t", partitioner.partition_of_key(b"b", 4)), ("t", 0)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=5)), min_size=1, max_size=30))
def test_rows_go_to_the_topics_they_name(given_rows: list[tuple[str, bytes | None]]) -> None:
    rows = make([key for _, key in given_rows])
    found = routed(router(a=3, b=2), rows, pa.array([topic for topic, _ in given_rows], pa.string()))
    for (topic, key), target in zip(given_rows, found, strict=True):
        assert target.topic == topic
        assert key is None or target.partition == partitioner.partition_of_key(key, {"a": 3, "b": 2}[topic])


def test_rows_without_a_key_of_a_large_batch_use_all_partitions() -> None:
    found = routed(router(t=3), Rows(pa.array([b"v" * 200] * 100, pa.binary())), "t")
    assert {target.partition for target in found} == {0, 1, 2}


def test_rows_with_and_without_keys_share_an_array() -> None:
    found = routed(router(t=5), make([b"k", None, b"k"]), "t")
    assert found[0] == found[2] == ("t", partitioner.partition_of_key(b"k", 5))


def test_the_same_task_of_the_same_batch_starts_at_the_same_partition() -> None:
    rows = Rows(pa.array([b"v"], pa.binary()))
    assert routed(router(t=100), rows, "t") == routed(router(t=100), rows, "t")


@pytest.mark.parametrize("partition", [-1, 4, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_named(partition: int) -> None:
    with pytest.raises(RowError, match=rf"partition {partition} of topic t, which has partitions 0 to 3"):
        routed(router(t=4), make([b"a"]), "t", pa.array([partition], pa.int32()))


def test_gaps_in_the_numbers_get_no_rows() -> None:
    made = router(t=[2, 5, 9])
    found = routed(made, make([bytes([number]) for number in range(50)]), "t")
    assert {target.partition for target in found} == {2, 5, 9}
    assert routed(made, make([b"a", b"b"]), "t", pa.array([9, 2], pa.int32())) == [("t", 9), ("t", 2)]
    with pytest.raises(RowError, match="partition 3 of topic t, which has partitions 2, 5, 9"):
        routed(made, make([b"a"]), "t", pa.array([3], pa.int32()))


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(RowError, match="null topic"):
        routed(router(t=4), make([b"a", b"b"]), pa.array(["t", None], pa.string()))
