"""Commits through the coordinator: seen when durable, removed, expired, forgotten with their topic."""

from __future__ import annotations

import pytest

from odradek.groups.classic_types import Leaving
from odradek.groups.consumer_types import Heartbeat
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.brokers import House, at_work, run, turns

HOUR_MS = 3_600_000  # the retention of the test's settings
ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)


def test_a_commit_is_seen_when_it_is_durable() -> None:
    async def scene() -> None:
        async with at_work() as house:
            house.journal.is_held = True
            commit = house.commit(orders=5)
            assert house.committed("orders") is None
            house.journal.release()
            assert await commit is ErrorCode.NONE
            assert house.committed("orders") == 5

    run(scene())


def test_who_wants_stable_offsets_waits_for_the_commits_begun_so_far() -> None:
    async def scene() -> None:
        async with at_work() as house:
            assert house.groups.offsets.settling("g") is None
            house.journal.is_held = True
            house.commit(orders=5)
            house.commit(orders=6).cancel()
            settling = house.groups.offsets.settling("g")
            assert settling is not None
            assert not settling.done()
            house.journal.release()
            await settling
            assert house.committed("orders") == 6
            assert house.groups.offsets.settling("g") is None

    run(scene())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_commit_that_was_lost_is_told_and_not_seen(error: ErrorCode, told: ErrorCode) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(orders=5)
            house.journal.error = PeerError(error)
            assert await house.commit(orders=9) is told
            assert house.committed("orders") == 5

    run(scene())


def test_members_commit_by_generation_and_strangers_do_not() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            assert await house.commit("g", member_id, 1, orders=1) is ErrorCode.NONE
            for who, generation, code in [
                (member_id, 0, "ILLEGAL_GENERATION"),
                ("stranger", 1, "UNKNOWN_MEMBER_ID"),
                ("", -1, "UNKNOWN_MEMBER_ID"),
            ]:
                with pytest.raises(PeerError, match=code):
                    house.commit("g", who, generation, orders=2)
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):
                house.commit("unknown", member_id, 1, orders=2)
            assert house.committed("orders") == 1

    run(scene())


def test_members_of_the_consumer_protocol_commit_by_epoch() -> None:
    async def scene() -> None:
        async with at_work() as house:
            beat = Heartbeat(
                member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset()
            )
            epoch = (await house.groups.live("g", beat)).member_epoch
            assert await house.commit("g", "m", epoch, orders=3) is ErrorCode.NONE
            with pytest.raises(PeerError, match="STALE_MEMBER_EPOCH"):
                house.commit("g", "m", epoch - 1, orders=4)
            with pytest.raises(PeerError, match="UNKNOWN_MEMBER_ID"):
                house.commit("g", "", -1, orders=4)

    run(scene())


def test_a_rebalance_that_ends_while_a_commit_is_flushed_leaves_the_commit_alone() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            house.journal.is_held = True
            commit = house.commit("g", member_id, 1, orders=7)
            assert (await house.join("g", member_id)).generation == 2
            house.journal.release()
            assert await commit is ErrorCode.NONE
            assert house.committed("orders") == 7

    run(scene())


def test_offsets_can_be_deleted_but_of_topics_that_members_read() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            await house.commit("g", member_id, 1, orders=1, other=2)
            results, written = house.groups.offsets.delete("g", [ORDERS, OTHER, TopicPartition("other", 9)])
            assert list(results.values()) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
            assert written is not None
            await written
            assert (house.committed("orders"), house.committed("other")) == (1, None)
            assert house.groups.offsets.delete("g", [OTHER])[1] is None, "nothing to write"
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):
                house.groups.offsets.delete("unknown", [OTHER])

    run(scene())


def test_offsets_of_a_group_whose_subscriptions_are_unknown_stay_while_it_has_members() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable(protocol_type="connect")
            await house.commit("g", member_id, 1, orders=1)
            with pytest.raises(PeerError, match="NON_EMPTY_GROUP"):
                house.groups.offsets.delete("g", [ORDERS])
            await house.groups.leave("g", [Leaving(member_id, None)])
            _, written = house.groups.offsets.delete("g", [ORDERS])
            assert written is not None
            assert await written is ErrorCode.NONE

    run(scene())


def test_a_commit_and_its_deletion_under_way_end_in_the_order_of_the_log() -> None:
    async def scene() -> None:
        async with at_work() as house:
            house.journal.is_held = True
            house.commit(orders=1)
            house.groups.offsets.delete("g", [ORDERS])
            house.commit(other=1)
            house.groups.offsets.delete("g", [OTHER])
            last = house.commit(other=2)
            house.journal.release()
            await last
            assert (house.committed("orders"), house.committed("other")) == (None, 2)

    run(scene())


def test_the_offsets_of_a_deleted_topic_go_with_it() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit("g", orders=1, other=2)
            await house.commit("h", orders=3)
            house.journal.is_held = True
            house.commit("i", orders=4)
            house.groups.offsets.forget_topic("orders")
            house.journal.release()
            await house.groups.close()
            assert [house.committed("orders", group_id) for group_id in "ghi"] == [None] * 3
            assert house.committed("other") == 2

    run(scene())


def test_the_offsets_of_a_consumer_without_a_group_expire_one_by_one_and_the_group_with_the_last() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(orders=1)
            house.advance(HOUR_MS // 2)
            await house.commit(other=1)
            house.advance(HOUR_MS // 2)
            house.groups.expire_offsets()
            await turns()
            assert (house.committed("orders"), house.committed("other")) == (None, 1)
            house.advance(HOUR_MS // 2)
            house.groups.expire_offsets()
            assert house.groups.groups == {}
            assert "g" not in house.groups.offsets
            house.journal.compact()
            assert house.journal.of("g") == []

    run(scene())


def test_a_group_keeps_its_offsets_while_it_has_members_and_a_retention_longer() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable(session_timeout_ms=1_800_000)
            await house.commit("g", member_id, 1, orders=1)
            for _ in range(4):
                house.advance(HOUR_MS // 3)
                assert house.groups.heartbeat("g", member_id, None, 1) is ErrorCode.NONE
                house.groups.expire_offsets()
            await house.groups.leave("g", [Leaving(member_id, None)])
            house.advance(HOUR_MS - 1)
            house.groups.expire_offsets()
            assert house.committed("orders") == 1
            house.advance(1)
            house.groups.expire_offsets()
            assert house.committed("orders") is None
            assert house.groups.groups == {}

    run(scene())


def test_the_coordinator_looks_for_expired_offsets_by_itself() -> None:
    async def scene() -> None:
        async with at_work(House(offsets_retention_check_interval_ms=5)) as house:
            await house.commit(orders=1)
            house.clock.advance(HOUR_MS)
            while house.groups.groups:
                await turns()
            assert house.committed("orders") is None

    run(scene())
