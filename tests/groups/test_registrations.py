"""Consumers of Eeylops' door in the coordinator: they register first, and what is theirs does not expire."""

from __future__ import annotations

import asyncio

import pytest

from odradek.apis import offset_fetch as fetching
from odradek.groups.offsets import EEYLOPS, CommittedOffset, registration
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import offset_fetch
from odradek.wire.messages.offset_fetch import RequestGroup, RequestGroupTopic
from tests.apis.group_clients import Client
from tests.groups.brokers import House, at_work, run, turns

HOUR_MS = 3_600_000  # the retention of the test's settings
ORDERS = TopicPartition("orders", 0)


def register(house: House, where: TopicPartition = ORDERS) -> asyncio.Future[ErrorCode]:
    return house.groups.offsets.commit("g", "", None, -1, {where: registration(house.clock.now_ms())})


def commit(house: House, offset: int, where: TopicPartition = ORDERS) -> asyncio.Future[ErrorCode]:
    committed = CommittedOffset(offset, -1, EEYLOPS, house.clock.now_ms())
    return house.groups.offsets.commit("g", "", None, -1, {where: committed})


def is_registered(house: House, where: TopicPartition = ORDERS) -> bool:
    offsets = house.groups.offsets.of("g")
    return offsets is not None and offsets.is_registered(where)


async def fetch(house: House, indexes: list[int] | None) -> list[tuple[int, int, str | None]]:
    """What OffsetFetch tells of topic `orders`: partition, offset, metadata."""
    topics = None if indexes is None else [RequestGroupTopic(name="orders", partition_indexes=indexes)]
    asked = offset_fetch.Request(groups=[RequestGroup(group_id="g", topics=topics)])
    answer = await Client(house).ask(fetching.API, 9, asked, offset_fetch.Response)
    found = [each for topic in answer.groups[0].topics for each in topic.partitions]
    return [(each.partition_index, each.committed_offset, each.metadata) for each in found]


def test_a_registration_is_no_offset_to_anybody_else() -> None:
    async def scene() -> None:
        async with at_work() as house:
            assert await register(house) is ErrorCode.NONE
            assert is_registered(house)
            assert house.committed("orders") is None
            offsets = house.groups.offsets.of("g")
            assert offsets is not None
            assert dict(offsets.by_topic()) == {}
            assert await fetch(house, None) == []
            assert await fetch(house, [0, 1]) == [(0, -1, EEYLOPS), (1, -1, "")]

    run(scene())


def test_only_who_has_registered_commits() -> None:
    async def scene() -> None:
        async with at_work() as house:
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):
                commit(house, 1)
            assert "g" not in house.groups.groups
            await register(house)
            assert await commit(house, 1) is ErrorCode.NONE
            assert house.committed("orders") == 1
            assert not is_registered(house)
            with pytest.raises(PeerError, match="has not registered for orders-1"):
                commit(house, 1, TopicPartition("orders", 1))

    run(scene())


def test_a_group_that_has_committed_counts_as_registered() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(orders=7)
            assert await register(house) is ErrorCode.NONE
            assert house.committed("orders") == 7
            assert await commit(house, 3) is ErrorCode.NONE
            assert house.committed("orders") == 3

    run(scene())


def test_registering_again_keeps_a_commit_that_is_still_under_way() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await register(house)
            house.journal.is_held = True
            under_way, again = commit(house, 5), register(house)
            assert not again.done()
            house.journal.release()
            assert [await under_way, await again] == [ErrorCode.NONE, ErrorCode.NONE]
            assert house.committed("orders") == 5
            assert len(house.journal.of("g")) == 2

    run(scene())


def test_registering_while_the_offset_is_being_deleted_stays() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(orders=5)
            house.journal.is_held = True
            house.groups.offsets.delete("g", [ORDERS])
            registering = register(house)
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):
                commit(house, 1, TopicPartition("orders", 1))
            house.journal.release()
            assert await registering is ErrorCode.NONE
            assert is_registered(house)
            assert house.committed("orders") is None

    run(scene())


def test_a_registration_that_was_lost_is_told_also_to_who_registers_again() -> None:
    async def scene() -> None:
        async with at_work() as house:
            house.journal.is_held = True
            first, second = register(house), register(house)
            house.journal.error = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            house.journal.release()
            assert [await first, await second] == [ErrorCode.NOT_COORDINATOR] * 2
            assert not is_registered(house)

    run(scene())


def test_what_is_eeylops_never_expires_and_what_is_kafkas_does() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await register(house)
            await register(house, TopicPartition("orders", 1))
            await commit(house, 4, TopicPartition("orders", 1))
            await house.commit(other=2)
            house.advance(100 * HOUR_MS)
            house.groups.expire_offsets()
            await turns()
            assert house.committed("other") is None
            assert is_registered(house)
            offsets = house.groups.offsets.of("g")
            assert offsets is not None
            assert [*offsets.partitions()] == [TopicPartition("orders", 1)]

    run(scene())


def test_registrations_and_commits_are_there_after_a_restart_and_a_compaction() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await register(house)
            await register(house, TopicPartition("orders", 1))
            await commit(house, 4, TopicPartition("orders", 1))
        house.journal.compact()
        async with at_work(house.restarted()) as again:
            assert is_registered(again)
            assert await commit(again, 9, TopicPartition("orders", 1)) is ErrorCode.NONE
            assert await commit(again, 1) is ErrorCode.NONE

    run(scene())


def test_the_registrations_of_a_deleted_topic_go_with_it() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await register(house)
            house.groups.offsets.forget_topic("orders")
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):  # also before its removal is durable
                commit(house, 1)
            await turns()
            assert not is_registered(house)
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):
                commit(house, 1)
        async with at_work(house.restarted()) as again:
            assert again.groups.offsets.of("g") is None

    run(scene())


def test_a_deleted_group_takes_its_registrations_along() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await register(house)
            assert await house.groups.delete_group("g") is ErrorCode.NONE
        async with at_work(house.restarted()) as again:
            assert again.groups.offsets.of("g") is None

    run(scene())


def test_a_group_with_members_lets_no_stranger_register_or_commit() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await register(house)
            await house.stable()
            assert await register(house) is ErrorCode.NONE  # it changes nothing
            with pytest.raises(PeerError, match="only they may commit"):
                commit(house, 1)
            with pytest.raises(PeerError, match="only they may commit"):
                register(house, TopicPartition("orders", 1))

    run(scene())
