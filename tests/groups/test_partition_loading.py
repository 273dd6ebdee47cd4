"""How a coordinator loads a partition: in slices, in turns with others, and what becomes of what cannot be read."""

from __future__ import annotations

import asyncio

import pytest

from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.brokers import House, at_work, group_in, run, started, turns
from tests.groups.test_partitions import BEAT, ELSEWHERE, HERE, refusals


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_partition_that_cannot_be_read_serves_none_of_its_groups(damage: ErrorCode, code: ErrorCode) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=1)
        async with started(house.successor()) as other:
            other.journal.damage = PeerError(damage)
            await other.lead(0, 1)
            assert await refusals(other, HERE) == {code}
            other.groups.check_all_loaded()
            assert other.groups.groups == {}
            other.journal.damage = None
            await other.lead(0, 2)
            assert other.committed("orders", HERE) == 1
        alone = house.restarted()
        alone.journal.damage = PeerError(damage)
        async with at_work(alone):
            assert await refusals(alone, HERE) == {code}

    run(scene())


def test_a_load_that_fails_for_another_reason_says_so_and_does_not_seem_to_go_on() -> None:
    async def scene() -> None:
        async with started(House().successor()) as house:
            house.journal.damage = RuntimeError("a mistake of ours")
            with pytest.raises(RuntimeError, match="a mistake of ours"):
                await house.lead(0, 1)
            assert await refusals(house, HERE) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run(scene())


def test_a_long_log_does_not_keep_the_loop_from_others_nor_short_ones_waiting() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=1)
            await house.commit(ELSEWHERE, orders=2)
            house.journal.logs[0] *= 5_000
        async with started(house.successor()) as other:
            other.journal.led |= {0, 1}
            long = asyncio.create_task(other.groups.load_partition(0, 1))
            short = asyncio.create_task(other.groups.load_partition(1, 1))
            await turns(1)
            await short
            assert other.committed("orders", ELSEWHERE) == 2
            assert not long.done()
            rounds = 0
            while not long.done():
                await turns(1)
                rounds += 1
            assert rounds >= 3
            assert other.committed("orders", HERE) == 1

    run(scene())


def test_a_topic_deleted_while_its_offsets_are_loading_takes_them_with_it_and_another_may_have_its_name() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.commit(HERE, orders=1, other=2)
        async with started(house.successor()) as again:
            again.journal.led.add(0)
            loading = again.groups.load_partition(0, 1)
            again.groups.offsets.forget_topic("orders")
            await loading
            await turns()
            assert (again.committed("orders", HERE), again.committed("other", HERE)) == (None, 2)
            last = again.restarted()
        async with started(last):
            last.topics.delete("other")
            last.journal.led.add(0)
            await last.groups.load_partition(0, 2)
            await turns()
            assert HERE not in last.groups.offsets

    run(scene())


def test_closing_ends_loads_and_waits_for_no_log_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.groups.coordinator._SLICE_S", 0)
    monkeypatch.setattr("odradek.groups.coordinator._DRAIN_S_MAX", 0.01)

    async def scene() -> None:
        async with at_work() as house:
            for number in range(10):
                await house.commit(HERE, orders=number)
        other = house.successor()
        other.groups.start()
        await other.lead(1, 1)
        other.journal.led.add(0)
        loading = asyncio.create_task(other.groups.load_partition(0, 1))
        await turns(2)
        other.journal.is_held = True
        commit = other.commit(ELSEWHERE, orders=1)
        beat = other.groups.live(group_in(1, 1), BEAT)
        await other.groups.close()
        await loading
        await other.groups.load_partition(2, 1)
        assert await refusals(other, HERE) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert HERE not in other.groups.groups
        assert await commit is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await beat).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scene())
