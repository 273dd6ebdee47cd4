"""A coordinator of some partitions: what it loads, what it drops, and what it tells those who ask and who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.groups.classic_types import Leaving
from odradek.groups.consumer_types import Heartbeat
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.brokers import House, at_work, group_in, run, started, turns
from tests.groups.classics import DELAY_MS, SESSION_MS

HERE, ELSEWHERE = group_in(0), group_in(1)
BEAT = Heartbeat(member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset())
ORDERS = TopicPartition("orders", 0)

# Every request that concerns one group.
REQUESTS: list[Callable[[House, str], Any]] = [
    lambda house, group_id: house.join(group_id),
    lambda house, group_id: house.sync("m", 1, group_id=group_id),
    lambda house, group_id: house.groups.heartbeat(group_id, "m", None, 1),
    lambda house, group_id: house.groups.leave(group_id, [Leaving("m", None)]),
    lambda house, group_id: house.groups.live(group_id, BEAT),
    lambda house, group_id: house.groups.delete_group(group_id),
    lambda house, group_id: house.commit(group_id, orders=1),
    lambda house, group_id: house.groups.offsets.delete(group_id, [ORDERS]),
    lambda house, group_id: house.groups.check_served(group_id),
]


async def refusals(house: House, group_id: str) -> set[ErrorCode]:
    """What everybody is told who asks for a group."""
    codes: set[ErrorCode] = set()
    for ask in REQUESTS:
        try:
            asked = ask(house, group_id)
            if isinstance(asked, Awaitable):
                await asked
            raise AssertionError("was not refused")
        except PeerError as refused:
            codes.add(refused.code)
    return codes


def test_groups_of_partitions_that_others_lead_are_refused() -> None:
    async def scene() -> None:
        async with started(House().successor()) as house:
            assert await refusals(house, HERE) == {ErrorCode.NOT_COORDINATOR}
            await house.lead(0, 1)
            await house.commit(HERE, orders=1)
            assert await refusals(house, ELSEWHERE) == {ErrorCode.NOT_COORDINATOR}
            house.resign(0, 2)
            assert await refusals(house, HERE) == {ErrorCode.NOT_COORDINATOR}
            assert house.groups.groups == {}
            assert HERE not in house.groups.offsets
            assert house.groups.offsets.settling(HERE) is None

    run(scene())


def test_who_asks_while_groups_are_loading_is_told_so_before_anybody_waits_for_that() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=7)
            await house.commit(ELSEWHERE, orders=8)
        async with started(house.successor()) as other:
            await other.lead(1, 1)
            other.journal.led.add(0)
            loading = other.groups.load_partition(0, 1)
            assert await refusals(other, HERE) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            with pytest.raises(PeerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                other.groups.check_all_loaded()
            assert list(other.groups.groups) == [ELSEWHERE]
            assert await other.commit(ELSEWHERE, orders=9) is ErrorCode.NONE
            await loading
            other.groups.check_all_loaded()
            assert {group.group_id for group in other.groups.groups.each()} == {HERE, ELSEWHERE}
            assert len(other.groups.groups) == 2
            assert other.committed("orders", HERE) == 7

    run(scene())


def test_a_broker_that_does_not_know_yet_whether_it_may_lead_serves_nobody() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=7)
            house.journal.led.discard(0)
            assert await refusals(house, HERE) == {ErrorCode.NOT_COORDINATOR}
            house.journal.led.add(0)
            assert house.committed("orders", HERE) == 7
            assert await house.commit(HERE, orders=8) is ErrorCode.NONE

    run(scene())


def test_all_who_wait_for_others_or_for_the_log_are_told_when_the_partition_is_lost() -> None:
    async def scene() -> None:
        async with at_work() as house:
            joining, syncing, leaving = (group_in(0, number) for number in range(3))
            (leaver,) = await house.stable(leaving)
            leader, joined = await house.enter(syncing)
            house.advance(DELAY_MS)
            assert (await joined).generation == 1
            _, join = await house.enter(joining)
            await house.commit(group_in(0, 3), orders=1)
            house.journal.is_held = True
            sync = house.sync(leader, 1, {}, syncing)
            left = asyncio.create_task(house.groups.leave(leaving, [Leaving(leaver, None)]))
            beat = house.groups.live(group_in(0, 4), BEAT)
            commit = house.commit(group_in(0, 5), orders=2)
            settling = house.groups.offsets.settling(group_in(0, 5))
            deleted = house.groups.delete_group(group_in(0, 3))
            elsewhere = house.commit(ELSEWHERE, orders=3)
            await turns()
            house.resign(0, 1)
            assert settling is not None
            answers = [(await each).error for each in (join, sync, beat)]
            answers += [await each for each in (commit, settling, deleted)]
            assert answers == [ErrorCode.NOT_COORDINATOR] * 6
            with pytest.raises(PeerError, match="NOT_COORDINATOR"):
                await left
            house.journal.release()
            assert await elsewhere is ErrorCode.NONE

    run(scene())


@pytest.mark.parametrize("error", [None, PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_what_the_log_says_late_does_nothing_to_the_next_term(error: PeerError | None) -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable(HERE)
            await house.commit(HERE, member_id, 1, orders=1)
            house.journal.is_held = True
            house.commit(HERE, member_id, 1, orders=2)
            assert (await house.join(HERE, member_id)).generation == 2
            house.sync(member_id, 2, {member_id: b"late"}, HERE)
            house.groups.live(group_in(0, 1), BEAT)
            house.resign(0, 1)
            await house.lead(0, 2)
            house.journal.error = error
            house.journal.release()
            house.journal.error, house.journal.is_held = None, False
            await turns()
            assert list(house.groups.groups) == [HERE]
            assert house.committed("orders", HERE) == 1
            assert (await house.sync(member_id, 1, group_id=HERE)).assignment == member_id.encode()
            assert await house.commit(HERE, member_id, 1, orders=3) is ErrorCode.NONE

    run(scene())


def test_an_append_that_lost_its_leader_is_told_before_the_news_are_here() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable(HERE)
            house.journal.error = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert await house.commit(HERE, member_id, 1, orders=1) is ErrorCode.NOT_COORDINATOR
            with pytest.raises(PeerError, match="NOT_COORDINATOR"):
                await house.groups.leave(HERE, [Leaving(member_id, None)])
            house.resign(0, 1)
            house.journal.error = None
            await house.lead(0, 2)
            assert house.groups.heartbeat(HERE, member_id, None, 1) is ErrorCode.NONE
            assert house.committed("orders", HERE) is None

    run(scene())


def test_nothing_is_written_to_a_partition_after_it_was_lost() -> None:
    async def scene() -> None:
        async with at_work(House(offsets_retention_minutes=1)) as house:
            (member_id,) = await house.stable(HERE)
            await house.stable(ELSEWHERE)
            await house.enter(group_in(0, 1))
            await house.commit(HERE, member_id, 1, orders=1)
            written = list(house.journal.logs[0])
            house.resign(0, 1)
            house.advance(SESSION_MS)
            house.advance(SESSION_MS)
            house.topics.delete("orders")
            house.groups.offsets.forget_topic("orders")
            house.advance(3_600_000)
            house.groups.expire_offsets()
            await turns()
            assert house.journal.logs[0] == written
            assert house.groups.groups == {}, "that of the other partition has expired"

    run(scene())


def test_no_timer_rings_for_a_partition_that_was_lost() -> None:
    async def scene() -> None:
        async with at_work(House(group_min_session_timeout_ms=1)) as house:
            entered = [(await house.enter(each, session_timeout_ms=5))[0] for each in (HERE, ELSEWHERE)]
            house.advance(DELAY_MS)
            for member_id, group_id in zip(entered, (HERE, ELSEWHERE), strict=True):
                await house.sync(member_id, 1, {}, group_id)
            written = list(house.journal.logs[0])
            house.resign(0, 1)
            house.clock.advance(10)
            while not house.groups.groups[ELSEWHERE].is_empty:
                await turns()
            assert house.journal.logs[0] == written

    run(scene())


def test_offsets_expire_only_where_the_broker_leads() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=1)
            house.advance(3_600_000)
            house.journal.led.discard(0)
            house.groups.expire_offsets()
            assert list(house.groups.groups) == [HERE]
            house.journal.led.add(0)
            house.groups.expire_offsets()
            assert house.groups.groups == {}

    run(scene())


# News that are late, double, or of another kind


def test_of_two_loads_only_the_newer_counts_whichever_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.groups.coordinator._SLICE_S", 0)

    async def scene() -> None:
        async with at_work() as house:
            for number in range(4):
                await house.commit(HERE, orders=number)
        async with started(house.successor()) as other:
            other.journal.led.add(0)
            first = asyncio.create_task(other.groups.load_partition(0, 1))
            await turns(2)
            second = asyncio.create_task(other.groups.load_partition(0, 2))
            await first
            assert await refusals(other, HERE) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            await second
            assert other.committed("orders", HERE) == 3
            assert other.groups.groups.keys() == {HERE}

    run(scene())


@pytest.mark.parametrize("turns_between", [0, 1, 3])
@pytest.mark.parametrize("lost_in", [1, 2])
def test_a_load_that_is_overtaken_by_the_loss_of_the_partition_serves_nobody(
    turns_between: int, lost_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.groups.coordinator._SLICE_S", 0)

    async def scene() -> None:
        async with at_work() as house:
            for number in range(10):
                await house.commit(HERE, orders=number)
        async with started(house.successor()) as other:
            other.journal.led.add(0)
            loading = asyncio.create_task(other.groups.load_partition(0, 1))
            await turns(turns_between)
            other.groups.unload_partition(0, lost_in)
            await loading
            assert await refusals(other, HERE) == {ErrorCode.NOT_COORDINATOR}
            await other.groups.load_partition(0, 1)
            assert await refusals(other, HERE) == {ErrorCode.NOT_COORDINATOR}, "old news"
            await other.groups.load_partition(0, 3)
            assert other.committed("orders", HERE) == 9

    run(scene())


def test_a_load_that_is_overtaken_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.groups.coordinator._SLICE_S", 0)

    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=1)
        async with started(house.successor()) as other:
            other.topics.delete("orders")
            loading = asyncio.create_task(other.groups.load_partition(0, 1))
            await turns(1)
            other.groups.unload_partition(0, 2)
            await loading
            assert len(house.journal.logs[0]) == 1

    run(scene())


def test_who_heard_of_a_newer_leader_first_does_not_load_for_an_older_one() -> None:
    async def scene() -> None:
        async with started(House().successor()) as house:
            house.groups.unload_partition(0, 7)
            await house.lead(0, 6)
            assert await refusals(house, HERE) == {ErrorCode.NOT_COORDINATOR}

    run(scene())


def test_old_and_repeated_news_disturb_nobody() -> None:
    async def scene() -> None:
        async with started(House().successor()) as house:
            await house.lead(0, 5)
            _, join = await house.enter(HERE)
            house.groups.unload_partition(0, 4)
            await house.groups.load_partition(0, 4)
            await house.groups.load_partition(0, 5)
            house.groups.unload_partition(1, 9)
            house.advance(DELAY_MS)
            assert (await join).generation == 1

    run(scene())


def test_a_newer_epoch_of_the_same_leader_loads_what_is_stored_and_no_more() -> None:
    async def scene() -> None:
        async with started(House().successor()) as house:
            await house.lead(0, 5)
            (member_id,) = await house.stable(HERE)
            _, join = await house.enter(HERE)
            await house.groups.load_partition(0, 6)
            assert (await join).error is ErrorCode.NOT_COORDINATOR
            assert house.groups.heartbeat(HERE, member_id, None, 1) is ErrorCode.NONE

    run(scene())


def test_a_broker_that_stands_alone_serves_before_there_is_a_topic_and_goes_on_when_there_is() -> None:
    async def scene() -> None:
        async with at_work() as house:
            _, join = await house.enter(HERE)
            await house.groups.load_partition(0, 0)
            house.advance(DELAY_MS)
            assert (await join).generation == 1
            house.journal.logs[0].clear()
            house.groups.unload_partition(0, None)
            assert house.groups.groups == {}, "the topic was deleted"
            assert await house.commit(HERE, orders=1) is ErrorCode.NONE
            await house.groups.load_partition(0, 0)
            assert house.committed("orders", HERE) == 1

    run(scene())


def test_a_broker_that_stood_alone_too_early_loads_what_it_did_not_know_of() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=7)
            await house.commit(ELSEWHERE, orders=8)
        later = house.restarted()
        stored, later.journal.logs = later.journal.logs, [[], [], []]
        async with at_work(later):
            written = later.commit(HERE, orders=1)
            later.journal.logs = [stored[0] + later.journal.logs[0], stored[1], []]
            assert await written is ErrorCode.NONE
            for index in range(3):
                await later.groups.load_partition(index, 0)
            assert later.committed("orders", HERE) == 1
            assert later.committed("orders", ELSEWHERE) == 8
        async with at_work(house.restarted()) as again:
            (member_id,) = await again.stable(HERE)
            _, join = await again.enter(HERE)
            await again.groups.load_partition(0, 3)
            assert not join.done(), "all of it was known"
            assert (await again.join(HERE, member_id)).generation == 2
            again.journal.logs[1].clear()
            await again.groups.load_partition(1, 3)
            assert ELSEWHERE not in again.groups.groups
            again.journal.damage = PeerError(ErrorCode.KAFKA_STORAGE_ERROR)
            await again.groups.load_partition(2, 3)
            assert await refusals(again, group_in(2)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run(scene())


def test_a_partition_that_was_deleted_and_made_anew_begins_with_the_first_epoch() -> None:
    async def scene() -> None:
        async with started(House().successor()) as house:
            await house.lead(0, 5)
            await house.commit(HERE, orders=1)
            house.journal.logs[0].clear()
            house.resign(0, None)
            assert await refusals(house, HERE) == {ErrorCode.NOT_COORDINATOR}
            await house.lead(0, 0)
            assert house.groups.groups == {}
            assert await house.commit(HERE, orders=2) is ErrorCode.NONE

    run(scene())
