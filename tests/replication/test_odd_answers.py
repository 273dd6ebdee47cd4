"""Answers that do not fit: too early, too late, with gaps, damaged; and logs that the leader has cut at either end."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from odradek.wire.messages import fetch
from tests.client.support import asynchronous, tick, until
from tests.log.support import START_MS, batch, compact, keyed, values_of
from tests.replication.leaders import EPOCH, TOPIC_ID, Leader, cluster


def stored(base: int, *values: bytes, epoch: int = EPOCH) -> bytes:
    """A batch as a leader has it."""
    records = [NewRecord(value, timestamp=START_MS) for value in values]
    return bytes(build_batch(records, base_offset=base, leader_epoch=epoch))


def forging(change: Callable[[fetch.ResponsePartition, int], None]) -> Callable[[fetch.Request, fetch.Response], None]:
    """Change the answers that hold records; the number says how many there were before."""
    count = 0

    def forge(_: fetch.Request, response: fetch.Response) -> None:
        nonlocal count
        for topic in response.responses:
            for answer in topic.partitions:
                if len(answer.records or b""):
                    change(answer, count)
                    count += 1

    return forge


async def acknowledged(leader: Leader, offset: int) -> None:
    await until(lambda: leader.led[TOPIC_ID, 0].acknowledged[-1:] == [offset])


@asynchronous
async def test_whole_batches_that_are_here_already_are_left_out() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        for value in (b"a", b"b"):
            leader.append(value)
            copy.log.append(batch(value), EPOCH)
        leader.append(b"c")

        def change(answer: fetch.ResponsePartition, _: int) -> None:
            answer.records = stored(0, b"a") + stored(1, b"b") + stored(2, b"c")

        leader.forge = forging(change)
        follower.follow(copy, leader)
        await acknowledged(leader, 3)
        assert copy.done == ["append 2-2"]
        assert values_of(copy.log) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "forged",
    [
        stored(0, b"x"),  # all of it is here already
        stored(0, b"x", b"y"),  # begins before our end and reaches over it
        stored(2, b"x"),  # leaves one out
        stored(1, b"x", epoch=EPOCH + 1),  # of an epoch that has not begun
        stored(1, b"x", epoch=EPOCH - 1),  # of one that was over
        stored(1, b"x") + stored(1, b"x"),  # goes back
        stored(1, b"x") + stored(3, b"y"),  # leaves one out later
        stored(1, b"x")[:-1],  # not whole
        stored(1, b"x")[:-1] + b"?",  # damaged
        b"?" * 100,
    ],
    ids=[
        "here already", "reaches over", "gap", "future epoch", "past epoch", "goes back", "later gap", "torn",
        "damaged", "no batch",
    ],
)  # fmt: skip
@asynchronous
async def test_an_answer_that_does_not_fit_is_refused_and_asked_for_again(forged: bytes) -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        leader.append(b"a")
        copy.log.append(batch(b"a"), EPOCH)
        leader.append(b"b")

        def change(answer: fetch.ResponsePartition, count: int) -> None:
            if count == 0:
                answer.records = forged

        leader.forge = forging(change)
        follower.follow(copy, leader)
        await acknowledged(leader, 2)
        assert values_of(copy.log) == [b"a", b"b"]
        assert copy.log.epochs.items() == led.log.epochs.items()
        assert copy.done == ["append 1-1"]
        assert follower.failures == []


@asynchronous
async def test_a_gap_that_the_leader_insists_on_is_taken_once_it_has_been_asked_again() -> None:
    """A topic that was compacted once and is not any more."""
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        leader.append(b"a")

        def change(answer: fetch.ResponsePartition, _: int) -> None:
            answer.records = stored(4, b"e")

        leader.forge = forging(change)
        follower.follow(copy, leader)
        await until(lambda: "append 4-4" in copy.done)
        assert len(leader.fetches) > 1
        assert copy.log.state.sparse


@asynchronous
async def test_the_gaps_of_a_compacted_topic_are_taken_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (leader, follower):
        led = leader.lead(cleanup_policy="compact")
        for number in range(6):
            led.log.append(keyed((b"k", b"%d" % number)), EPOCH)
            led.log.roll()
        assert compact(led.log)
        copy = follower.copy(cleanup_policy="compact")
        with caplog.at_level(logging.WARNING):
            follower.follow(copy, leader)
            await acknowledged(leader, 6)
        assert values_of(copy.log) == values_of(led.log)
        assert not [record for record in caplog.records if record.name.startswith("odradek.replication")]


@asynchronous
async def test_a_copy_that_ends_before_the_leaders_start_begins_again_there() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        copy.log.append(batch(b"old"), EPOCH)
        for number in range(6):
            leader.append(b"%d" % number)
        led.log.roll()
        led.log.flush()
        led.log.delete_records(4).run()
        follower.follow(copy, leader)
        await acknowledged(leader, 6)
        assert copy.done[0] == "restart 4"
        assert values_of(copy.log) == [b"4", b"5"]
        assert copy.log.log_start == 4


@asynchronous
async def test_a_leader_whose_log_starts_within_a_batch_is_followed_from_the_batch() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        leader.append(b"a", b"b", b"c", b"d")
        led.log.flush()
        led.log.delete_records(2).run()
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 4)
        assert copy.done == ["restart 2", "restart 0", "append 0-3"]
        leader.append(b"e")
        await until(lambda: copy.log.log_start == 2)
        assert values_of(copy.log)[:2] == [b"c", b"d"]


@asynchronous
async def test_a_copy_beyond_the_leaders_end_is_cut_by_epochs() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        for value in (b"a", b"b", b"x", b"y"):
            copy.log.append(batch(value), EPOCH)
        leader.append(b"a")
        leader.append(b"b")
        honest = leader._read_one

        def without_divergence(key: tuple[bytes, int], asked: fetch.RequestPartition) -> fetch.ResponsePartition:
            asked.last_fetched_epoch = -1
            return honest(key, asked)

        leader._read_one = without_divergence  # type: ignore[method-assign]
        follower.follow(copy, leader)
        await acknowledged(leader, 2)
        assert copy.done == ["cut 2"]
        assert values_of(copy.log) == [b"a", b"b"]


@asynchronous
async def test_an_empty_copy_beyond_the_leaders_end_begins_again() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        leader.append(b"a")
        copy = follower.copy()
        copy.log.start_over(7)
        follower.follow(copy, leader)
        await acknowledged(leader, 1)
        assert copy.done[0] == "restart 0"
        assert values_of(copy.log) == [b"a"]


@asynchronous
async def test_a_leader_without_history_that_starts_behind_the_copy_makes_it_begin_again() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        led.log.start_over(7)
        copy = follower.copy()
        copy.log.append(batch(b"a"), EPOCH)

        def forge(_: fetch.Request, response: fetch.Response) -> None:
            for topic in response.responses:
                for answer in topic.partitions:
                    if copy.log.next_offset < 7:
                        answer.error_code = 0
                        answer.diverging_epoch = fetch.ResponseDivergingEpoch(epoch=-1, end_offset=7)

        leader.forge = forge
        follower.follow(copy, leader)
        await acknowledged(leader, 7)
        assert copy.done == ["restart 7"]


@asynchronous
async def test_a_divergence_that_cuts_nothing_is_not_asked_for_again_and_again() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        copy.log.append(batch(b"a"), EPOCH)
        leader.append(b"a")

        def forge(_: fetch.Request, response: fetch.Response) -> None:
            for topic in response.responses:
                for answer in topic.partitions:
                    answer.diverging_epoch = fetch.ResponseDivergingEpoch(epoch=EPOCH, end_offset=9)

        leader.forge = forge
        follower.follow(copy, leader)
        await until(lambda: len(leader.answers) > 0)
        for _ in range(10):
            await tick()
        assert len(leader.fetches) <= 3
        assert copy.done == []


@asynchronous
async def test_the_leaders_log_start_is_followed() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy(segment_bytes=1024)
        for _ in range(20):
            leader.append(b"v" * 200)
        follower.follow(copy, leader)
        await acknowledged(leader, 20)
        segments = len(copy.log.segments)
        led.log.flush()
        led.log.delete_records(15).run()
        leader.append(b"more")
        await until(lambda: copy.log.log_start == 15)
        assert len(copy.log.segments) < segments


@asynchronous
async def test_the_log_start_is_followed_without_a_flush_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(replica_fetch_wait_max_ms=30) as (leader, follower):
        led = leader.lead()
        copy = follower.copy(flush="os")
        follower.follow(copy, leader)
        leader.append(b"a")
        leader.append(b"b")
        await acknowledged(leader, 2)
        led.log.flush()
        led.log.delete_records(2).run()
        monkeypatch.setattr(copy.log, "flush", lambda: pytest.fail("the loop waits for the disk"))
        await until(lambda: copy.log.log_start == 2)
        assert values_of(copy.log) == []


@asynchronous
async def test_the_high_watermark_comes_without_records_and_never_beyond_the_end() -> None:
    async with cluster(replica_fetch_wait_max_ms=30) as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        follower.follow(copy, leader)
        leader.append(b"a", b"b")
        led.high_watermark = 1_000
        await until(lambda: copy.high_watermark == 2)
        led.high_watermark = 1
        await until(lambda: copy.high_watermark == 1)
