"""What was once broken and must not be again: records that were hidden, changes that were lost."""

from __future__ import annotations

import asyncio
from functools import partial

from odradek.broker.configs import Change, Operation, ResourceType, change
from odradek.broker.offsets_topic import KnownTopics, OffsetsTopic
from odradek.config import default_settings
from odradek.groups.coordinator import Coordinator
from odradek.groups.offsets import CommittedOffset
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from tests.broker.houses import House, SlowDisk, at_home, batch
from tests.client.support import asynchronous, until


@asynchronous
async def test_a_flush_that_is_asked_for_during_another_one_is_not_forgotten() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        partition = (await house.broker.create_topic("orders", 1, {})).partitions[0]
        disk.may_flush.clear()
        before = disk.flushes_begun
        partition.append(batch(b"first"))
        house.broker.flusher.request(partition.log)
        await until(lambda: disk.flushes_begun > before)
        partition.append(batch(b"second"))  # as acks=0 does: nobody waits for it
        house.broker.flusher.request(partition.log)
        disk.may_flush.set()
        await until(lambda: partition.high_watermark == 2)


@asynchronous
async def test_what_was_shown_stays_visible_when_the_topic_begins_to_flush() -> None:
    async with at_home() as house:
        topic = await house.broker.create_topic("orders", 1, {"flush": "replicated"})
        partition = topic.partitions[0]
        partition.append(batch(b"shown"))
        partition.advanced()
        assert partition.high_watermark == 1
        await house.broker.set_topic_overrides("orders", {"flush": "group"})
        assert partition.high_watermark == 1
        await until(lambda: partition.log.flushed_offset == 1)


@asynchronous
async def test_changes_of_settings_at_the_same_time_do_not_undo_each_other() -> None:
    async with at_home() as house:
        await house.broker.create_topic("orders", 1, {})
        values = {"retention.ms": "1000", "retention.bytes": "2000", "segment.ms": "3000"}
        await asyncio.gather(
            *(
                change(house.broker, ResourceType.TOPIC, "orders", [Change(name, Operation.SET, value)], False)
                for name, value in values.items()
            )
        )
        assert house.broker.topics["orders"].overrides == values


@asynchronous
async def test_producer_ids_do_not_wait_for_topics_that_are_being_made() -> None:
    async with at_home() as house:
        first = await house.broker.new_producer_id()
        async with house.broker._changing:
            assert await asyncio.wait_for(house.broker.new_producer_id(), 10) == first + 1


@asynchronous
async def test_offsets_of_a_topic_that_was_deleted_before_a_crash_are_gone_for_good() -> None:
    disk = SlowDisk()
    where, committed = TopicPartition("orders", 0), CommittedOffset(77, -1, "", 0)
    async with at_home(disk) as house:
        await house.broker.create_topic("orders", 1, {})
        groups = _groups(house)
        assert await groups.offsets.commit("g", "", None, -1, {where: committed}) is ErrorCode.NONE
        await groups.close()
        await house.broker.delete_topic("orders")  # and nobody tells the groups, as if the process had died
    for _ in range(2):
        async with at_home(disk) as house:
            groups = _groups(house)
            if "orders" not in house.broker.topics:
                await until(partial(_has_no_offsets, groups))
                await house.broker.create_topic("orders", 1, {})
            offsets = groups.offsets.of("g")
            assert offsets is None or offsets.get("orders", 0) is None
            await groups.close()


def _has_no_offsets(groups: Coordinator) -> bool:
    return groups.offsets.of("g") is None


def _groups(house: House) -> Coordinator:
    config, journal, topics = default_settings().group_config(), OffsetsTopic(house.broker), KnownTopics(house.broker)
    groups = Coordinator(config, house.clock, journal, topics, lambda: "id")
    groups.load()
    groups.start()
    return groups
