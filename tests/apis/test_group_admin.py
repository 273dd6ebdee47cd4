"""What administrators ask of groups: ListGroups, DescribeGroups, DeleteGroups, OffsetDelete, FindCoordinator."""

from __future__ import annotations

import pytest

from odradek.apis import delete_groups as deleting
from odradek.apis import describe_groups as describing
from odradek.apis import find_coordinator as finding
from odradek.apis import list_groups as listing
from odradek.apis import offset_delete as forgetting
from odradek.apis.authorized import GROUP_OPERATIONS
from odradek.groups.consumer_types import Heartbeat
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import delete_groups, describe_groups, find_coordinator, list_groups, offset_delete
from tests.apis.group_clients import Client, versions
from tests.groups.brokers import House, at_work, run
from tests.groups.classics import subscription

BEAT = Heartbeat(member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset())


async def groups_of_all_sorts(house: House) -> list[str]:
    """A stable classic group `classic`, a `consumer` one, and `simple`, which has offsets only."""
    members = await house.stable("classic", size=2)
    await house.groups.live("consumer", BEAT)
    await house.commit("simple", orders=1)
    return members


@pytest.mark.parametrize("version", versions(listing.API))
def test_all_groups_are_listed_in_any_version(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await groups_of_all_sorts(house)
            answer = await Client(house).ask(listing.API, version, list_groups.Request(), list_groups.Response)
            assert [(group.group_id, group.protocol_type) for group in answer.groups] == [
                ("classic", "consumer"),
                ("consumer", "consumer"),
                ("simple", ""),
            ]
            if version >= 5:
                assert [(group.group_state, group.group_type) for group in answer.groups] == [
                    ("Stable", "classic"),
                    ("Stable", "consumer"),
                    ("Empty", "classic"),
                ]

    run(scene())


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["stable"], [], ["classic", "consumer"]),
        (["EMPTY", "Dead"], [], ["simple"]),
        ([], ["Consumer"], ["consumer"]),
        (["Stable"], ["classic"], ["classic"]),
        (["PreparingRebalance"], [], []),
        ([], ["share"], []),
    ],
)
def test_groups_are_filtered_by_state_and_type(states: list[str], types: list[str], found: list[str]) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await groups_of_all_sorts(house)
            asked = list_groups.Request(states_filter=states, types_filter=types)
            answer = await Client(house).ask(listing.API, 5, asked, list_groups.Response)
            assert [group.group_id for group in answer.groups] == found

    run(scene())


@pytest.mark.parametrize("version", versions(describing.API))
def test_a_stable_group_is_described_with_what_its_members_have(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            members = await groups_of_all_sorts(house)
            asked = describe_groups.Request(groups=["classic", "simple"], include_authorized_operations=version >= 3)
            answer = await Client(house).ask(describing.API, version, asked, describe_groups.Response)
            group, simple = answer.groups
            assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
            assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
            assert [member.member_id for member in group.members] == members
            assert bytes(group.members[0].member_metadata) == subscription("orders")
            assert bytes(group.members[0].member_assignment) == members[0].encode()
            assert group.authorized_operations == (GROUP_OPERATIONS if version >= 3 else -(2**31))
            assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])

    run(scene())


def test_of_a_group_that_rebalances_only_its_members_are_told() -> None:
    async def scene() -> None:
        async with at_work() as house:
            members = await groups_of_all_sorts(house)
            house.join("classic", members[0])
            asked = describe_groups.Request(groups=["classic"])
            (group,) = (await Client(house).ask(describing.API, 5, asked, describe_groups.Response)).groups
            assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
            assert [bytes(member.member_metadata) for member in group.members] == [b"", b""]
            assert group.authorized_operations == -(2**31)

    run(scene())


@pytest.mark.parametrize("version", versions(describing.API))
def test_a_group_that_is_unknown_or_of_the_other_kind_is_dead_to_old_clients(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await groups_of_all_sorts(house)
            asked = describe_groups.Request(groups=["unknown", "consumer"])
            answer = await Client(house).ask(describing.API, version, asked, describe_groups.Response)
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
            assert [(group.group_state, group.error_code) for group in answer.groups] == [("Dead", code)] * 2
            assert (answer.groups[0].error_message is not None) == (version >= 6)

    run(scene())


@pytest.mark.parametrize("version", versions(deleting.API))
def test_groups_are_deleted_or_each_says_why_not(version: int) -> None:
    async def scene() -> None:
        async with at_work() as house:
            await groups_of_all_sorts(house)
            asked = delete_groups.Request(groups_names=["classic", "consumer", "simple", "unknown"])
            answer = await Client(house).ask(deleting.API, version, asked, delete_groups.Response)
            assert [(result.group_id, result.error_code) for result in answer.results] == [
                ("classic", ErrorCode.NON_EMPTY_GROUP),
                ("consumer", ErrorCode.NON_EMPTY_GROUP),
                ("simple", ErrorCode.NONE),
                ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
            ]
            assert "simple" not in house.groups.groups

    run(scene())


def test_offsets_are_forgotten_partition_by_partition() -> None:
    async def scene() -> None:
        async with at_work() as house:
            (member_id,) = await house.stable()
            await house.commit("g", member_id, 1, orders=1, other=2)
            topics = [
                offset_delete.RequestTopic(name=name, partitions=[offset_delete.RequestPartition(partition_index=0)])
                for name in ("orders", "other", "gone")
            ]
            asked = offset_delete.Request(group_id="g", topics=topics)
            answer = await Client(house).ask(forgetting.API, 0, asked, offset_delete.Response)
            assert answer.error_code == ErrorCode.NONE
            assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
                "orders": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                "other": ErrorCode.NONE,
                "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert (house.committed("orders"), house.committed("other")) == (1, None)
            unknown = offset_delete.Request(group_id="unknown", topics=topics[:1])
            refused = await Client(house).ask(forgetting.API, 0, unknown, offset_delete.Response)
            assert (refused.error_code, refused.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    run(scene())


@pytest.mark.parametrize("version", versions(finding.API))
@pytest.mark.parametrize("key_type", [0, 1, 2])
def test_this_broker_coordinates_groups_but_neither_transactions_nor_share_groups(version: int, key_type: int) -> None:
    async def scene() -> None:
        if version < 4:
            asked = find_coordinator.Request(key="g", key_type=key_type if version >= 1 else 0)
        else:
            asked = find_coordinator.Request(coordinator_keys=["g", "h"], key_type=key_type)
        answer = await Client(House()).ask(finding.API, version, asked, find_coordinator.Response)
        is_known = key_type == 0 or version == 0
        code = {1: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}.get(key_type, ErrorCode.INVALID_REQUEST)
        expected = (7, "broker.example", 9092, ErrorCode.NONE) if is_known else (-1, "", -1, code)
        if version < 4:
            assert (answer.node_id, answer.host, answer.port, answer.error_code) == expected
        else:
            assert [each.key for each in answer.coordinators] == ["g", "h"]
            for each in answer.coordinators:
                assert (each.node_id, each.host, each.port, each.error_code) == expected

    run(scene())


def test_errors_of_the_coordinator_itself_are_told() -> None:
    async def scene() -> None:
        client = Client(House())
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await client.ask(listing.API, 5, list_groups.Request(), list_groups.Response)).error_code == code
        described = describe_groups.Request(groups=["g"])
        assert (await client.ask(describing.API, 6, described, describe_groups.Response)).groups[0].error_code == code
        deleted = delete_groups.Request(groups_names=["g"])
        assert (await client.ask(deleting.API, 2, deleted, delete_groups.Response)).results[0].error_code == code
        partitions = [offset_delete.RequestPartition(partition_index=0)]
        topics = [offset_delete.RequestTopic(name="orders", partitions=partitions)]
        forgotten = offset_delete.Request(group_id="g", topics=topics)
        assert (await client.ask(forgetting.API, 0, forgotten, offset_delete.Response)).error_code == code

    run(scene())
