"""The core: finding, making, growing and deleting topics, and what of it the next start finds again."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from odradek.log.errors import LogStoppedError
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import DATA, SlowDisk, at_home, batch, refusal_of
from tests.client.support import asynchronous, until


@asynchronous
async def test_a_topic_is_found_by_name_by_id_and_by_partition() -> None:
    async with at_home() as house:
        broker = house.broker
        topic = await broker.create_topic("orders", 3, {"retention.ms": "5000"})
        assert broker.topics == {"orders": topic}
        assert broker.topic("orders") is broker.topic_by_id(topic.id) is topic
        assert len(topic.id) == 16
        assert topic.overrides == {"retention.ms": "5000"}
        assert sorted(topic.partitions) == [0, 1, 2]
        partition = broker.partition("orders", 2)
        assert (partition.tp, partition.index, partition.topic) == (TopicPartition("orders", 2), 2, topic)
        assert partition.log.config.retention_ms == 5000


@asynchronous
async def test_what_is_not_there_is_unknown() -> None:
    async with at_home() as house:
        await house.broker.create_topic("orders", 1, {})
        assert house.broker.topic_by_id(bytes(16)) is None
        with pytest.raises(PeerError) as unknown:
            house.broker.topic("letters")
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for name, index in (("letters", 0), ("orders", 1), ("orders", -1)):
            with pytest.raises(PeerError) as unknown:
                house.broker.partition(name, index)
            assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@asynchronous
async def test_a_topic_that_cannot_be_is_refused_and_leaves_no_trace() -> None:
    async with at_home(partitions_max=10, num_partitions=4) as house:
        broker = house.broker
        await broker.create_topic("a.b", 2, {})
        before = broker.metadata_version
        for name, count, overrides, code in (
            ("a.b", 1, {}, ErrorCode.TOPIC_ALREADY_EXISTS),
            ("a_b", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("../x", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("c", 0, {}, ErrorCode.INVALID_PARTITIONS),
            ("c", -2, {}, ErrorCode.INVALID_PARTITIONS),
            ("c", 9, {}, ErrorCode.INVALID_PARTITIONS),
            ("c", 1, {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
            ("c", 1, {"no.such": "1"}, ErrorCode.INVALID_CONFIG),
            ("c", 1, {"num.partitions": "1"}, ErrorCode.INVALID_CONFIG),
        ):
            assert await refusal_of(broker.create_topic(name, count, overrides)) == code, name
        assert list(broker.topics) == ["a.b"]
        assert broker.metadata_version == before
        topic = await broker.create_topic("c", -1, {})
        assert len(topic.partitions) == 4, "num.partitions"
        assert broker.metadata_version > before


@asynchronous
async def test_two_that_make_the_same_topic_at_once_get_one() -> None:
    async with at_home() as house:
        made = await asyncio.gather(
            *(house.broker.create_topic("orders", 20, {}) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in made[1:]] == [PeerError, PeerError]
        assert len(house.broker.topics["orders"].partitions) == 20


@asynchronous
async def test_a_deleted_topic_is_gone_at_once_and_its_name_is_free() -> None:
    async with at_home() as house:
        broker = house.broker
        forgotten: list[str] = []
        woken: list[object] = []
        broker.on_topic_deleted = forgotten.append
        first = await broker.create_topic("orders", 2, {})
        await house.produce("orders", b"old")
        waiting = broker.partition("orders", 1)
        waiting.wake_on_advance(lambda: woken.append(broker.topics.get("orders")))
        version = broker.metadata_version
        await broker.delete_topic("orders")
        assert broker.metadata_version > version
        assert (forgotten, woken) == (["orders"], [None])
        assert broker.topics == {} and broker.topic_by_id(first.id) is None
        assert await refusal_of(broker.delete_topic("orders")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await until(lambda: not any(entry.name.startswith((".deleted", "orders")) for entry in house.disk.list(DATA)))
        second = await broker.create_topic("or_ders", 1, {})
        again = await broker.create_topic("orders", 1, {})
        assert len({first.id, second.id, again.id}) == 3
        assert await house.produce("orders", b"new") == 0


@asynchronous
async def test_a_produce_whose_topic_is_deleted_meanwhile_ends_either_way_and_nobody_stops() -> None:
    async with at_home() as house:
        topic = await house.broker.create_topic("orders", 1, {})
        partition = topic.partitions[0]
        partition.append(batch(b"a"))
        flushed = house.broker.flushed(partition, 1)
        await house.broker.delete_topic("orders")
        (ended,) = await asyncio.gather(flushed, return_exceptions=True)
        assert ended is None or isinstance(ended, LogStoppedError)
        assert not house.broker.failed.done()


@asynchronous
async def test_topics_that_must_not_be_deleted_are_not() -> None:
    async with at_home() as house:
        assert await refusal_of(house.broker.create_topic(OFFSETS_TOPIC, 1, {})) == ErrorCode.INVALID_TOPIC_EXCEPTION
        await house.broker.create_topic(OFFSETS_TOPIC, 1, {}, internal=True)
        assert await refusal_of(house.broker.delete_topic(OFFSETS_TOPIC)) == ErrorCode.INVALID_REQUEST
    async with at_home(delete_topic_enable="false") as house:
        await house.broker.create_topic("orders", 1, {})
        assert await refusal_of(house.broker.delete_topic("orders")) == ErrorCode.TOPIC_DELETION_DISABLED
        assert "orders" in house.broker.topics


@asynchronous
async def test_a_topic_grows_and_never_shrinks() -> None:
    async with at_home(partitions_max=5) as house:
        broker = house.broker
        topic = await broker.create_topic("orders", 2, {"flush": "os"})
        before, version = topic.partitions[0], broker.metadata_version
        await broker.add_partitions("orders", 4)
        assert sorted(topic.partitions) == [0, 1, 2, 3]
        assert topic.partitions[0] is before
        assert broker.metadata_version > version
        assert broker.partition("orders", 3).log.config.flush.value == "os"
        for total in (4, 3, 0, -1, 6):
            assert await refusal_of(broker.add_partitions("orders", total)) == ErrorCode.INVALID_PARTITIONS
        assert await refusal_of(broker.add_partitions("letters", 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@asynchronous
async def test_the_offsets_topic_does_not_grow_since_groups_are_found_by_its_number_of_partitions() -> None:
    async with at_home() as house:
        await house.broker.create_topic(OFFSETS_TOPIC, 2, {}, internal=True)
        assert await refusal_of(house.broker.add_partitions(OFFSETS_TOPIC, 3)) == ErrorCode.INVALID_REQUEST


@asynchronous
async def test_settings_changed_while_running_hold_at_once_for_what_is_there_and_for_what_comes() -> None:
    async with at_home() as house:
        broker = house.broker
        await broker.create_topic("own", 1, {"segment.bytes": "5000"})
        await broker.create_topic("plain", 1, {})
        await broker.set_broker_overrides({"segment.bytes": "7000", "flush": "os"})
        assert broker.broker_overrides == {"segment.bytes": "7000", "flush": "os"}
        assert broker.partition("own", 0).log.config.segment_bytes == 5000
        assert broker.partition("plain", 0).log.config.segment_bytes == 7000
        await broker.create_topic("new", 1, {})
        assert broker.partition("new", 0).log.config.segment_bytes == 7000
        await broker.set_topic_overrides("plain", {"segment.bytes": "6000"})
        assert broker.partition("plain", 0).log.config.segment_bytes == 6000
        await broker.set_broker_overrides({})
        assert broker.partition("new", 0).log.config.segment_bytes == house.settings["segment.bytes"]
        assert await refusal_of(broker.set_topic_overrides("own", {"flush": "never"})) == ErrorCode.INVALID_CONFIG
        assert await refusal_of(broker.set_broker_overrides({"broker.id": "3"})) == ErrorCode.INVALID_CONFIG
        assert broker.topic("own").overrides == {"segment.bytes": "5000"}


@asynchronous
async def test_waiting_readers_are_told_when_another_flush_setting_makes_records_safe() -> None:
    async with at_home() as house:
        await house.broker.create_topic("orders", 1, {})
        partition = house.broker.partition("orders", 0)
        partition.append(batch(b"a"))
        seen: list[int] = []
        partition.wake_on_advance(lambda: seen.append(partition.high_watermark))
        await house.broker.set_topic_overrides("orders", {"flush": "os"})
        assert seen == [1]


@asynchronous
async def test_a_default_that_contradicts_a_topics_own_setting_is_refused_and_the_next_start_is_not_spoiled() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await house.broker.create_topic("orders", 1, {"max.compaction.lag.ms": "1000"})
        changed = house.broker.set_broker_overrides({"min.compaction.lag.ms": "5000"})
        assert await refusal_of(changed) == ErrorCode.INVALID_CONFIG
        assert house.broker.broker_overrides == {}
    async with at_home(disk) as house:
        assert list(house.broker.topics) == ["orders"]


@asynchronous
async def test_the_next_start_finds_everything_again() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        broker = house.broker
        orders = await broker.create_topic("orders", 2, {"segment.bytes": "5000"})
        await broker.add_partitions("orders", 3)
        await broker.create_topic("gone", 1, {})
        await broker.delete_topic("gone")
        await broker.set_broker_overrides({"retention.ms": "9000"})
        await house.produce("orders", b"a", b"b", partition=2)
        cluster_id, producer_id = broker.cluster_id, await broker.new_producer_id()
    async with at_home(disk) as house:
        broker = house.broker
        assert broker.cluster_id == cluster_id
        assert list(broker.topics) == ["orders"]
        assert broker.topics["orders"].id == orders.id
        assert broker.topics["orders"].overrides == {"segment.bytes": "5000"}
        assert [broker.partition("orders", index).high_watermark for index in range(3)] == [0, 0, 2]
        config = broker.partition("orders", 0).log.config
        assert (config.segment_bytes, config.retention_ms) == (5000, 9000)
        assert await broker.new_producer_id() > producer_id, "an id is never given twice, though some are left out"


@asynchronous
async def test_producer_ids_are_given_once_each() -> None:
    async with at_home() as house:
        given = await asyncio.gather(*(house.broker.new_producer_id() for _ in range(2500)))
        assert len(set(given)) == 2500


@asynchronous
async def test_partitions_without_a_topic_are_left_alone_unless_the_topic_was_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await house.broker.create_topic("gone", 1, {})
        await house.produce("gone", b"a")
        await house.broker.create_topic("kept", 1, {})
    for name in ("gone-0", "stranger-0"):  # as a crash between the metadata and the directories leaves them
        disk.make_directory(f"{DATA}/{name}")
        disk.write_atomic(f"{DATA}/{name}/00000000000000000000.log", b"")
    journal = f"{DATA}/metadata/__cluster_metadata.log"
    lines = (disk.read_file(journal) or b"").count(b"\n")
    disk.append_file(journal, b'%d 1 delete-topic {"topic_name":"gone"}\n' % lines)
    with caplog.at_level(logging.WARNING):
        async with at_home(disk) as house:
            assert list(house.broker.topics) == ["kept"]
            await until(lambda: not disk.exists(f"{DATA}/gone-0"))
            assert disk.exists(f"{DATA}/stranger-0")
            refused = await refusal_of(house.broker.create_topic("kept", 1, {}))
            assert refused == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "stranger-0" in caplog.text and "left alone" in caplog.text


def damage(disk: SlowDisk, partition: str) -> None:
    """Break a sealed segment's head so that its partition cannot be opened."""
    disk.fail_next("open", errno.EIO, ending=f"{partition}/00000000000000000000.log")


@asynchronous
async def test_a_partition_that_cannot_be_opened_is_offline_and_still_counts() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await house.broker.create_topic("orders", 3, {})
        await house.produce("orders", b"a", partition=2)
    damage(disk, "orders-0")
    async with at_home(disk) as house:
        broker = house.broker
        assert sorted(broker.topics["orders"].partitions) == [1, 2]
        assert await refusal_of(read(house.broker.partition, "orders", 0)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.partition("orders", 2).high_watermark == 1
        assert await refusal_of(broker.add_partitions("orders", 3)) == ErrorCode.INVALID_PARTITIONS
        before = broker.partition("orders", 2)
        await broker.add_partitions("orders", 4)
        assert sorted(broker.topics["orders"].partitions) == [1, 2, 3]
        assert broker.partition("orders", 2) is before
    async with at_home(disk) as house:
        assert sorted(house.broker.topics["orders"].partitions) == [0, 1, 2, 3], "it was only a bad day"


async def read(action: object, *arguments: object) -> None:
    assert callable(action)
    action(*arguments)


@asynchronous
async def test_the_name_of_a_deleted_topic_with_damaged_files_is_not_used_again() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await house.broker.create_topic("orders", 1, {})
        await house.produce("orders", b"a")
        await house.broker.create_topic("other", 1, {})
    journal = f"{DATA}/metadata/__cluster_metadata.log"
    lines = (disk.read_file(journal) or b"").count(b"\n")
    disk.append_file(journal, b'%d 1 delete-topic {"topic_name":"orders"}\n' % lines)
    damage(disk, "orders-0")
    async with at_home(disk) as house:
        refused = await refusal_of(house.broker.create_topic("orders", 1, {}))
        assert refused == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("action", ["append to", "flush"])
@asynchronous
async def test_metadata_that_cannot_be_written_stops_the_broker(action: str) -> None:
    async with at_home() as house:
        house.disk.fail_next(action, errno.EIO, ending="__cluster_metadata.log")
        assert await refusal_of(house.broker.create_topic("orders", 1, {})) == ErrorCode.KAFKA_STORAGE_ERROR
        assert house.broker.failed.done()
        assert "orders" not in house.broker.topics


@asynchronous
async def test_a_flush_that_fails_stops_the_broker_once(caplog: pytest.LogCaptureFixture) -> None:
    async with at_home() as house:
        await house.broker.create_topic("orders", 2, {})
        for index in range(2):
            house.disk.fail_next("flush", errno.EIO, ending=f"orders-{index}/00000000000000000000.log")
            house.broker.partition("orders", index).append(batch(b"a"))
        waiting = [house.broker.flushed(house.broker.partition("orders", index), 1) for index in range(2)]
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in ended] == [LogStoppedError, LogStoppedError]
        assert isinstance(await house.broker.failed, LogStoppedError)
        assert caplog.text.count("the broker stops") == 1


@asynchronous
async def test_readers_are_told_after_a_flush_and_before_the_producer() -> None:
    async with at_home() as house:
        await house.broker.create_topic("orders", 1, {})
        partition = house.broker.partition("orders", 0)
        order: list[str] = []
        partition.wake_on_advance(lambda: order.append(f"reader {partition.high_watermark}"))
        partition.append(batch(b"a"))
        flushed = house.broker.flushed(partition, 1)
        flushed.add_done_callback(lambda _: order.append("producer"))
        await flushed
        await until(lambda: len(order) == 2)
        assert order == ["reader 1", "producer"]


@asynchronous
async def test_a_topic_with_a_damaged_partition_can_be_deleted_and_made_again() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await house.broker.create_topic("orders", 2, {})
        await house.produce("orders", b"kept", partition=1)
    disk.fail_next("open", errno.EIO, ending="orders-0/00000000000000000000.log")
    async with at_home(disk) as house:
        assert set(house.broker.topics["orders"].partitions) == {1}
        await house.broker.delete_topic("orders")
        await house.broker.create_topic("orders", 2, {})
        assert await house.produce("orders", b"new") == 0
