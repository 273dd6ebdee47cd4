"""The shared nouns: topics' names by Kafka's rules, and partitions as directories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import TOPIC_NAME_LENGTH_MAX, TopicPartition, parse_partition_directory, topic_name_problem

LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
names = st.text(LEGAL, min_size=1, max_size=TOPIC_NAME_LENGTH_MAX).filter(lambda name: name not in (".", ".."))


@given(names)
def test_every_name_of_legal_characters_is_fine(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["...", "-", "_", "a" * 249, "__consumer_offsets", "a.b_c-d", "0"])
def test_odd_names_that_kafka_takes_are_taken(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "a topic needs a name"),
        (".", "a topic cannot be called '.'"),
        ("..", "a topic cannot be called '..'"),
        ("a" * 250, "a topic's name has at most 249 characters, this one has 250"),
        ("../x", "a topic's name consists of letters, digits, '.', '_' and '-', not '../x'"),
        ("a\0b", r"a topic's name consists of letters, digits, '.', '_' and '-', not 'a\x00b'"),
        ("a\n", r"a topic's name consists of letters, digits, '.', '_' and '-', not 'a\n'"),
        ("a b", "a topic's name consists of letters, digits, '.', '_' and '-', not 'a b'"),
        ("größe", "a topic's name consists of letters, digits, '.', '_' and '-', not 'größe'"),
        ("٣", "a topic's name consists of letters, digits, '.', '_' and '-', not '٣'"),
    ],
)
def test_what_is_wrong_with_a_name_is_said_and_escaped(name: str, problem: str) -> None:
    assert topic_name_problem(name) == problem


@given(st.text(max_size=300))
def test_a_name_is_taken_exactly_when_kafka_takes_it(name: str) -> None:
    legal = 0 < len(name) <= 249 and set(name) <= set(LEGAL) and name not in (".", "..")
    assert (topic_name_problem(name) is None) == legal


@given(names, st.integers(0, 2**31 - 1))
def test_a_partition_comes_back_from_its_directory(topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)
    assert str(partition) == f"{topic}-{number}"
    assert parse_partition_directory(str(partition)) == partition


@pytest.mark.parametrize(
    "name",
    [
        *("", "orders", "orders-", "-0", "orders-01", "orders--1x", "orders-x", "orders-0 ", "orders-0\n", "..-0"),
        *(".-3", "orders-0.18c-1-delete", "a/b-0", "orders-٣", "größe-0", "a" * 250 + "-0"),
    ],
)
def test_other_directories_are_no_partitions(name: str) -> None:
    assert parse_partition_directory(name) is None


def test_a_topic_may_end_like_a_partition() -> None:
    assert parse_partition_directory("orders-1-0") == TopicPartition("orders-1", 0)
    assert parse_partition_directory("orders--1") == TopicPartition("orders-", 1)


@pytest.mark.parametrize("number", [2**31, 9_999_999_999])
def test_a_number_that_no_client_can_name_is_no_partition(number: int) -> None:
    assert parse_partition_directory(f"orders-{number}") is None


def test_partitions_are_ordered_and_can_be_keys() -> None:
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)])[0] == ("a", 9)
    assert {TopicPartition("a", 1): 1}[TopicPartition("a", 1)] == 1
