"""JoinGroup and SyncGroup as clients of every version speak them."""

from __future__ import annotations

import asyncio

import pytest

from odradek.apis import join_group as joining
from odradek.apis import sync_group as syncing
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import join_group, sync_group
from tests.apis.group_clients import Client, versions
from tests.groups.brokers import House, at_work, run, turns
from tests.groups.classics import DELAY_MS, SESSION_MS, subscription

PROTOCOLS = [join_group.RequestProtocol(name="range", metadata=subscription("orders"))]


def request(version: int, member_id: str = "", instance_id: str | None = None) -> join_group.Request:
    return join_group.Request(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000 if version >= 1 else -1,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=PROTOCOLS,
        reason="a test" if version >= 8 else None,
    )


async def join(house: House, version: int, member_id: str = "", instance_id: str | None = None) -> join_group.Response:
    asked = Client(house).ask(joining.API, version, request(version, member_id, instance_id), join_group.Response)
    waiting = asyncio.create_task(asked)
    await turns()
    house.advance(DELAY_MS)
    return await waiting


async def sync(house: House, version: int, joined: join_group.Response, **changes: object) -> sync_group.Response:
    asked = sync_group.Request(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[sync_group.RequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    for name, value in changes.items():
        setattr(asked, name, value)
    return await Client(house).ask(syncing.API, version, asked, sync_group.Response)


@pytest.mark.parametrize("version", versions(joining.API))
def test_a_client_of_any_version_joins_and_leads(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            joined = await join(house, version)
            if version >= 4:
                assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
                joined = await join(house, version, joined.member_id)
            assert joined.error_code == ErrorCode.NONE
            assert joined.generation_id == 1
            assert joined.leader == joined.member_id
            assert joined.member_id.startswith("client-")
            assert joined.protocol_name == "range"
            assert joined.protocol_type == ("consumer" if version >= 7 else None)
            (member,) = joined.members
            assert bytes(member.metadata) == subscription("orders"), "kept although the buffer was used again"

    run(scene())


@pytest.mark.parametrize("version", versions(syncing.API))
def test_a_client_of_any_version_syncs(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            joined = await join(house, 3)
            synced = await sync(house, version, joined)
            assert synced.error_code == ErrorCode.NONE
            assert bytes(synced.assignment) == b"all"
            assert synced.protocol_name == ("range" if version >= 5 else None)

    run(scene())


@pytest.mark.parametrize("version", versions(joining.API))
def test_a_refused_join_can_be_told_in_any_version(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            joined = await join(house, version, "stranger")
            assert joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert joined.member_id == "stranger"
            assert joined.generation_id == -1
            assert joined.protocol_name == (None if version >= 7 else "")

    run(scene())


def test_a_client_without_a_rebalance_timeout_has_its_session_timeout_for_both() -> None:
    async def scene() -> None:
        async with at_work() as house:
            joined = await join(house, 0)
            group = house.groups.groups["g"]
            assert group.members.by_id[joined.member_id].rebalance_timeout_ms == SESSION_MS  # type: ignore[attr-defined]
            assert group.members.by_id[joined.member_id].client_host == "/10.0.0.1"  # type: ignore[attr-defined]

    run(scene())


def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment_in_version_9() -> None:
    async def scene() -> None:
        async with at_work() as house:
            first = await join(house, 9, instance_id="one")
            assert first.member_id.startswith("one-")
            await sync(house, 5, first, group_instance_id="one")
            again = await join(house, 9, instance_id="one")
            assert (again.error_code, again.skip_assignment) == (ErrorCode.NONE, True)
            assert again.members[0].group_instance_id == "one"
            fenced = await sync(house, 5, first, group_instance_id="one")
            assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
            old = await join(house, 8, instance_id="one")
            assert (old.skip_assignment, old.leader) == (False, again.member_id)

    run(scene())


def test_from_version_5_a_sync_says_which_protocol_it_believes_in() -> None:
    async def scene() -> None:
        async with at_work() as house:
            joined = await join(house, 3)
            for changes in ({"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "sticky"}):
                refused = await sync(house, 5, joined, **changes)
                assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run(scene())


def test_the_log_tells_of_a_groups_way_and_of_the_reasons_that_clients_give(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with at_work() as house:
            joined = await join(house, 9, (await join(house, 9)).member_id)
            await sync(house, 5, joined)

    with caplog.at_level("INFO", "odradek"):
        run(scene())
    lines = [record.getMessage() for record in caplog.records]
    assert "client 'client' joins group 'g': 'a test'" in lines
    assert [line for line in lines if line.startswith("group 'g' is")] == [
        "group 'g' is PreparingRebalance in generation 0 with 1 members",
        "group 'g' is CompletingRebalance in generation 1 with 1 members",
        "group 'g' is Stable in generation 1 with 1 members",
    ]


def test_errors_of_the_coordinator_itself_are_told() -> None:
    async def scene() -> None:
        house = House()
        nowhere = join_group.Response(member_id="m", generation_id=1)
        assert (await join(house, 9)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await sync(house, 5, nowhere)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(scene())
