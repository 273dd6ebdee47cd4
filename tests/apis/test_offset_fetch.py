"""OffsetFetch as clients of every version speak it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.apis import offset_fetch as fetching
from odradek.groups.consumer_types import Heartbeat
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import offset_fetch
from odradek.wire.messages.offset_fetch import RequestGroup, RequestGroupTopic, RequestTopic
from tests.apis.group_clients import Client, versions
from tests.groups.brokers import House, at_work, run, turns

Found = dict[tuple[str, int], int]


async def fetch(house: House, version: int, wanted: dict[str, list[int]] | None, **changes: Any) -> tuple[Found, int]:
    """The offsets of group g, and its error."""
    if version >= 8:
        topics = None
        if wanted is not None:
            topics = [RequestGroupTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        asked = offset_fetch.Request(groups=[RequestGroup(group_id="g", topics=topics)], **changes)
        answer = await Client(house).ask(fetching.API, version, asked, offset_fetch.Response)
        (group,) = answer.groups
        assert group.group_id == "g"
        return _offsets(group.topics), group.error_code
    old_topics = None
    if wanted is not None:
        old_topics = [RequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
    asked = offset_fetch.Request(group_id="g", topics=old_topics, **changes)
    answer = await Client(house).ask(fetching.API, version, asked, offset_fetch.Response)
    return _offsets(answer.topics), answer.error_code


def _offsets(topics: Any) -> Found:
    return {(topic.name, each.partition_index): each.committed_offset for topic in topics for each in topic.partitions}


@pytest.mark.parametrize("version", versions(fetching.API))
def test_offsets_are_found_in_any_version_and_what_was_never_committed_is_minus_one(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(orders=5, other=6)
            found, error = await fetch(house, version, {"orders": [0, 1], "never": [0]})
            assert found == {("orders", 0): 5, ("orders", 1): -1, ("never", 0): -1}
            assert error == ErrorCode.NONE

    run(scene())


@pytest.mark.parametrize("version", versions(fetching.API))
def test_an_unknown_group_has_committed_nothing(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            assert await fetch(house, version, {"orders": [0]}) == ({("orders", 0): -1}, ErrorCode.NONE)

    run(scene())


@pytest.mark.parametrize("version", [version for version in versions(fetching.API) if version >= 2])
def test_whoever_names_no_topics_gets_all(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            assert await fetch(house, version, None) == ({}, ErrorCode.NONE)
            await house.commit(orders=5, other=6)
            assert (await fetch(house, version, None))[0] == {("orders", 0): 5, ("other", 0): 6}
            assert (await fetch(house, version, {}))[0] == {}

    run(scene())


@pytest.mark.parametrize("version", versions(fetching.API))
def test_an_error_of_the_group_can_be_told_in_any_version(version: int) -> None:
    async def scene() -> None:
        found, error = await fetch(House(), version, {"orders": [0]})
        if version >= 2:
            assert (found, error) == ({}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            assert found == {("orders", 0): -1}

    run(scene())


def test_before_version_2_an_error_stands_at_each_partition() -> None:
    async def scene() -> None:
        asked = offset_fetch.Request(group_id="g", topics=[RequestTopic(name="orders", partition_indexes=[0])])
        answer = await Client(House()).ask(fetching.API, 1, asked, offset_fetch.Response)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(scene())


@pytest.mark.parametrize("version", [7, 8, 9])
def test_stable_offsets_are_waited_for_and_others_are_not(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(orders=5)
            house.journal.is_held = True
            house.commit(orders=6)
            waiting = asyncio.create_task(fetch(house, version, {"orders": [0]}, require_stable=True))
            await turns()
            assert not waiting.done()
            assert (await fetch(house, version, {"orders": [0]}))[0] == {("orders", 0): 5}
            house.journal.release()
            assert (await waiting)[0] == {("orders", 0): 6}
            assert (await fetch(house, version, {"orders": [0]}, require_stable=True))[0] == {("orders", 0): 6}

    run(scene())


def test_several_groups_are_answered_together_each_with_its_own_error() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit("a", orders=1)
            beat = Heartbeat(
                member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset()
            )
            epoch = (await house.groups.live("b", beat)).member_epoch
            await house.commit("b", "m", epoch, orders=2)
            asked = offset_fetch.Request(
                groups=[
                    RequestGroup(group_id="a", topics=None),
                    RequestGroup(group_id="b", member_id="m", member_epoch=epoch, topics=None),
                    RequestGroup(group_id="b", member_id="m", member_epoch=epoch + 1, topics=None),
                    RequestGroup(group_id="b", member_id="stranger", member_epoch=epoch, topics=None),
                    RequestGroup(group_id="x" * 9_000, topics=None),
                ]
            )
            answer = await Client(house).ask(fetching.API, 9, asked, offset_fetch.Response)
            assert [(_offsets(group.topics), group.error_code) for group in answer.groups] == [
                ({("orders", 0): 1}, ErrorCode.NONE),
                ({("orders", 0): 2}, ErrorCode.NONE),
                ({}, ErrorCode.STALE_MEMBER_EPOCH),
                ({}, ErrorCode.UNKNOWN_MEMBER_ID),
                ({}, ErrorCode.INVALID_GROUP_ID),
            ]

    run(scene())


def test_the_text_and_the_leader_epoch_of_a_commit_come_back() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(orders=5)
            topics = [RequestGroupTopic(name="orders", partition_indexes=[0, 1])]
            asked = offset_fetch.Request(groups=[RequestGroup(group_id="g", topics=topics)])
            answer = await Client(house).ask(fetching.API, 9, asked, offset_fetch.Response)
            known, unknown = answer.groups[0].topics[0].partitions
            assert (known.committed_leader_epoch, known.metadata) == (0, "")
            assert (unknown.committed_leader_epoch, unknown.metadata) == (-1, "")

    run(scene())
