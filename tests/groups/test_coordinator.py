"""The coordinator with a journal in memory: answers after records, timers, closing, both kinds of groups."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import Leaving, State
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_types import Heartbeat
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.brokers import House, at_work, run, turns
from tests.groups.classics import DELAY_MS, SESSION_MS, join_request

BEAT = Heartbeat(
    member_id="new", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset()
)


def classic(house: House, group_id: str = "g") -> ClassicGroup:
    group = house.groups.groups[group_id]
    assert isinstance(group, ClassicGroup)
    return group


def test_an_assignment_is_durable_before_anybody_has_it() -> None:
    async def scene() -> None:
        async with at_work() as house:
            leader, first = await house.enter()
            follower, _ = await house.enter()
            house.advance(DELAY_MS)
            house.advance(DELAY_MS)
            assert (await first).generation == 1
            house.journal.is_held = True
            waiting = [house.sync(follower, 1), house.sync(leader, 1, {follower: b"mine"})]
            await turns()
            assert not any(answer.done() for answer in waiting)
            house.journal.release()
            assert (await waiting[0]).assignment == b"mine"
            assert len(house.journal.of("g")) == 1

    run(scene())


def test_a_rebalance_that_begins_during_the_flush_goes_before_the_assignment() -> None:
    async def scene() -> None:
        async with at_work() as house:
            leader, _ = await house.enter()
            house.advance(DELAY_MS)
            house.journal.is_held = True
            sync = house.sync(leader, 1, {})
            await house.enter()
            assert (await sync).error is ErrorCode.REBALANCE_IN_PROGRESS
            house.journal.release()
            rejoined = await house.join("g", leader)
            assert rejoined.generation == 2
            assert classic(house).state is State.COMPLETING

    run(scene())


def test_a_failed_write_is_told_in_words_that_a_member_understands() -> None:
    async def scene() -> None:
        async with at_work() as house:
            leader, _ = await house.enter()
            house.advance(DELAY_MS)
            house.journal.error = PeerError(ErrorCode.KAFKA_STORAGE_ERROR)
            assert (await house.sync(leader, 1, {})).error is ErrorCode.NOT_COORDINATOR
            house.journal.error = None

    run(scene())


def test_a_request_that_is_given_up_does_no_harm() -> None:
    async def scene() -> None:
        async with at_work() as house:
            leader, join = await house.enter()
            join.cancel()
            house.advance(DELAY_MS)
            house.journal.is_held = True
            house.sync(leader, 1, {leader: b"x"}).cancel()
            house.commit("simple", orders=5).cancel()
            house.journal.release()
            assert (await house.sync(leader, 1)).assignment == b"x"
            assert house.committed("orders", "simple") == 5

    run(scene())


def test_silent_members_are_removed_by_the_coordinators_own_timer() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.stable(size=2)
            house.advance(SESSION_MS - 1)
            assert classic(house).state is State.STABLE
            house.advance(1)
            assert classic(house).state is State.EMPTY

    run(scene())


def test_leaving_is_answered_when_the_empty_group_is_stored() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            house.journal.is_held = True
            leaving = asyncio.create_task(house.groups.leave("g", [Leaving(member_id, None)]))
            await turns()
            assert not leaving.done()
            house.journal.release()
            assert [left.error for left in await leaving] == [ErrorCode.NONE]

    run(scene())


def test_leaving_that_leaves_others_behind_is_answered_at_once() -> None:
    async def scene() -> None:
        async with at_work() as house:
            members = await house.stable(size=2)
            house.journal.is_held = True
            await house.groups.leave("g", [Leaving(members[0], None)])
            assert house.groups.heartbeat("g", members[1], None, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    run(scene())


def test_strangers_and_impossible_names_are_refused() -> None:
    async def scene() -> None:
        async with at_work() as house:
            for group_id, code in [
                ("", ErrorCode.INVALID_GROUP_ID),
                ("x" * 10_000, ErrorCode.INVALID_GROUP_ID),
                ("unknown", ErrorCode.UNKNOWN_MEMBER_ID),
            ]:
                for ask in (
                    lambda group_id=group_id: house.join(group_id, "m"),
                    lambda group_id=group_id: house.sync("m", 1, group_id=group_id),
                    lambda group_id=group_id: house.groups.heartbeat(group_id, "m", None, 1),
                ):
                    with pytest.raises(PeerError) as refused:
                        ask()
                    assert refused.value.code is code

    run(scene())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"instance_id": "x" * 10_000}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": "x" * 10_000}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_join_that_no_group_could_take_is_refused(changes: dict[str, object], code: ErrorCode) -> None:
    async def scene() -> None:
        async with at_work() as house:
            with pytest.raises(PeerError) as refused:
                house.groups.join("g", replace(join_request(), **changes))  # type: ignore[arg-type]
            assert refused.value.code is code
            assert house.groups.groups == {}

    run(scene())


def test_member_ids_begin_with_the_name_of_the_client_or_the_instance() -> None:
    house = House()
    assert house.groups.fresh_member_id("client", None) == "client-1"
    assert house.groups.fresh_member_id("client", "instance") == "instance-2"
    assert len(house.groups.fresh_member_id("x" * 32_767, None)) < 300


def test_nothing_is_served_before_loading_and_after_closing() -> None:
    async def scene() -> None:
        house = House()
        with pytest.raises(PeerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            house.join()
        async with at_work(house):
            pass
        with pytest.raises(PeerError, match="COORDINATOR_NOT_AVAILABLE"):
            house.join()

    run(scene())


def test_closing_answers_everybody_who_waits() -> None:
    async def scene() -> None:
        house = House()
        async with at_work(house):
            leader, _ = await house.enter("a")
            follower, _ = await house.enter("a")
            house.advance(DELAY_MS)
            house.advance(DELAY_MS)
            sync = house.sync(follower, 1, group_id="a")
            _, join = await house.enter("b")
            assert classic(house, "a").members.leader == leader
        assert (await join).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await sync).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scene())


def test_a_group_that_was_only_asked_for_an_id_is_forgotten() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.join()
            assert "g" in house.groups.groups
            house.advance(SESSION_MS)
            assert house.groups.groups == {}
            assert (await house.join("h", protocol_type="")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert house.groups.groups == {}
            assert house.journal.of("g") == []

    run(scene())


def test_an_empty_group_is_deleted_with_its_offsets_and_a_new_one_knows_nothing_of_it() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            await house.commit("g", member_id, 1, orders=5)
            with pytest.raises(PeerError, match="NON_EMPTY_GROUP"):
                house.groups.delete_group("g")
            await house.groups.leave("g", [Leaving(member_id, None)])
            assert await house.groups.delete_group("g") is ErrorCode.NONE
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):
                house.groups.delete_group("g")
            house.journal.compact()
            assert house.journal.of("g") == []
            assert house.committed("orders") is None

    run(scene())


def test_a_commit_under_way_does_not_survive_the_deletion_of_its_group() -> None:
    async def scene() -> None:
        async with at_work() as house:
            house.journal.is_held = True
            commit = house.commit(orders=5)
            deleted = house.groups.delete_group("g")
            again = house.commit(other=6)
            house.journal.release()
            assert [await each for each in (commit, deleted, again)] == [ErrorCode.NONE] * 3
            assert house.committed("orders") is None
            assert house.committed("other") == 6
            house.journal.compact()
            assert len(house.journal.of("g")) == 1

    run(scene())


def test_an_empty_group_changes_its_kind_and_keeps_its_offsets() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            await house.commit("g", member_id, 1, orders=5)
            with pytest.raises(PeerError, match="GROUP_ID_NOT_FOUND"):
                house.groups.live("g", BEAT)
            await house.groups.leave("g", [Leaving(member_id, None)])
            assert (await house.groups.live("g", BEAT)).error is ErrorCode.NONE
            assert isinstance(house.groups.groups["g"], ConsumerGroup)
            assert house.committed("orders") == 5
            with pytest.raises(PeerError, match="INCONSISTENT_GROUP_PROTOCOL"):
                house.join()
            with pytest.raises(PeerError, match="UNKNOWN_MEMBER_ID"):
                house.groups.heartbeat("g", "new", None, 1)
            assert (await house.groups.live("g", replace(BEAT, member_epoch=-1))).error is ErrorCode.NONE
            with pytest.raises(PeerError, match="UNKNOWN_MEMBER_ID"):
                house.join("g", "an id from before")
            assert (await house.join()).error is ErrorCode.MEMBER_ID_REQUIRED
            assert classic(house).generation == 0
            assert house.committed("orders") == 5

    run(scene())


def test_a_heartbeat_that_is_refused_creates_no_group() -> None:
    async def scene() -> None:
        async with at_work() as house:
            for refused in (replace(BEAT, member_epoch=3), replace(BEAT, rebalance_timeout_ms=-1)):
                with pytest.raises(PeerError):
                    house.groups.live("g", refused)
            assert house.groups.groups == {}

    run(scene())


def test_members_of_the_consumer_protocol_expire_by_the_same_timer() -> None:
    async def scene() -> None:
        async with at_work() as house:
            await house.groups.live("g", BEAT)
            house.advance(house.groups.config.group_consumer_session_timeout_ms)
            assert house.groups.groups["g"].is_empty

    run(scene())
