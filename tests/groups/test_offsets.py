"""A group's offsets: seen when durable, expired by the rules of KIP-211."""

from __future__ import annotations

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import State
from odradek.groups.offsets import CommittedOffset, GroupOffsets
from odradek.model import TopicPartition
from tests.groups.classics import CONFIG, Driver

P0, P1, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("other", 0)
RETENTION_MS = 1_000


def committed(offset: int, commit_ms: int = 0, expire_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms, expire_ms)


def holding(**commits: CommittedOffset) -> GroupOffsets:
    offsets = GroupOffsets()
    for topic, one in commits.items():
        offsets.put(TopicPartition(topic, 0), one)
    return offsets


def test_a_commit_is_seen_when_it_is_settled_and_not_before() -> None:
    offsets = GroupOffsets()
    offsets.stage({P0: None})
    assert offsets.get("orders", 0) is None
    assert offsets.is_staged(P0)
    assert offsets.known_or_staged() == {P0}
    offsets.settle({P0: committed(5)}, is_durable=True)
    assert offsets.get("orders", 0) == committed(5)
    assert not offsets.is_staged(P0)


def test_a_commit_that_was_lost_leaves_the_one_before() -> None:
    offsets = holding(orders=committed(1))
    offsets.stage({P0: None, P1: None})
    offsets.settle({P0: committed(5), P1: committed(6)}, is_durable=False)
    assert list(offsets.partitions()) == [P0]
    assert offsets.get("orders", 0) == committed(1)
    assert not offsets.is_staged(P1)


def test_two_commits_under_way_end_one_by_one() -> None:
    offsets = GroupOffsets()
    offsets.stage({P0: None})
    offsets.stage({P0: None})
    offsets.settle({P0: committed(1)}, is_durable=True)
    assert offsets.is_staged(P0)
    offsets.settle({P0: committed(2)}, is_durable=True)
    assert not offsets.is_staged(P0)
    assert offsets.get("orders", 0) == committed(2)


def test_removing_the_last_leaves_nothing() -> None:
    offsets = holding(orders=committed(1))
    offsets.stage({P0: None})
    offsets.settle({P0: None}, is_durable=True)
    assert not offsets
    assert offsets.by_topic() == {}
    offsets.remove(P0)


def test_offsets_of_a_consumer_without_a_group_expire_by_their_commit() -> None:
    group = ClassicGroup("g", CONFIG, 0)
    offsets = holding(orders=committed(1, commit_ms=100), other=committed(1, commit_ms=101))
    assert offsets.expired(group, RETENTION_MS, 100 + RETENTION_MS - 1) == []
    assert offsets.expired(group, RETENTION_MS, 100 + RETENTION_MS) == [P0]


def test_offsets_of_an_empty_group_expire_from_the_moment_it_became_empty() -> None:
    driver = Driver()
    driver.leave(*driver.stable())
    emptied_ms = driver.now_ms
    offsets = holding(orders=committed(1, commit_ms=0))
    assert offsets.expired(driver.group, RETENTION_MS, emptied_ms + RETENTION_MS - 1) == []
    assert offsets.expired(driver.group, RETENTION_MS, emptied_ms + RETENTION_MS) == [P0]


def test_an_empty_group_of_old_records_does_not_know_when_it_became_empty() -> None:
    group = ClassicGroup("g", CONFIG, 0)
    group.protocol_type, group.state_since_ms = "consumer", -1
    assert holding(orders=committed(1, commit_ms=5)).expired(group, RETENTION_MS, 5 + RETENTION_MS) == [P0]


def test_in_a_group_at_work_only_offsets_of_topics_that_nobody_reads_expire() -> None:
    driver = Driver()
    driver.stable()
    offsets = holding(orders=committed(1), other=committed(1))
    assert offsets.expired(driver.group, RETENTION_MS, driver.now_ms) == [OTHER]


def test_nothing_expires_in_a_group_that_rebalances_or_whose_topics_are_unknown() -> None:
    driver = Driver()
    driver.stable(1, protocol_type="connect")
    offsets = holding(other=committed(1))
    assert offsets.expired(driver.group, RETENTION_MS, driver.now_ms) == []
    rebalancing = Driver()
    rebalancing.enter()
    assert rebalancing.is_in(State.PREPARING)
    assert offsets.expired(rebalancing.group, RETENTION_MS, rebalancing.now_ms) == []


def test_a_retention_that_a_client_asked_for_goes_before_the_settings() -> None:
    group = ClassicGroup("g", CONFIG, 0)
    offsets = holding(orders=committed(1, expire_ms=50), other=committed(1, expire_ms=10**15))
    assert offsets.expired(group, RETENTION_MS, 49) == []
    assert offsets.expired(group, RETENTION_MS, 10**9) == [P0]


def test_an_offset_that_is_being_committed_does_not_expire() -> None:
    group = ClassicGroup("g", CONFIG, 0)
    offsets = holding(orders=committed(1))
    offsets.stage({P0: None})
    assert offsets.expired(group, RETENTION_MS, 10**9) == []
