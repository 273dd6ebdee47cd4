"""The coordinator's journal on the broker's own log: made when needed, in order, safe before it is said."""

from __future__ import annotations

import asyncio
import errno

import pytest

from odradek.broker.offsets_topic import KnownTopics, OffsetsTopic
from odradek.model import OFFSETS_TOPIC
from odradek.records.build import ControlType, control_batch
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import SlowDisk, at_home, refusal_of
from tests.client.support import asynchronous, until

PARTITIONS = 3


def record(value: bytes, key: bytes = b"k") -> NewRecord:
    return NewRecord(value, key=key, timestamp=7)


def values(journal: OffsetsTopic, index: int) -> list[bytes | None]:
    return [each.value for each in journal.read(index)]


@asynchronous
async def test_a_broker_without_groups_has_no_trace_of_it() -> None:
    async with at_home(offsets_topic_num_partitions=PARTITIONS) as house:
        journal = OffsetsTopic(house.broker)
        assert journal.partition_count == PARTITIONS
        assert values(journal, 0) == []
        await journal.close()
        assert OFFSETS_TOPIC not in house.broker.topics


@asynchronous
async def test_the_first_record_makes_the_topic_and_all_that_wait_for_it_are_written_in_order() -> None:
    async with at_home(offsets_topic_num_partitions=PARTITIONS, offsets_topic_segment_bytes=5000) as house:
        journal = OffsetsTopic(house.broker)
        waiting = [journal.append(n % 2, [record(b"%d" % n), record(b"%d again" % n)]) for n in range(6)]
        assert not any(each.done() for each in waiting)
        await asyncio.gather(*waiting)
        topic = house.broker.topics[OFFSETS_TOPIC]
        assert topic.is_internal and len(topic.partitions) == PARTITIONS
        config = topic.partitions[0].log.config
        assert config.compacts and not config.deletes
        assert config.segment_bytes == 5000
        assert values(journal, 0) == [b"0", b"0 again", b"2", b"2 again", b"4", b"4 again"]
        assert values(journal, 1) == [b"1", b"1 again", b"3", b"3 again", b"5", b"5 again"]
        assert topic.partitions[0].log in house.broker.written
        await journal.close()


@asynchronous
async def test_a_record_is_safe_only_after_its_flush_and_the_future_says_so() -> None:
    async with at_home() as house:
        journal = OffsetsTopic(house.broker)
        await journal.append(0, [record(b"first")])
        house.disk.may_flush.clear()
        begun = house.disk.flushes_begun
        second = journal.append(0, [record(b"second")])
        await until(lambda: house.disk.flushes_begun > begun)
        assert not second.done()
        house.disk.may_flush.set()
        await second
        assert house.broker.partition(OFFSETS_TOPIC, 0).high_watermark == 2


@asynchronous
async def test_a_topic_that_trusts_the_system_is_done_at_once() -> None:
    async with at_home(flush="os") as house:
        journal = OffsetsTopic(house.broker)
        await journal.append(0, [record(b"first")])
        woken: list[int] = []
        house.broker.partition(OFFSETS_TOPIC, 0).wake_on_advance(lambda: woken.append(1))
        assert journal.append(0, [record(b"second")]).done()
        assert woken == [1]


@asynchronous
async def test_the_next_life_reads_what_was_written_and_keeps_the_number_of_partitions() -> None:
    disk = SlowDisk()
    async with at_home(disk, offsets_topic_num_partitions=PARTITIONS) as house:
        journal = OffsetsTopic(house.broker)
        await journal.append(1, [record(b"kept")])
        marker = control_batch(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=7)
        house.broker.partition(OFFSETS_TOPIC, 1).log.append(marker)
    async with at_home(disk, offsets_topic_num_partitions=50) as house:
        journal = OffsetsTopic(house.broker)
        assert journal.partition_count == PARTITIONS
        assert values(journal, 1) == [b"kept"], "and no markers"


@asynchronous
async def test_a_damaged_partition_does_not_move_the_groups_of_the_others() -> None:
    disk = SlowDisk()
    async with at_home(disk, offsets_topic_num_partitions=PARTITIONS) as house:
        journal = OffsetsTopic(house.broker)
        await asyncio.gather(*(journal.append(index, [record(b"%d" % index)]) for index in range(PARTITIONS)))
    disk.fail_next("open", errno.EIO, ending=f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
    async with at_home(disk) as house:
        journal = OffsetsTopic(house.broker)
        assert journal.partition_count == PARTITIONS
        assert KnownTopics(house.broker).partition_counts() == {OFFSETS_TOPIC: PARTITIONS}
        assert values(journal, 2) == [b"2"]
        with pytest.raises(PeerError, match="offline"):
            values(journal, 0)
        assert await refusal_of(journal.append(0, [record(b"lost")])) == ErrorCode.KAFKA_STORAGE_ERROR


@asynchronous
async def test_a_topic_that_cannot_be_made_fails_those_who_wait_and_is_tried_again() -> None:
    async with at_home(offsets_topic_num_partitions=2, partitions_max=2) as house:
        journal = OffsetsTopic(house.broker)
        await house.broker.create_topic("in-the-way", 1, {})
        waiting = [journal.append(0, [record(b"x")]) for _ in range(2)]
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [each.code for each in ended if isinstance(each, PeerError)] == [ErrorCode.INVALID_PARTITIONS] * 2
        await house.broker.delete_topic("in-the-way")
        await journal.append(0, [record(b"now")])
        assert values(journal, 0) == [b"now"]


@pytest.mark.parametrize("action", ["append to", "flush"])
@asynchronous
async def test_a_disk_that_fails_fails_the_record_and_stops_the_broker(action: str) -> None:
    async with at_home() as house:
        journal = OffsetsTopic(house.broker)
        await journal.append(0, [record(b"first")])
        house.disk.fail_next(action, errno.EIO, ending=f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        assert await refusal_of(journal.append(0, [record(b"second")])) == ErrorCode.KAFKA_STORAGE_ERROR
        assert house.broker.failed.done()


@asynchronous
async def test_a_record_that_is_too_large_fails_alone() -> None:
    async with at_home() as house:
        journal = OffsetsTopic(house.broker)
        assert await refusal_of(journal.append(0, [record(bytes(2 << 20))])) != ErrorCode.NONE
        await journal.append(0, [record(b"small")])
        assert values(journal, 0) == [b"small"]
        assert not house.broker.failed.done()


@asynchronous
async def test_nobody_has_to_wait_for_the_answer() -> None:
    async with at_home() as house:
        journal = OffsetsTopic(house.broker)
        given_up = journal.append(0, [record(b"first")])
        later = journal.append(0, [record(b"second")])
        given_up.cancel()
        await later
        assert values(journal, 0) == [b"first", b"second"]


@asynchronous
async def test_groups_know_the_topics_by_name_id_and_number_of_partitions() -> None:
    async with at_home() as house:
        known = KnownTopics(house.broker)
        version = known.version
        topic = await house.broker.create_topic("orders", 2, {})
        assert known.version != version
        assert known.partition_counts() == {"orders": 2}
        assert (known.topic_id("orders"), known.topic_name(topic.id)) == (topic.id, "orders")
        version = known.version
        await house.broker.add_partitions("orders", 3)
        assert (known.version != version, known.partition_counts()) == (True, {"orders": 3})
        version = known.version
        await house.broker.delete_topic("orders")
        assert (known.version != version, known.topic_id("orders"), known.topic_name(topic.id)) == (True, None, None)
