"""Eeylops' consumers on a broker that stands alone: what is refused, what is waited for, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker.consumers import ConsumerNotRegistered, consumer_id_problem
from odradek.broker.offsets_topic import OffsetsTopic
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from tests.broker.houses import batch, refusal_of
from tests.broker.readers import PLACE, SECONDS, reader
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.groups.brokers import turns

ELSEWHERE = TopicPartition("t", 7)


@pytest.mark.parametrize(
    ("name", "words"), [("", "needs a name"), ("x" * 257, "256"), ("a::b", "::"), ("\t", "control")]
)
def test_a_name_that_cannot_be_is_told_with_the_reason(name: str, words: str) -> None:
    assert words in str(consumer_id_problem(name))


@pytest.mark.parametrize("name", ["a", ":", "a b", "é" * 256])
def test_any_other_name_is_good(name: str) -> None:
    assert consumer_id_problem(name) is None


@on_uvloop
async def test_a_commit_goes_anywhere_up_to_the_end_and_not_beyond_it() -> None:
    async with reader() as t:
        await t.produce(b"a", b"b")
        with pytest.raises(ConsumerNotRegistered, match="RegisterConsumer"):
            await t.commit(0)
        await t.register()
        for offset in (2, 0, 1):
            await t.commit(offset)
            assert await t.committed() == offset
        assert await refusal_of(t.commit(3)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await refusal_of(t.commit(-1)) is ErrorCode.INVALID_REQUEST
        assert await t.committed() == 1


@on_uvloop
async def test_a_commit_is_not_let_beyond_what_is_safe() -> None:
    async with reader() as t:
        await t.register()
        t.house.disk.may_flush.clear()
        partition = t.broker.partition(*PLACE)
        partition.append(batch(b"a"))
        assert partition.log_end == 1
        assert await refusal_of(t.commit(1)) is ErrorCode.OFFSET_OUT_OF_RANGE
        t.house.disk.may_flush.set()


@on_uvloop
async def test_partitions_that_are_not_there_have_no_consumers() -> None:
    async with reader() as t:
        for asking in (
            t.consumers.register("me", ELSEWHERE, SECONDS),
            t.consumers.commit("me", ELSEWHERE, 0, SECONDS),
            t.consumers.last_committed("me", ELSEWHERE, SECONDS, sync=False),
        ):
            assert await refusal_of(asking) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_whoever_asks_in_sync_waits_for_the_commits_under_way() -> None:
    async with reader() as t:
        await t.produce(b"a")
        await t.register()
        t.house.disk.may_flush.clear()
        committing = asyncio.create_task(t.commit(1))
        await until(lambda: t.groups.offsets.settling("me") is not None)
        asking = asyncio.create_task(t.committed())
        assert await t.consumers.last_committed("me", PLACE, SECONDS, sync=False) == -1
        assert not asking.done()
        t.house.disk.may_flush.set()
        await committing
        assert await asking == 1


@on_uvloop
async def test_a_coordinator_that_does_not_come_is_waited_for_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reader() as t:
        monkeypatch.setattr(OffsetsTopic, "leads", lambda _self, _partition: False)
        assert await refusal_of(t.consumers.register("me", PLACE, 0.2)) is ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.create_task(t.register())
        await turns()
        monkeypatch.undo()
        await waiting
        assert await t.committed() == -1


@on_uvloop
async def test_a_broker_that_stops_lets_nobody_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reader() as t:
        monkeypatch.setattr(OffsetsTopic, "leads", lambda _self, _partition: False)
        waiting = asyncio.create_task(t.register())
        await turns()
        await t.consumers.close()
        assert await refusal_of(waiting) is ErrorCode.NOT_COORDINATOR
        monkeypatch.undo()


@on_uvloop
async def test_a_topic_that_goes_while_somebody_commits_leaves_nothing_behind() -> None:
    async with reader() as t:
        await t.produce(b"a")
        await t.register()
        committing = [asyncio.create_task(t.commit(number % 2)) for number in range(50)]
        await t.broker.delete_topic("t")
        await asyncio.wait(committing)
        assert {await refusal_of(each) for each in committing} <= {
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.GROUP_ID_NOT_FOUND,
        }
        await t.broker.create_topic("t", 1, {})
        assert await refusal_of(t.committed()) is ErrorCode.GROUP_ID_NOT_FOUND


@on_uvloop
async def test_who_registers_for_a_topic_that_was_made_again_stays_though_the_old_one_is_not_cleared_away_yet() -> None:
    async with reader() as t:
        await t.produce(b"a")
        await t.register()
        await t.commit(1)
        t.house.disk.may_flush.clear()
        begun = t.house.disk.flushes_begun
        t.broker.partition(*PLACE).append(batch(b"b"))
        t.broker.flusher.request(t.broker.partition(*PLACE).log)
        await until(lambda: t.house.disk.flushes_begun > begun)
        deleting = asyncio.create_task(t.broker.delete_topic("t"))
        await until(lambda: "t" not in t.broker.metadata.image.topics)
        creating = asyncio.create_task(t.broker.create_topic("t", 1, {}))
        await until(lambda: "t" in t.broker.metadata.image.topics)
        registering = asyncio.create_task(t.register())
        await turns()
        t.house.disk.may_flush.set()
        await asyncio.gather(deleting, creating, registering)
        assert await t.committed() == -1, "registered, and without the old one's commit"
