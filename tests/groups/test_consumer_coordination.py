"""Members of the consumer protocol at a coordinator: stored before answered, loaded again, apart from classic ones."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.assignors import Partitions
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_types import Heartbeat, HeartbeatAnswer
from odradek.groups.group import Group
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.brokers import House, at_work, run
from tests.groups.consumers import SESSION_MS


def refused(code: ErrorCode) -> pytest.RaisesExc[PeerError]:
    return pytest.RaisesExc(PeerError, check=lambda error: error.code is code)


def joining(member_id: str = "a", **changes: Any) -> Heartbeat:
    said: dict[str, Any] = {"topic_names": ("orders",), "rebalance_timeout_ms": 5_000, "owned": frozenset()}
    return Heartbeat(member_id=member_id, member_epoch=0, **{**said, **changes})


async def join(house: House, member_id: str = "a") -> HeartbeatAnswer:
    return await house.groups.live("g", joining(member_id))


def living(epoch: int, member_id: str = "a", owned: Partitions | None = None) -> Heartbeat:
    return Heartbeat(member_id=member_id, member_epoch=epoch, owned=owned)


def group(house: House) -> Group:
    return house.groups.groups["g"]


def test_an_answer_comes_when_its_records_are_durable() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            house.journal.is_held = True
            answer = house.groups.live("g", joining())
            second = house.groups.live("g", living(1))
            assert not answer.done()
            house.journal.release()
            assert (await answer).assignment == house.topics.partitions("orders")
            assert (await second).error is ErrorCode.NONE

    run(scenario())


def test_a_member_whose_records_were_lost_is_told_to_try_again_and_can() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            house.journal.error = PeerError(ErrorCode.KAFKA_STORAGE_ERROR)
            assert (await join(house)).error is ErrorCode.NOT_COORDINATOR
            house.journal.error = None
            assert (await join(house)).error is ErrorCode.NONE
            house.topics.set("orders", 5)
            await house.groups.live("g", living(1))
            again = house.restarted()
            again.groups.load()
            loaded = group(again)
            before = group(house)
            assert isinstance(loaded, ConsumerGroup)
            assert isinstance(before, ConsumerGroup)
            assert loaded.image == before.image

    run(scenario())


def test_a_restart_keeps_the_group_and_its_epochs() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await join(house)
            await house.commit("g", "a", 1, orders=7)
        house.journal.compact()
        async with at_work(house.restarted()) as again:
            assert again.committed("orders") == 7
            answer = await again.groups.live("g", living(1))
            assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, None)
            again.advance(SESSION_MS)
            assert group(again).is_empty

    run(scenario())


def test_commits_are_bound_to_the_member_and_its_epoch() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await join(house)
            assert await house.commit("g", "a", 1, orders=1) is ErrorCode.NONE
            with refused(ErrorCode.STALE_MEMBER_EPOCH):
                await house.commit("g", "a", 2, orders=2)
            with refused(ErrorCode.UNKNOWN_MEMBER_ID):
                await house.commit("g", "b", 1, orders=2)
            with refused(ErrorCode.UNKNOWN_MEMBER_ID):
                await house.commit("g", orders=2)
            assert house.committed("orders") == 1

    run(scenario())


def test_a_silent_member_is_removed_by_the_clock_and_that_is_stored() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await join(house, "a")
            await join(house, "b")
            house.advance(SESSION_MS - 1)
            await house.groups.live("g", living(1))
            house.advance(1)
            again = house.restarted()
            again.groups.load()
            loaded = group(again)
            assert isinstance(loaded, ConsumerGroup)
            assert loaded.image.members.keys() == {"a"}
            with refused(ErrorCode.UNKNOWN_MEMBER_ID):
                await house.groups.live("g", living(2, "b"))

    run(scenario())


def test_a_member_of_a_group_that_is_gone_is_told_to_join_again() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            with refused(ErrorCode.UNKNOWN_MEMBER_ID):
                await house.groups.live("g", living(4))
            with refused(ErrorCode.INVALID_GROUP_ID):
                await house.groups.live("", joining())
            assert "g" not in house.groups.groups

    run(scenario())


def test_a_refused_join_makes_no_group() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            with refused(ErrorCode.INVALID_REGULAR_EXPRESSION):
                await house.groups.live("g", joining(topic_regex="("))
            assert "g" not in house.groups.groups
            assert house.journal.of("g") == []

    run(scenario())


def test_members_of_one_protocol_keep_those_of_the_other_out() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await house.stable("classic")
            with refused(ErrorCode.GROUP_ID_NOT_FOUND):
                await house.groups.live("classic", joining())
            await join(house)
            with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
                await house.join("g")

    run(scenario())


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await house.commit("g", orders=5)
            assert group(house).kind == "classic"
            await join(house)
            assert group(house).kind == "consumer"
            await house.groups.live("g", living(-1))
            await house.stable("g")
            assert group(house).kind == "classic"
            assert house.committed("orders") == 5
        async with at_work(house.restarted()) as again:
            assert group(again).kind == "classic"
            assert again.committed("orders") == 5

    run(scenario())


def test_an_empty_group_is_deleted_for_good() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await join(house)
            with refused(ErrorCode.NON_EMPTY_GROUP):
                await house.groups.delete_group("g")
            await house.commit("g", "a", 1, orders=5)
            await house.groups.live("g", living(-1))
            assert await house.groups.delete_group("g") is ErrorCode.NONE
        house.journal.compact()
        assert house.journal.of("g") == []

    run(scenario())


def test_who_waits_when_the_broker_closes_is_answered() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            house.journal.is_held = True
            answer = house.groups.live("g", joining())
        assert answer.done()

    run(scenario())
