"""OffsetCommit as clients of every version speak it."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.apis import offset_commit as committing
from odradek.groups.consumer_types import Heartbeat
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import offset_commit
from odradek.wire.messages.offset_commit import RequestPartition, RequestTopic
from tests.apis.group_clients import Client, versions
from tests.groups.brokers import House, at_work, run

HOUR_MS = 3_600_000


async def commit(house: House, version: int, *topics: RequestTopic, **changes: Any) -> dict[tuple[str, int], int]:
    """Commit, and give the error of each partition."""
    asked = offset_commit.Request(group_id="g", topics=list(topics), **changes)
    answer = await Client(house).ask(committing.API, version, asked, offset_commit.Response)
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def topic(name: str, *indexes: int, metadata: str | None = "m", epoch: int = -1) -> RequestTopic:
    partitions = [
        RequestPartition(
            partition_index=index,
            committed_offset=100 + index,
            committed_leader_epoch=epoch,
            committed_metadata=metadata,
        )
        for index in indexes
    ]
    return RequestTopic(name=name, partitions=partitions)


@pytest.mark.parametrize("version", versions(committing.API))
def test_a_consumer_without_a_group_commits_in_any_version(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            epoch = 3 if version >= 6 else -1
            errors = await commit(house, version, topic("orders", 0, 3, epoch=epoch))
            assert errors == {("orders", 0): ErrorCode.NONE, ("orders", 3): ErrorCode.NONE}
            offsets = house.groups.offsets.of("g")
            assert offsets is not None
            committed = offsets.get("orders", 3)
            assert committed is not None
            assert (committed.offset, committed.leader_epoch, committed.metadata) == (103, epoch, "m")
            assert committed.commit_ms == house.clock.now_ms()

    run(scene())


def test_each_partition_has_an_error_of_its_own() -> None:
    async def scene() -> None:
        async with at_work() as house:
            errors = await commit(
                house, 9, topic("orders", 0, 4), topic("gone", 0), topic("other", 0, metadata="ü" * 2049)
            )
            assert errors == {
                ("orders", 0): ErrorCode.NONE,
                ("orders", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("other", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE,
            }
            assert house.committed("orders") == 100

    run(scene())


def test_no_metadata_is_the_same_as_an_empty_one() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await commit(house, 9, topic("orders", 0, metadata=None))
            assert house.committed("orders") == 100

    run(scene())


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_an_unknown_group_learns_it_in_words_of_its_version(version: int, code: ErrorCode) -> None:
    async def scene() -> None:
        async with at_work() as house:
            changes = {"generation_id_or_member_epoch": 1, "member_id": "m"}
            assert await commit(house, version, topic("orders", 0), **changes) == {("orders", 0): code}

    run(scene())


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.UNSUPPORTED_VERSION), (9, ErrorCode.STALE_MEMBER_EPOCH)])
def test_a_stale_epoch_is_told_to_those_who_know_of_epochs(version: int, code: ErrorCode) -> None:
    async def scene() -> None:
        async with at_work() as house:
            beat = Heartbeat(
                member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset()
            )
            await house.groups.live("g", beat)
            changes = {"generation_id_or_member_epoch": 99, "member_id": "m"}
            assert await commit(house, version, topic("orders", 0), **changes) == {("orders", 0): code}

    run(scene())


def test_members_commit_and_strangers_are_refused_for_all_partitions() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            good = {"generation_id_or_member_epoch": 1, "member_id": member_id}
            assert await commit(house, 9, topic("orders", 0), **good) == {("orders", 0): ErrorCode.NONE}
            bad = good | {"member_id": "stranger"}
            errors = await commit(house, 9, topic("orders", 0, 1), topic("gone", 0), **bad)
            assert errors == {
                ("orders", 0): ErrorCode.UNKNOWN_MEMBER_ID,
                ("orders", 1): ErrorCode.UNKNOWN_MEMBER_ID,
                ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }

    run(scene())


def test_a_retention_of_the_clients_own_is_kept() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await commit(house, 4, topic("orders", 0), retention_time_ms=10 * HOUR_MS)
            await commit(house, 4, topic("other", 0), retention_time_ms=-1)
            house.advance(2 * HOUR_MS)
            house.groups.expire_offsets()
            await house.groups.close()
            assert (house.committed("orders"), house.committed("other")) == (100, None)

    run(scene())


def test_errors_of_the_coordinator_itself_are_told() -> None:
    async def scene() -> None:
        assert await commit(House(), 9, topic("orders", 0)) == {("orders", 0): ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        async with at_work() as house:
            house.journal.error = None
            errors = await commit(house, 9)
            assert errors == {}, "nothing asked, nothing done"
            assert house.groups.groups == {}

    run(scene())
