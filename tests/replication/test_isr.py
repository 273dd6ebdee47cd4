"""In-sync sets through the controller: one request at a time, lost answers, refusals, followers that lag."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.model import TopicPartition
from odradek.replication.isr import IsrKeeper
from odradek.replication.progress import Progress
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import asynchronous, tick, until
from tests.replication.leaders import TOPIC, TOPIC_ID, config

LAG_MS = 10_000
Args = dict[str, Any]
Answer = Callable[[Args], Awaitable[dict[str, Any]]]


class Partition:
    """A partition that broker 1 leads; it has ten records."""

    def __init__(self, index: int = 0, isr: tuple[int, ...] = (1, 2)) -> None:
        self.tp = TopicPartition(TOPIC, index)
        self.topic_id = TOPIC_ID
        self.progress: Progress | None = Progress(1, (1, 2), isr, 5, 8, 0, 0)
        self.log_end = 10
        self.high_watermark = 0
        self.changes = 0

    @property
    def view(self) -> Progress:
        assert self.progress is not None
        return self.progress

    def isr_changed(self) -> None:
        self.changes += 1
        self.high_watermark = self.view.high_watermark(self.high_watermark, self.log_end, 1)


class House:
    """A keeper, and the controller that the test plays."""

    def __init__(self, answer: Answer, lag_ms: int) -> None:
        self.now = 0
        self.asked: list[Args] = []
        self.answer = answer
        self.broker_epoch = 70
        self.keeper = IsrKeeper(
            config(replica_lag_time_max_ms=lag_ms),
            1,
            call=self._call,
            broker_epoch=lambda: self.broker_epoch,
            now_ms=lambda: self.now,
        )

    async def _call(self, command: str, args: Args) -> dict[str, Any]:
        assert command == "alter-partition"
        self.asked.append(args)
        return await self.answer(args)

    def fetched(self, partition: Partition, offset: int) -> None:
        partition.view.fetched(2, offset, partition.log_end, self.now, 31)
        self.keeper.fetched(partition)


def result_of(item: dict[str, Any], error: int = 0) -> dict[str, Any]:
    return {
        "topic_id": item["topic_id"],
        "partition": item["partition"],
        "error": error,
        "isr": [id_ for id_, _ in item["isr"]],
        "leader_epoch": item["leader_epoch"],
        "partition_epoch": item["partition_epoch"] + (error == 0),
    }


async def yes(args: Args) -> dict[str, Any]:
    """A controller that agrees."""
    return {"partitions": [result_of(item) for item in args["partitions"]]}


@asynccontextmanager
async def at_work(answer: Answer = yes, lag_ms: int = LAG_MS) -> AsyncIterator[House]:
    house = House(answer, lag_ms)
    house.keeper.start()
    try:
        yield house
    finally:
        await house.keeper.close()


@asynchronous
async def test_a_follower_that_has_come_far_enough_joins() -> None:
    async with at_work() as house:
        partition = Partition(isr=(1,))
        house.keeper.lead(partition)
        house.fetched(partition, 10)
        await until(lambda: partition.view.isr == (1, 2))
        assert house.asked == [
            {
                "broker_id": 1,
                "broker_epoch": 70,
                "partitions": [
                    {
                        "topic_id": TOPIC_ID.hex(),
                        "partition": 0,
                        "leader_epoch": 5,
                        "partition_epoch": 8,
                        "isr": [[1, 70], [2, 31]],
                    }
                ],
            }
        ]
        assert (partition.view.partition_epoch, partition.changes) == (9, 1)


@asynchronous
async def test_those_that_lag_are_put_out_in_one_request() -> None:
    async with at_work() as house:
        partitions = [Partition(index) for index in range(3)]
        for partition in partitions:
            house.keeper.lead(partition)
        house.fetched(partitions[1], 10)
        house.now = LAG_MS + 1
        house.keeper.check()
        await until(lambda: partitions[2].view.isr == (1,))
        assert [item["partition"] for item in house.asked[0]["partitions"]] == [0, 2]
        assert partitions[1].view.isr == (1, 2)
        assert partitions[0].high_watermark == 10


@asynchronous
async def test_lag_is_looked_for_without_being_asked() -> None:
    async with at_work(lag_ms=20) as house:
        partition = Partition()
        house.keeper.lead(partition)
        house.now = 1_000
        await until(lambda: partition.view.isr == (1,))


@asynchronous
async def test_each_look_tells_the_partition_that_somebody_may_be_waited_for_no_longer() -> None:
    async with at_work() as house:
        partition = Partition(isr=(1,))
        house.keeper.lead(partition)
        partition.view.fetched(2, 10, partition.log_end, 0, 31)
        partition.view.proposed(())  # so that nothing else can be
        partition.log_end = 20
        partition.isr_changed()
        assert partition.high_watermark == 10
        house.now = 5_000
        house.keeper.check()
        assert partition.high_watermark == 20


@asynchronous
async def test_a_look_that_fails_is_not_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    async with at_work(lag_ms=20) as house:
        partition = Partition()
        fails = [True]

        def isr_changed() -> None:
            if fails:
                fails.pop()
                raise RuntimeError("a bug")
            partition.changes += 1

        partition.isr_changed = isr_changed  # type: ignore[method-assign]
        house.keeper.lead(partition)
        await until(lambda: partition.changes > 0)
        assert "a bug" in caplog.text


@asynchronous
async def test_one_request_at_a_time_and_what_came_meanwhile_goes_together() -> None:
    may_answer = asyncio.Event()

    async def slowly(args: Args) -> dict[str, Any]:
        await may_answer.wait()
        return await yes(args)

    async with at_work(slowly) as house:
        partitions = [Partition(index, isr=(1,)) for index in range(4)]
        house.fetched(partitions[0], 10)
        await until(lambda: len(house.asked) == 1)
        for partition in partitions[1:]:
            house.fetched(partition, 10)
        await tick()
        assert len(house.asked) == 1
        may_answer.set()
        await until(lambda: all(partition.view.isr == (1, 2) for partition in partitions))
        assert [len(args["partitions"]) for args in house.asked] == [1, 3]


@asynchronous
async def test_one_that_came_far_enough_while_another_was_proposed_is_not_forgotten() -> None:
    may_answer = asyncio.Event()

    async def slowly(args: Args) -> dict[str, Any]:
        await may_answer.wait()
        return await yes(args)

    async with at_work(slowly) as house:
        partition = Partition()
        partition.progress = Progress(1, (1, 2, 3), (1,), 5, 8, 0, 0)
        house.fetched(partition, 10)
        await until(lambda: len(house.asked) == 1)
        partition.view.fetched(3, 10, partition.log_end, house.now, 32)
        house.keeper.fetched(partition)
        may_answer.set()
        await until(lambda: partition.view.isr == (1, 2, 3))


@asynchronous
async def test_a_lost_answer_leaves_the_proposal_counted_and_it_is_made_again() -> None:
    failures = [PeerError(ErrorCode.REQUEST_TIMED_OUT, "no leader"), OSError("a bug")]

    async def at_last(args: Args) -> dict[str, Any]:
        assert partition.view.maximal_isr == {1, 2}
        if failures:
            raise failures.pop()
        return await yes(args)

    async with at_work(at_last) as house:
        partition = Partition(isr=(1,))
        house.fetched(partition, 10)
        await until(lambda: partition.view.isr == (1, 2))
        assert len(house.asked) == 3
        assert house.asked[0] == house.asked[2]


@asynchronous
async def test_a_new_life_of_this_broker_is_told_in_the_next_attempt() -> None:
    async def stale(args: Args) -> dict[str, Any]:
        if args["broker_epoch"] == 70:
            house.broker_epoch = 90
            raise PeerError(ErrorCode.STALE_BROKER_EPOCH)
        return await yes(args)

    async with at_work(stale) as house:
        partition = Partition(isr=(1,))
        house.fetched(partition, 10)
        await until(lambda: partition.view.isr == (1, 2))
        assert house.asked[-1]["partitions"][0]["isr"][0] == [1, 90]


@asynchronous
async def test_a_refusal_ends_the_proposal() -> None:
    async def no(args: Args) -> dict[str, Any]:
        return {"partitions": [result_of(item, ErrorCode.INELIGIBLE_REPLICA) for item in args["partitions"]]}

    async with at_work(no) as house:
        partition = Partition(isr=(1,))
        house.fetched(partition, 5)
        await until(lambda: len(house.asked) == 1 and partition.view.proposal is None)
        await until(lambda: partition.high_watermark == 10)
        assert partition.view.isr == (1,)


@asynchronous
async def test_an_outdated_proposal_counts_until_newer_metadata_come() -> None:
    """It may be our own earlier request that has been taken."""

    async def outdated(args: Args) -> dict[str, Any]:
        return {"partitions": [result_of(item, ErrorCode.INVALID_UPDATE_VERSION) for item in args["partitions"]]}

    async with at_work(outdated) as house:
        partition = Partition(isr=(1,))
        house.fetched(partition, 5)
        await until(lambda: len(house.asked) >= 2)
        assert partition.view.maximal_isr == {1, 2}
        partition.view.update((1, 2), (1,), 9)
        asked = len(house.asked)
        house.answer = yes
        house.fetched(partition, 10)
        await until(lambda: partition.view.isr == (1, 2))
        assert house.asked[asked]["partitions"][0]["partition_epoch"] == 9


@asynchronous
async def test_an_answer_for_an_earlier_leader_epoch_changes_nothing() -> None:
    may_answer = asyncio.Event()

    async def slowly(args: Args) -> dict[str, Any]:
        await may_answer.wait()
        return await yes(args)

    async with at_work(slowly) as house:
        partition = Partition(isr=(1,))
        house.fetched(partition, 10)
        await until(lambda: len(house.asked) == 1)
        partition.progress = Progress(1, (1, 2), (1,), 6, 9, 10, house.now)
        may_answer.set()
        for _ in range(3):
            await tick()
        assert (partition.view.isr, partition.view.partition_epoch) == ((1,), 9)
        assert len(house.asked) == 1


@asynchronous
async def test_an_answer_to_an_earlier_proposal_does_not_decide_a_later_one() -> None:
    may_answer = asyncio.Event()

    async def refuse_the_first(args: Args) -> dict[str, Any]:
        if len(house.asked) > 1:
            await asyncio.get_running_loop().create_future()
        await may_answer.wait()
        return {"partitions": [result_of(item, ErrorCode.INELIGIBLE_REPLICA) for item in args["partitions"]]}

    async with at_work(refuse_the_first) as house:
        partition = Partition(isr=(1,))
        house.keeper.lead(partition)
        house.fetched(partition, 5)
        await until(lambda: len(house.asked) == 1)
        partition.view.update((1, 2), (1, 2), 9)
        house.now = LAG_MS + 1
        house.keeper.check()
        later = partition.view.proposal
        assert later == ((1, -1),)
        may_answer.set()
        await until(lambda: len(house.asked) == 2)
        assert partition.view.proposal is later
        assert [item["partition_epoch"] for item in house.asked[1]["partitions"]] == [9]


@asynchronous
async def test_a_partition_that_is_led_no_more_is_left_alone() -> None:
    async with at_work() as house:
        partition = Partition()
        house.keeper.lead(partition)
        partition.progress = None
        house.now = LAG_MS * 2
        house.keeper.check()
        house.keeper.fetched(partition)
        house.keeper.resign(partition.tp)
        house.keeper.check()
        await tick()
        assert house.asked == []
