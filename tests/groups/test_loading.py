"""A coordinator that starts again on what was durable: members carry on, and bad records are not fatal."""

from __future__ import annotations

import logging
import struct

import pytest

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import Leaving, State
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_types import Heartbeat
from odradek.records.record import Record
from odradek.wire.errors import ErrorCode
from tests.groups.brokers import House, at_work, run
from tests.groups.classics import SESSION_MS

BEAT = Heartbeat(member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset())


@pytest.mark.parametrize("compacted", [False, True])
def test_members_carry_on_after_a_restart_with_their_ids_and_generation(compacted: bool) -> None:
    async def scene() -> None:
        async with at_work() as house:
            leader, follower = await house.stable(size=2)
            await house.commit("g", leader, 1, orders=41)
            await house.commit("g", leader, 1, orders=42)
        if compacted:
            house.journal.compact()
        async with at_work(house.restarted()) as again:
            for member_id in (leader, follower):
                assert again.groups.heartbeat("g", member_id, None, 1) is ErrorCode.NONE
            assert (await again.sync(follower, 1)).assignment == follower.encode()
            assert again.committed("orders") == 42
            assert await again.commit("g", follower, 1, orders=43) is ErrorCode.NONE
            group = again.groups.groups["g"]
            assert isinstance(group, ClassicGroup)
            assert group.members.leader == leader

    run(scene())


def test_members_that_do_not_come_back_after_a_restart_expire() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.stable(size=2)
        async with at_work(house.restarted()) as again:
            again.advance(SESSION_MS - 1)
            assert again.groups.groups["g"].state == State.STABLE
            again.advance(1)
            assert again.groups.groups["g"].state == State.EMPTY

    run(scene())


def test_what_was_not_durable_is_not_there_after_a_restart() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            await house.commit("g", member_id, 1, orders=1)
            house.journal.is_held = True
            house.commit("g", member_id, 1, orders=2)
            house.join("g", member_id)
            house.sync(member_id, 2, {})
            again = house.restarted()
        async with at_work(again):
            assert again.committed("orders") == 1
            assert again.groups.heartbeat("g", member_id, None, 2) is ErrorCode.ILLEGAL_GENERATION
            assert again.groups.heartbeat("g", member_id, None, 1) is ErrorCode.NONE

    run(scene())


def test_deleted_groups_and_offsets_stay_deleted() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable("gone")
            await house.commit("gone", member_id, 1, orders=1)
            await house.groups.leave("gone", [Leaving(member_id, None)])
            await house.groups.delete_group("gone")
            await house.commit("simple", orders=1, other=2)
            house.groups.offsets.forget_topic("orders")
        async with at_work(house.restarted()) as again:
            assert list(again.groups.groups) == ["simple"]
            assert (again.committed("orders", "simple"), again.committed("other", "simple")) == (None, 2)
            assert "gone" not in again.groups.offsets

    run(scene())


def test_an_empty_group_is_loaded_as_empty_since_it_was() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            await house.groups.leave("g", [Leaving(member_id, None)])
            emptied_ms = house.clock.now_ms()
            house.advance(5_000)
        async with at_work(house.restarted()) as again:
            group = again.groups.groups["g"]
            assert group.is_empty
            assert group.expires_from(0) == emptied_ms

    run(scene())


def test_groups_of_the_consumer_protocol_are_loaded_too() -> None:
    async def scene() -> None:
        async with at_work() as house:
            told = await house.groups.live("g", BEAT)
            await house.commit("g", "m", told.member_epoch, orders=3)
        async with at_work(house.restarted()) as again:
            group = again.groups.groups["g"]
            assert isinstance(group, ConsumerGroup)
            assert list(group.image.members) == ["m"]
            assert await again.commit("g", "m", told.member_epoch, orders=4) is ErrorCode.NONE
            again.advance(again.groups.config.group_consumer_session_timeout_ms)
            assert group.is_empty

    run(scene())


@pytest.mark.parametrize("compacted", [False, True])
def test_a_group_that_changed_its_kind_is_loaded_as_the_kind_that_it_became(compacted: bool) -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            await house.groups.leave("g", [Leaving(member_id, None)])
            await house.groups.live("g", BEAT)
        consumer = house.restarted()
        if compacted:
            consumer.journal.compact()
        async with at_work(consumer):
            assert consumer.groups.groups["g"].kind == "consumer"
            left = Heartbeat(member_id="m", member_epoch=-1)
            await consumer.groups.live("g", left)
            await consumer.stable()
        back = consumer.restarted()
        if compacted:
            back.journal.compact()
        async with at_work(back):
            assert back.groups.groups["g"].kind == "classic"
            assert back.groups.groups["g"].state == State.STABLE

    run(scene())


def test_of_a_group_that_is_stored_as_both_kinds_the_consumer_protocol_wins() -> None:
    async def scene() -> None:
        async with at_work() as classic, at_work() as consumer:
            await classic.stable()
            await consumer.groups.live("g", BEAT)
            consumer.journal.of("g").extend(classic.journal.of("g"))
        async with at_work(consumer.restarted()) as again:
            assert again.groups.groups["g"].kind == "consumer"

    run(scene())


def test_a_record_that_cannot_be_read_is_passed_over_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        house = House()
        bad = [None, b"", b"\x00", struct.pack(">h", 1) + b"\xff\xff", struct.pack(">h", 5) + b"\x00\x01g\x00\x01m"]
        for partition, log in enumerate(house.journal.logs):
            log += [Record(number, 0, key, b"\x00\x63nonsense") for number, key in enumerate(bad)]
            log.append(Record(9, 0, struct.pack(">h", 77) + b"from the future", b"?"))
            assert partition < 3
        async with at_work(house):
            assert house.groups.groups == {}
            await house.commit("fine", orders=1)
        async with at_work(house.restarted()) as again:
            assert again.committed("orders", "fine") == 1

    with caplog.at_level(logging.WARNING):
        run(scene())
    assert len([record for record in caplog.records if "passed over record" in record.getMessage()]) == 2 * 3 * 5
