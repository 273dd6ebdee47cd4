"""Copies follow a leader: what they acknowledge is safe, what parts from the leader is cut, none holds up others."""

from __future__ import annotations

import errno

import pytest

from odradek.log.errors import LogError
from odradek.model import TopicPartition
from odradek.replication.following import Following
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch
from tests.broker.houses import SlowDisk
from tests.client.support import asynchronous, tick, until
from tests.log.support import batch, values_of
from tests.replication.leaders import BROKER_EPOCH, EPOCH, FOLLOWER, TOPIC_ID, Copy, Leader, cluster, config


def ends(copy: Copy) -> int:
    return copy.log.next_offset


async def acknowledged(leader: Leader, offset: int, index: int = 0) -> None:
    """Wait until the leader has heard that everything below is flushed."""
    await until(lambda: leader.led[TOPIC_ID, index].acknowledged[-1:] == [offset])


@asynchronous
async def test_a_copy_becomes_what_the_leader_has_and_stays_so() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        leader.append(b"a", b"b")
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 2)
        leader.append(b"c")
        led.high_watermark = 2
        await acknowledged(leader, 3)
        await until(lambda: copy.high_watermark == 2)
        assert values_of(copy.log) == [b"a", b"b", b"c"]
        assert copy.log.epochs.items() == led.log.epochs.items()
        assert copy.log.flushed_offset == 3
        assert leader.connections == 1
        first = leader.fetches[0]
        assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (FOLLOWER, BROKER_EPOCH)
        assert (int(ApiKey.FETCH), 17) in leader.versions


@asynchronous
async def test_nothing_is_acknowledged_before_it_is_flushed() -> None:
    disk = SlowDisk()
    async with cluster(disk) as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 0)
        disk.may_flush.clear()
        leader.append(b"a")
        await until(lambda: disk.flushes_begun > 0)
        fetches = len(leader.fetches)
        for _ in range(5):
            await tick()
        assert (led.acknowledged, len(leader.fetches)) == ([0], fetches)
        disk.may_flush.set()
        await acknowledged(leader, 1)


@asynchronous
async def test_what_was_left_unflushed_is_flushed_before_the_first_request() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        leader.append(b"a", epoch=1)
        copy = follower.copy()
        copy.log.append(batch(b"a"), 1)
        assert copy.log.flushed_offset == 0
        follower.follow(copy, leader)
        await acknowledged(leader, 1)
        assert copy.log.flushed_offset == 1


@asynchronous
async def test_a_topic_that_leaves_it_to_the_system_is_acknowledged_without_a_flush() -> None:
    disk = SlowDisk()
    async with cluster(disk) as (leader, follower):
        leader.lead()
        copy = follower.copy(flush="os")
        disk.may_flush.clear()
        follower.follow(copy, leader)
        leader.append(b"a")
        await acknowledged(leader, 1)
        assert disk.flushes_begun == 0


@asynchronous
async def test_partitions_without_news_are_named_once() -> None:
    async with cluster(replica_fetch_wait_max_ms=50) as (leader, follower):
        for index in range(20):
            leader.lead(index)
            follower.follow(follower.copy(index), leader)
        await until(lambda: len(leader.answers) > 0)
        leader.append(b"a", index=7)
        await acknowledged(leader, 1, 7)
        assert sum(len(topic.partitions) for topic in leader.fetches[0].topics) == 20
        later = [each.partition for f in leader.fetches[1:] for topic in f.topics for each in topic.partitions]
        assert later == [7]


@asynchronous
async def test_a_session_that_is_lost_is_begun_again() -> None:
    async with cluster(replica_fetch_wait_max_ms=20) as (leader, follower):
        leader.lead()
        follower.follow(follower.copy(), leader)
        await acknowledged(leader, 0)
        leader.forget_sessions()
        leader.append(b"a")
        await acknowledged(leader, 1)
        assert leader.connections == 1
        assert [f.session_epoch for f in leader.fetches].count(0) == 2


@asynchronous
async def test_a_leader_without_sessions_is_told_everything_each_time() -> None:
    async with cluster() as (leader, follower):
        leader.gives_sessions = False
        for index in range(3):
            leader.lead(index)
            follower.follow(follower.copy(index), leader)
        leader.append(b"a", index=1)
        await acknowledged(leader, 1, 1)
        assert {f.session_epoch for f in leader.fetches} == {0}
        last = leader.fetches[-1].topics[0].partitions
        assert [each.partition for each in last] == [0, 2, 1], "the one that had news goes last"


@asynchronous
async def test_a_connection_that_breaks_is_made_again() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 0)
        leader.hang_up()
        leader.append(b"a")
        await acknowledged(leader, 1)
        assert leader.connections == 2


@asynchronous
async def test_a_log_that_parts_from_the_leader_is_cut_where_the_epochs_part() -> None:
    """KIP-101: not at the high watermark. The follower wrote on as a leader that had been replaced."""
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        for value in (b"a", b"b"):
            leader.append(value, epoch=1)
            copy.log.append(batch(value), 1)
        leader.append(b"c", epoch=3)
        copy.log.append(batch(b"x"), 1)
        copy.log.append(batch(b"y"), 1)
        copy.high_watermark = 0
        follower.follow(copy, leader)
        await acknowledged(leader, 3)
        assert values_of(copy.log) == [b"a", b"b", b"c"]
        assert copy.done == ["cut 2", "append 2-2"]
        assert copy.log.epochs.items() == led.log.epochs.items() == [(1, 0), (3, 2)]


@asynchronous
async def test_epochs_that_the_other_never_saw_take_several_cuts() -> None:
    """KIP-279: after quick changes of leader both have epochs that the other lacks."""
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        for value, mine, theirs in ((b"a", 0, 0), (b"b", 1, 2), (b"c", 3, 4), (b"d", 3, 4)):
            copy.log.append(batch(b"my " + value if mine else value), mine)
            led.log.append(batch(value), theirs)
        follower.follow(copy, leader)
        await acknowledged(leader, 4)
        assert values_of(copy.log) == [b"a", b"b", b"c", b"d"]
        assert copy.log.epochs.items() == [(0, 0), (2, 1), (4, 2)]
        assert copy.done[:2] == ["cut 2", "cut 1"]


@asynchronous
async def test_the_cut_goes_to_the_own_end_of_an_epoch_when_the_leader_wrote_more_in_it() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        for value, mine in ((b"a", 0), (b"x", 1), (b"y", 3), (b"z", 3)):
            copy.log.append(batch(value), mine)
        for value, theirs in ((b"a", 0), (b"b", 2), (b"c", 2), (b"d", 2), (b"e", 2), (b"f", 4)):
            led.log.append(batch(value), theirs)
        follower.follow(copy, leader)
        await acknowledged(leader, 6)
        assert values_of(copy.log) == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert copy.done[:2] == ["cut 2", "cut 1"]


@asynchronous
async def test_an_answer_to_another_position_than_the_present_one_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        leader.append(b"a")
        leader.append(b"b")
        follower.follow(copy, leader)
        await acknowledged(leader, 2)
        leader.may_answer.clear()
        leader.append(b"c")
        await until(lambda: leader.has_read_records)
        copy.log.truncate(1)  # by its owner
        leader.may_answer.set()
        await acknowledged(leader, 3)
        assert values_of(copy.log) == [b"a", b"b", b"c"]
        assert copy.done[-1] == "append 1-2"
        assert not [record for record in caplog.records if record.name.startswith("odradek.replication")]


@asynchronous
async def test_an_epoch_in_which_nothing_was_written_is_not_claimed() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        leader.append(b"a", epoch=1)
        leader.append(b"b", epoch=2)
        copy = follower.copy()
        copy.log.append(batch(b"a"), 1)
        copy.log.epochs.assign(4, 1)  # it was elected, and replaced before it wrote
        follower.follow(copy, leader)
        await acknowledged(leader, 2)
        assert copy.log.epochs.items() == [(1, 0), (2, 1)]
        assert copy.done == ["append 1-1"]


@asynchronous
async def test_an_answer_that_comes_after_unfollow_is_dropped() -> None:
    async with cluster() as (leader, follower):
        leader.lead(0)
        leader.lead(1)
        copies = [follower.copy(0), follower.copy(1)]
        for copy in copies:
            follower.follow(copy, leader)
        await acknowledged(leader, 0, 1)
        leader.may_answer.clear()
        leader.append(b"a", index=0)
        leader.append(b"a", index=1)
        await until(lambda: leader.has_read_records)
        follower.fetchers.unfollow(copies[0].tp)
        leader.may_answer.set()
        await acknowledged(leader, 1, 1)
        assert (ends(copies[0]), ends(copies[1])) == (0, 1)
        assert [t.partitions for t in leader.fetches[-1].forgotten_topics_data] == [[0]]


@asynchronous
async def test_an_answer_for_an_earlier_leader_epoch_is_dropped() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 0)
        leader.may_answer.clear()
        leader.append(b"old")
        await until(lambda: leader.has_read_records)
        copy.leader_epoch = EPOCH + 1  # the metadata have said so; `follow` is called a moment later
        fetches = len(leader.fetches)
        leader.may_answer.set()
        for _ in range(5):
            await tick()
        assert copy.done == []
        assert len(leader.fetches) <= fetches + 1, "the old answer is not asked for again and again"
        led.epoch = EPOCH + 1
        follower.follow(copy, leader)
        await acknowledged(leader, 1)
        assert leader.fetches[-1].topics[0].partitions[0].current_leader_epoch == EPOCH + 1


@asynchronous
async def test_a_leader_change_while_a_flush_is_under_way_acknowledges_nothing_to_the_old_leader() -> None:
    disk = SlowDisk()
    async with cluster(disk) as (old, follower), Leader() as new:
        old.lead(0)
        old.lead(1)
        led = new.lead(0)
        led.epoch = EPOCH + 1
        copies = [follower.copy(0), follower.copy(1)]
        for copy in copies:
            follower.follow(copy, old)
        await acknowledged(old, 0, 1)
        disk.may_flush.clear()
        old.append(b"lost")
        await until(lambda: disk.flushes_begun > 0)
        copies[0].leader_epoch = EPOCH + 1
        follower.fetchers.follow(copies[0], 3, new.address)
        new.append(b"other")
        disk.may_flush.set()
        await acknowledged(new, 1)
        old.append(b"more", index=1)
        await acknowledged(old, 1, 1)
        assert old.led[TOPIC_ID, 0].acknowledged == [0]
        assert values_of(copies[0].log) == [b"other"]
        assert follower.fetchers.leader_of(copies[0].tp) == 3


@asynchronous
async def test_a_deleted_partition_is_left_and_the_others_go_on() -> None:
    async with cluster() as (leader, follower):
        leader.lead(0)
        leader.lead(1)
        copies = [follower.copy(0), follower.copy(1)]
        for copy in copies:
            follower.follow(copy, leader)
        await acknowledged(leader, 0, 1)
        copies[0].log.abandon()
        leader.append(b"a", index=0)
        leader.append(b"a", index=1)
        await acknowledged(leader, 1, 1)
        assert ends(copies[1]) == 1
        assert follower.failures == []


@asynchronous
async def test_a_disk_that_fails_to_flush_is_told_and_nothing_is_acknowledged() -> None:
    async with cluster() as (leader, follower):
        led = leader.lead()
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 0)
        follower.disk.fail_next("flush", errno.EIO, ending=".log")
        leader.append(b"a")
        await until(lambda: len(follower.failures) == 1)
        assert led.acknowledged == [0]


@asynchronous
async def test_a_disk_that_fails_to_write_is_told() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 0)
        follower.disk.fail_next("append to", errno.EIO, ending=".log")
        leader.append(b"a")
        await until(lambda: len(follower.failures) == 1)


@asynchronous
async def test_errors_of_one_partition_do_not_hold_up_the_others_and_pass() -> None:
    async with cluster() as (leader, follower):
        late = leader.lead(0)
        late.epoch = EPOCH - 1  # it has not heard of its new epoch yet
        leader.lead(1)
        copies = [follower.copy(0), follower.copy(1), follower.copy(2)]
        for copy in copies:
            follower.follow(copy, leader)
        leader.append(b"a", index=0)
        leader.append(b"a", index=1)
        await acknowledged(leader, 1, 1)
        assert ends(copies[0]) == 0
        late.epoch = EPOCH
        await acknowledged(leader, 1, 0)
        leader.lead(2)
        await acknowledged(leader, 0, 2)


@asynchronous
async def test_a_bug_in_one_partition_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (leader, follower):
        copies = [follower.copy(0), follower.copy(1)]
        copies[0].replicated = None  # type: ignore[assignment, method-assign]
        for index, copy in enumerate(copies):
            leader.lead(index)
            leader.append(b"a", index=index)
            follower.follow(copy, leader)
        await acknowledged(leader, 1, 1)
        await acknowledged(leader, 0, 0)
        assert leader.connections == 1
        assert "TypeError" in caplog.text


@asynchronous
async def test_a_new_partition_does_not_wait_for_a_request_that_is_parked() -> None:
    async with cluster(replica_fetch_wait_max_ms=60_000) as (leader, follower):
        leader.lead(0)
        leader.lead(1)
        follower.follow(follower.copy(0), leader)
        await acknowledged(leader, 0, 0)
        await until(lambda: len(leader.fetches) == 1)
        follower.follow(follower.copy(1), leader)
        await acknowledged(leader, 0, 1)
        assert len(leader.fetches[-1].topics[0].partitions) == 2


@asynchronous
async def test_a_leader_that_nobody_follows_is_let_go() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        copy = follower.copy()
        follower.follow(copy, leader)
        await acknowledged(leader, 0)
        follower.follow(copy, leader)  # the same again: nothing happens
        follower.fetchers.unfollow(copy.tp)
        follower.fetchers.unfollow(TopicPartition("never", 0))
        await until(lambda: not leader._writers)
        assert leader.connections == 1
        assert follower.fetchers.leader_of(copy.tp) is None
        follower.follow(copy, leader)
        leader.append(b"a")
        await acknowledged(leader, 1)


@asynchronous
async def test_a_replica_that_is_being_added_is_throttled_and_the_others_are_not() -> None:
    async with cluster(replication_throttle_bytes=500) as (leader, follower):
        leader.lead(0)
        leader.lead(1)
        for _ in range(20):
            leader.append(b"v" * 100, index=0)
            leader.append(b"v" * 100, index=1)
        adding, other = follower.copy(0), follower.copy(1)
        adding.is_adding = True
        follower.follow(adding, leader)
        follower.follow(other, leader)
        await acknowledged(leader, 20, 1)
        assert ends(adding) <= 4
        end = ends(adding)
        await until(lambda: ends(adding) > end)


@asynchronous
async def test_a_refusal_of_the_whole_request_is_tried_again() -> None:
    async with cluster() as (leader, follower):
        leader.lead()
        refused: list[int] = []

        def forge(_: fetch.Request, response: fetch.Response) -> None:
            if len(refused) < 2:
                refused.append(response.error_code)
                response.error_code = ErrorCode.STALE_BROKER_EPOCH

        leader.forge = forge
        follower.follow(follower.copy(), leader)
        leader.append(b"a")
        await acknowledged(leader, 1)
        assert leader.connections == 3


@asynchronous
async def test_the_last_epoch_is_that_of_the_last_record() -> None:
    async with cluster() as (_, follower):
        copy = follower.copy()
        following = Following(copy)
        assert following.last_epoch == -1
        copy.log.append(batch(b"a", b"b"), 3)
        copy.log.epochs.assign(7, 2)
        assert following.last_epoch == 3
        with pytest.raises(LogError, match="without a flush"):
            following.position(config())
