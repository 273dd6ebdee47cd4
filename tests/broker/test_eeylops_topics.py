"""Topics by Eeylops' numbers: what is found, what is refused, and metadata that is ahead of this broker."""

from __future__ import annotations

from typing import NoReturn

import pytest

from odradek.broker.broker import Broker
from odradek.broker.eeylops_topics import EeylopsTopics, NodeView, PartitionNotFound, TopicView
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import at_home, refusal_of
from tests.client.support import asynchronous

MS = 5_000


def refusal(topics: EeylopsTopics, topic_id: int, partition_id: int) -> ErrorCode:
    with pytest.raises(PeerError) as refused:
        topics.place(topic_id, partition_id)
    assert refused.value.message
    return refused.value.code


@asynchronous
async def test_a_place_is_found_by_its_numbers() -> None:
    async with at_home() as house:
        topics = EeylopsTopics(house.broker)
        await topics.create("orders", [2, 1], 0, MS)
        (view,) = await topics.topics(sync=True, timeout_ms=MS)
        assert view == TopicView(1, "orders", [1, 2], 0)
        assert topics.place(1, 2) == TopicPartition("orders", 1)
        topic = house.broker.metadata.image.topics["orders"]
        assert await topics.find_place(1, 1, MS) == (TopicPartition("orders", 0), topic.id)
        assert refusal(topics, 2, 1) is refusal(topics, 0, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for partition in (0, 3, -1):
            with pytest.raises(PartitionNotFound, match="it has 1, 2"):
                topics.place(1, partition)


@asynchronous
async def test_a_topic_that_the_metadata_has_and_this_broker_not_yet_is_asked_for_again() -> None:
    async with at_home() as house:
        topics = EeylopsTopics(house.broker)
        await topics.create("orders", [], 0, MS)
        hosted = house.broker.topics.pop("orders")
        assert refusal(topics, 1, 1) is ErrorCode.LEADER_NOT_AVAILABLE
        hosted.id, right_id = bytes(16), hosted.id  # an earlier topic of that name is still here
        house.broker.topics["orders"] = hosted
        assert refusal(topics, 1, 1) is ErrorCode.LEADER_NOT_AVAILABLE
        hosted.id = right_id
        assert topics.place(1, 1) == TopicPartition("orders", 0)


@asynchronous
async def test_more_partitions_than_there_can_be_are_refused_before_they_are_looked_at() -> None:
    async with at_home(partitions_max=10) as house:
        topics = EeylopsTopics(house.broker)

        class Many(list[int]):
            def __iter__(self) -> NoReturn:
                raise AssertionError("a message has room for millions")

        with pytest.raises(PeerError, match=r"partitions\.max") as refused:
            await topics.create("orders", Many([1] * 11), 0, MS)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        await topics.create("orders", range(1, 11), 0, MS)


@asynchronous
async def test_a_removed_id_stays_removed() -> None:
    async with at_home() as house:
        topics = EeylopsTopics(house.broker)
        await topics.create("orders", [], 0, MS)
        await topics.remove(1, MS)
        await topics.create("orders", [], -1, MS)
        assert await topics.topic("orders", sync=False, timeout_ms=MS) == TopicView(2, "orders", [1], -1)
        assert await refusal_of(topics.remove(1, MS)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(topics, 1, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@asynchronous
async def test_settings_that_somebody_else_changes_do_not_keep_a_look_at_the_controller_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with at_home() as house:
        topics = EeylopsTopics(house.broker)
        await topics.create("orders", [], 0, MS)
        change, asked = Broker.change, []

        async def racing(self: Broker, command: str, args: dict[str, object], timeout_ms: int = MS) -> object:
            asked.append(command)
            if len(asked) == 1:
                raise PeerError(ErrorCode.INVALID_UPDATE_VERSION, "they were changed")
            return await change(self, command, args, timeout_ms)

        monkeypatch.setattr(Broker, "change", racing)
        assert len(await topics.topics(sync=True, timeout_ms=MS)) == 1
        assert asked == ["set-broker-configs"] * 2
        assert house.broker.broker_overrides == {}, "it changes nothing"


@asynchronous
async def test_a_look_at_the_controller_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_home() as house:
        topics = EeylopsTopics(house.broker)

        async def always(self: Broker, command: str, args: dict[str, object], timeout_ms: int = MS) -> object:
            raise PeerError(ErrorCode.INVALID_UPDATE_VERSION, "they were changed")

        monkeypatch.setattr(Broker, "change", always)
        assert await refusal_of(topics.topics(sync=True, timeout_ms=50)) is ErrorCode.INVALID_UPDATE_VERSION


@asynchronous
async def test_brokers_are_told_with_their_doors() -> None:
    async with at_home() as house:
        topics = EeylopsTopics(house.broker)
        await topics.create("orders", [], 0, MS)
        own = NodeView(house.broker.node_id, "", 0)  # a house has no door
        assert topics.nodes() == ([own], own.id)
        assert topics.controller() == own == await topics.leader(1, 1, MS)
        assert await refusal_of(topics.leader(1, 2, MS)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topics.leader_of(TopicPartition("orders", 0)) == -1, "another one than this broker"
        house.broker.metadata.image.brokers.clear()
        with pytest.raises(PeerError, match="ask again"):
            topics.controller()
