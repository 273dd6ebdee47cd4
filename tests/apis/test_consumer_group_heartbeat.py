"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as clients send them, in both versions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from odradek.apis import consumer_group_describe, consumer_group_heartbeat
from odradek.apis.context import Context
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import consumer_group_describe as describe
from odradek.wire.messages import consumer_group_heartbeat as heartbeat
from tests.groups.brokers import House, at_work, run

VERSIONS = pytest.mark.parametrize("version", [0, 1])


def context(house: House, version: int) -> Context:
    """As much of a request's surroundings as these two look at."""
    seen = SimpleNamespace(groups=house.groups, version=version, client_id="client-7", client_host="10.0.0.1")
    return cast(Context, seen)


async def beat(house: House, version: int, **said: object) -> heartbeat.Response:
    """Send a heartbeat over the wire, so to speak."""
    request = heartbeat.Request(group_id="g", **said)  # type: ignore[arg-type]
    request = heartbeat.Request.decode(request.encode(version), version)
    response = await consumer_group_heartbeat.handle(context(house, version), request)
    return heartbeat.Response.decode(response.encode(version), version)


async def join(house: House, version: int, **said: object) -> heartbeat.Response:
    first: dict[str, object] = {
        "member_id": "a" if version else "",
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    return await beat(house, version, **{**first, "member_epoch": 0, **said})


def describe_group(
    house: House, version: int, group_id: str = "g", *, operations: bool = False
) -> describe.ResponseGroup:
    request = describe.Request(group_ids=[group_id], include_authorized_operations=operations)
    response = consumer_group_describe.handle(context(house, version), request)
    (group,) = describe.Response.decode(response.encode(version), version).groups
    return group


@VERSIONS
def test_a_member_joins_lives_and_leaves(version: int) -> None:
    async def scenario() -> None:
        async with at_work() as house:
            joined = await join(house, version)
            assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 5_000)
            assert joined.member_id == ("a" if version else "client-7-1")
            assert joined.assignment is not None
            (topic,) = joined.assignment.topic_partitions
            assert (topic.topic_id, topic.partitions) == (house.topics.topic_id("orders"), [0, 1, 2, 3])
            owned = [heartbeat.RequestTopic(topic_id=topic.topic_id, partitions=topic.partitions)]
            lives = await beat(house, version, member_id=joined.member_id, member_epoch=1, topic_partitions=owned)
            assert (lives.error_code, lives.member_epoch, lives.assignment) == (0, 1, None)
            left = await beat(house, version, member_id=joined.member_id, member_epoch=-1)
            assert (left.error_code, left.member_epoch) == (0, -1)
            assert describe_group(house, version).group_state == "Empty"

    run(scenario())


def test_since_version_1_a_client_must_bring_its_member_id() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            answer = await join(house, 1, member_id="")
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert answer.error_message
            assert answer.member_id is None

    run(scenario())


def test_a_pattern_can_be_subscribed_to_since_version_1() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            joined = await join(house, 1, subscribed_topic_names=None, subscribed_topic_regex="oth.*")
            assert joined.assignment is not None
            assert [topic.partitions for topic in joined.assignment.topic_partitions] == [[0]]
            assert describe_group(house, 1).members[0].subscribed_topic_regex == "oth.*"

    run(scenario())


@VERSIONS
def test_a_refusal_carries_its_reason(version: int) -> None:
    async def scenario() -> None:
        async with at_work() as house:
            answer = await join(house, version, server_assignor="nobody's")
            assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
            assert "uniform" in (answer.error_message or "")
            stranger = await beat(house, version, member_id="b", member_epoch=3)
            assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario())


@VERSIONS
def test_records_that_were_lost_are_an_error(version: int) -> None:
    async def scenario() -> None:
        async with at_work() as house:
            house.journal.error = PeerError(ErrorCode.KAFKA_STORAGE_ERROR)
            answer = await join(house, version)
            assert answer.error_code == ErrorCode.NOT_COORDINATOR
            assert answer.assignment is None

    run(scenario())


@VERSIONS
def test_a_group_is_described_with_what_its_members_own_and_should_own(version: int) -> None:
    async def scenario() -> None:
        async with at_work() as house:
            names = ["orders", "other"]
            await join(house, version, instance_id="i", rack_id="r", subscribed_topic_names=names)
            await join(house, version, member_id="b", subscribed_topic_names=names, server_assignor="range")
            group = describe_group(house, version)
            assert (group.error_code, group.group_state, group.assignor_name) == (0, "Reconciling", "range")
            assert (group.group_epoch, group.assignment_epoch, group.authorized_operations) == (2, 2, -(2**31))
            first, second = group.members
            assert (first.instance_id, first.rack_id, first.member_epoch) == ("i", "r", 1)
            assert (first.client_id, first.client_host) == ("client-7", "/10.0.0.1")
            assert first.subscribed_topic_names == names
            assert first.member_type == (1 if version else -1)
            owned = {topic.topic_name: topic.partitions for topic in first.assignment.topic_partitions}
            wanted = {topic.topic_name: topic.partitions for topic in second.target_assignment.topic_partitions}
            assert owned == {"orders": [0, 1, 2, 3], "other": [0]}
            assert wanted == {"orders": [2, 3]}
            assert describe_group(house, version, operations=True).authorized_operations > 0

    run(scenario())


def test_a_topic_that_is_gone_is_not_described() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await join(house, 1)
            house.topics.delete("orders")
            assert describe_group(house, 1).members[0].assignment.topic_partitions == []

    run(scenario())


def test_only_groups_of_this_protocol_are_known_here() -> None:
    async def scenario() -> None:
        async with at_work() as house:
            await house.stable("classic")
            for group_id in ("classic", "nobody"):
                group = describe_group(house, 1, group_id)
                assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
                assert group_id in (group.error_message or "")
            assert describe_group(house, 1, "").error_code == ErrorCode.INVALID_GROUP_ID

    run(scenario())


def test_nothing_is_described_before_the_groups_are_loaded() -> None:
    assert describe_group(House(), 1).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
