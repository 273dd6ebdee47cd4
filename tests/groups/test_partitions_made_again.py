"""What groups have committed for a partition goes with it, also where its coordinator was away; gaps are nobody's."""

from __future__ import annotations

import pytest

from odradek.groups.assignors import ASSIGNORS, Subscriber, TopicIdPartition
from odradek.groups.consumer_types import TopicFacts
from odradek.groups.gaps import assign_around_gaps
from odradek.groups.offsets import CommittedOffset, GroupOffsets
from odradek.groups.storage import OffsetEntry, decode, offset_record
from odradek.model import TopicPartition
from odradek.records.record import Record
from odradek.wire.errors import ErrorCode
from tests.groups.brokers import House, at_work, run, started, turns
from tests.groups.consumers import Driver, FakeTopics
from tests.groups.test_consumer_group import joined, settled

FIRST = TopicPartition("orders", 0)
TOPIC = bytes(16)


def test_the_offsets_of_a_deleted_partition_go_and_those_of_others_stay() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit("g", orders=5, other=7)
            await house.commit("h", orders=6)
            house.groups.offsets.forget_partition("orders", 1)
            await turns()
            assert (house.committed("orders"), house.committed("orders", "h")) == (5, 6)
            house.groups.offsets.forget_partition("orders", 0)
            await turns()
            assert (house.committed("orders"), house.committed("orders", "h"), house.committed("other")) == (
                None,
                None,
                7,
            )
        async with at_work(house.restarted()) as again:
            assert (again.committed("orders"), again.committed("other")) == (None, 7)

    run(scene())


def test_a_commit_that_is_under_way_when_its_partition_goes_goes_with_it() -> None:
    async def scene() -> None:
        async with at_work() as house:
            house.journal.is_held = True
            waiting = house.commit("g", orders=5)
            house.groups.offsets.forget_partition("orders", 0)
            house.journal.is_held = False
            house.journal.release()
            assert await waiting is ErrorCode.NONE
            await turns()
            assert house.committed("orders") is None

    run(scene())


def test_a_coordinator_that_was_away_knows_which_partition_a_commit_was_for() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit("g", orders=5, other=7)
            await house.commit("h", orders=6)
            house.topics.generations[FIRST] = 1  # deleted and made again, and nobody said so
            await house.commit("h", orders=1)
        again = house.restarted()
        again.topics.generations[FIRST] = 1
        async with at_work(again):
            await turns()
            assert (again.committed("orders"), again.committed("other")) == (None, 7)
            assert again.committed("orders", "h") == 1, "that was for the new one"
        last = again.restarted()
        last.topics.generations[FIRST] = 1
        async with at_work(last):
            assert last.committed("orders", "h") == 1
            assert last.committed("orders") is None

    run(scene())


def test_commits_for_a_partition_that_is_gone_are_not_loaded() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit("g", orders=5, other=7)
        again = house.restarted()
        again.topics.gone.add(FIRST)
        async with at_work(again):
            await turns()
            assert (again.committed("orders"), again.committed("other")) == (None, 7)

    run(scene())


def test_a_deletion_that_comes_while_offsets_are_loading_is_seen_when_they_are() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit("g", orders=5)
            again: House = house.successor()
            async with started(again):
                loading = [again.groups.load_partition(index, 1) for index in range(3)]
                again.topics.generations[FIRST] = 1
                again.groups.offsets.forget_partition("orders", 0)
                again.journal.led.update(range(3))
                for each in loading:
                    await each
                await turns()
                assert again.committed("orders") is None

    run(scene())


def test_one_partition_is_forgotten_and_all_are_loaded_without_a_look_at_every_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups may have committed a million, and the loop waits meanwhile."""

    def look(_: GroupOffsets) -> set[TopicPartition]:
        raise AssertionError("each offset of a group was looked at")

    async def scene() -> None:
        async with at_work() as house:
            await house.commit("g", orders=5, other=7)
            with monkeypatch.context() as patch:
                patch.setattr(GroupOffsets, "known_or_staged", look)
                house.groups.offsets.forget_partition("orders", 0)
                await turns()
                assert (house.committed("orders"), house.committed("other")) == (None, 7)
        with monkeypatch.context() as patch:
            patch.setattr(GroupOffsets, "known_or_staged", look)
            async with at_work(house.restarted()) as again:
                assert (again.committed("orders"), again.committed("other")) == (None, 7)

    run(scene())


def test_a_commit_says_in_a_header_which_partition_it_is_for_and_only_where_that_is_needed() -> None:
    committed = CommittedOffset(5, -1, "", 1)
    assert offset_record("g", FIRST, committed).headers == ()
    written = offset_record("g", FIRST, committed, 3)
    entry = decode(Record(0, 1, written.key, written.value, written.headers))
    assert entry == OffsetEntry("g", FIRST, committed, 3)


def test_numbers_without_a_partition_are_given_to_nobody() -> None:
    facts = [TopicFacts(TOPIC, 6, frozenset({0, 2, 3}))]
    members = [Subscriber(name, None, frozenset({TOPIC}), frozenset()) for name in ("a", "b", "c")]
    for assignor in ASSIGNORS.values():
        given = assign_around_gaps(assignor, members, facts)
        assert sorted(at.partition for each in given.values() for at in each) == [1, 4, 5]
        assert [len(each) for each in given.values()] == [1, 1, 1]


def test_a_gap_moves_nothing_that_need_not_move() -> None:
    held = {"a": frozenset({TopicIdPartition(TOPIC, 3)}), "b": frozenset({TopicIdPartition(TOPIC, 1)})}
    members = [Subscriber(name, None, frozenset({TOPIC}), each) for name, each in held.items()]
    facts = [TopicFacts(TOPIC, 4, frozenset({0, 2}))]
    assert assign_around_gaps(ASSIGNORS["uniform"], members, facts) == held


def test_a_member_gives_up_a_partition_that_is_gone_and_gets_it_when_it_is_made_again() -> None:
    topics = FakeTopics(orders=3)
    driver = Driver(topics)
    member = joined(driver, "a")
    gone = TopicPartition("orders", 1)
    topics.gone.add(gone)
    topics.version += 1
    settled(member)
    assert member.owned == topics.partitions("orders", 0, 2)
    topics.gone.remove(gone)
    topics.version += 1
    settled(member)
    assert member.owned == topics.partitions("orders")
