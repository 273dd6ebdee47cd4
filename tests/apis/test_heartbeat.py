"""Heartbeat and LeaveGroup as clients of every version speak them."""

from __future__ import annotations

import pytest

from odradek.apis import heartbeat as beating
from odradek.apis import leave_group as leaving
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import heartbeat, leave_group
from tests.apis.group_clients import Client, versions
from tests.groups.brokers import House, at_work, run


async def beat(house: House, version: int, member_id: str, generation: int = 1, group_id: str = "g") -> int:
    asked = heartbeat.Request(group_id=group_id, generation_id=generation, member_id=member_id)
    return (await Client(house).ask(beating.API, version, asked, heartbeat.Response)).error_code


@pytest.mark.parametrize("version", versions(beating.API))
def test_a_heartbeat_of_any_version_keeps_a_member_or_says_what_is_wrong(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            leader, follower = await house.stable(size=2)
            assert await beat(house, version, leader) == ErrorCode.NONE
            assert await beat(house, version, leader, 2) == ErrorCode.ILLEGAL_GENERATION
            assert await beat(house, version, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await beat(house, version, leader, group_id="h") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await beat(house, version, leader, group_id="") == ErrorCode.INVALID_GROUP_ID
            house.join("g", leader)
            assert await beat(house, version, follower) == ErrorCode.REBALANCE_IN_PROGRESS

    run(scene())


@pytest.mark.parametrize("version", versions(leaving.API))
def test_a_member_of_any_version_leaves(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            members = await house.stable(size=3)
            client = Client(house)
            if version < 3:
                asked = leave_group.Request(group_id="g", member_id=members[0])
            else:
                gone = [leave_group.RequestMember(member_id=each) for each in [*members[:2], "stranger"]]
                asked = leave_group.Request(group_id="g", members=gone)
            answer = await client.ask(leaving.API, version, asked, leave_group.Response)
            assert answer.error_code == ErrorCode.NONE
            if version >= 3:
                assert [(each.member_id, each.error_code) for each in answer.members] == [
                    (members[0], ErrorCode.NONE),
                    (members[1], ErrorCode.NONE),
                    ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
                ]
            else:
                again = await client.ask(leaving.API, version, asked, leave_group.Response)
                assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(scene())


def test_leaving_a_group_that_is_not_there_fails_for_each_member() -> None:
    async def scene() -> None:
        async with at_work() as house:
            client = Client(house)
            members = [leave_group.RequestMember(member_id="", group_instance_id="i")]
            asked = leave_group.Request(group_id="h", members=members)
            answer = await client.ask(leaving.API, 5, asked, leave_group.Response)
            assert (answer.error_code, answer.members[0].error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
            assert answer.members[0].group_instance_id == "i"
            old = leave_group.Request(group_id="h", member_id="m")
            assert (
                await client.ask(leaving.API, 2, old, leave_group.Response)
            ).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            nameless = leave_group.Request(group_id="", members=members)
            refused = await client.ask(leaving.API, 5, nameless, leave_group.Response)
            assert (refused.error_code, refused.members) == (ErrorCode.INVALID_GROUP_ID, [])

    run(scene())
