"""Reading with one's own position: from memory, from the disk, from the archive, over what is no record."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from odradek.broker.archive_reading import ArchiveReader
from odradek.broker.katar_reading import Found, KatarReader, Start
from odradek.broker.topics import Partition
from odradek.controller.image_archive import PartitionArchive, Piece
from odradek.log.segment import Chunk, TimestampOffset
from odradek.model import TopicPartition
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode
from tests.broker.houses import START_MS, House, at_home, batch, refusal_of
from tests.client.support import until
from tests.edge.doors import on_uvloop

PLACE = TopicPartition("t", 0)


def from_start(offset: int = 0) -> dict[TopicPartition, Start]:
    return {PLACE: Start("offset", offset)}


def values(found: list[Found]) -> list[bytes | None]:
    return [each.record.value for each in found]


async def append(house: House, data: bytearray) -> None:
    partition = house.broker.partition(*PLACE)
    await house.broker.committed(partition, partition.append(data).last_offset + 1)


@on_uvloop
async def test_what_is_not_in_memory_is_read_from_the_disk_in_a_thread() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        await house.produce("t", b"a", b"b")
        house.disk.is_cold = True
        house.disk.may_read.clear()
        reading = asyncio.create_task(KatarReader(house.broker).read(from_start(1), 10, 0))
        await until(lambda: house.disk.reads_begun > 0)
        house.disk.may_read.set()
        found, positions = await reading
        assert (values(found), positions) == ([b"b"], {PLACE: 2})


@on_uvloop
async def test_marks_of_transactions_are_passed_over_and_compressed_batches_are_not() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        marker = control_batch(
            ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
        )
        packed = build_batch([NewRecord(b"%d" % number, timestamp=START_MS) for number in range(5)], codec=Codec.ZSTD)
        await append(house, packed)
        await append(house, marker)
        reader = KatarReader(house.broker)
        found, positions = await reader.read(from_start(3), 10, 0)
        assert (values(found), positions) == ([b"3", b"4"], {PLACE: 6}), "behind the mark"
        assert await reader.read(from_start(5), 10, 0) == ([], {PLACE: 6})
        found, positions = await reader.read(from_start(1), 2, 0)
        assert (values(found), positions) == ([b"1", b"2"], {PLACE: 3})


@on_uvloop
async def test_an_answer_has_a_bound_of_bytes_and_goes_on_behind_it() -> None:
    async with at_home(max_message_bytes=4 << 20) as house:
        await house.broker.create_topic("t", 1, {})
        for _ in range(5):
            await append(house, batch(bytes(3 << 20)))
        found, positions = await KatarReader(house.broker).read(from_start(), 100, 0)
        assert (len(found), positions) == (3, {PLACE: 3})


@on_uvloop
async def test_with_no_room_for_a_record_the_position_is_told_and_nothing_is_waited_for() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        await house.produce("t", b"a")
        assert await KatarReader(house.broker).read({PLACE: Start("latest")}, 0, 60_000) == ([], {PLACE: 1})


@on_uvloop
async def test_a_new_leader_that_does_not_know_the_end_yet_says_so() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        await house.produce("t", b"a")
        reader = KatarReader(house.broker)
        house.broker.partition(*PLACE).epoch_start = 9
        for start in (Start("latest"), Start("timestamp", 0)):
            assert await refusal_of(reader.read({PLACE: start}, 10, 0)) is ErrorCode.OFFSET_NOT_AVAILABLE
        assert values((await reader.read(from_start(), 10, 0))[0]) == [b"a"]


@on_uvloop
async def test_a_partition_that_is_led_elsewhere_is_refused() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        wanted: Any = {TopicPartition("t", 1): Start("latest")}
        reader = KatarReader(house.broker)
        assert await refusal_of(reader.read(wanted, 10, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        house.broker.partition(*PLACE).is_leader = False
        assert await refusal_of(reader.read(from_start(), 10, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


class Archive:
    """Has the first four records in two segments."""

    async def read(self, _partition: Partition, offset: int, _max_bytes: int) -> Chunk:
        base = offset - offset % 2
        data = batch(b"old %d" % base, b"old %d" % (base + 1))
        data[:8] = base.to_bytes(8)
        return Chunk(memoryview(data), base, base + 2)

    async def find_time(self, _partition: Partition, timestamp: int) -> TimestampOffset | None:
        return TimestampOffset(timestamp, 3, 0) if timestamp < START_MS else None


@on_uvloop
async def test_what_is_in_the_archive_only_is_read_from_there_with_the_bases_of_its_segments() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {})
        await house.produce("t", b"0", b"1", b"2", b"3")
        partition = house.broker.partition(*PLACE)
        partition.log.roll()
        await house.produce("t", b"4", b"5")
        partition.log.delete_records(4).run()
        partition.archive = PartitionArchive(0, (Piece(0, 2, 100, START_MS), Piece(2, 4, 100, START_MS)))
        house.broker.archive = cast(ArchiveReader, Archive())
        reader = KatarReader(house.broker)
        found, positions = await reader.read(from_start(1), 10, 0)
        assert [(each.base_offset, each.record.offset, each.record.value) for each in found] == [
            (0, 1, b"old 1"), (2, 2, b"old 2"), (2, 3, b"old 3"), (4, 4, b"4"), (4, 5, b"5"),
        ]  # fmt: skip
        assert positions == {PLACE: 6}
        found, _ = await reader.read({PLACE: Start("timestamp", START_MS - 1)}, 1, 0)
        assert values(found) == [b"old 3"], "found in the archive by its time"


@on_uvloop
async def test_a_log_whose_last_records_were_compacted_away_is_read_to_its_end() -> None:
    async with at_home() as house:
        await house.broker.create_topic("t", 1, {"cleanup.policy": "compact"})
        await house.produce("t", b"a", b"b", key=b"k")
        partition = house.broker.partition(*PLACE)
        partition.log.state.sparse = True  # as compaction leaves it that has removed a mark of deletion at the end
        partition.log.roll(5)
        partition.log.flush()
        partition.advanced()
        assert partition.high_watermark == 5
        reader = KatarReader(house.broker)
        assert values((await reader.read(from_start(1), 10, 0))[0]) == [b"b"]
        found, positions = await reader.read(from_start(2), 10, 1)
        assert not found
        await house.produce("t", b"c", key=b"k")
        found, positions = await reader.read({place: Start("offset", at) for place, at in positions.items()}, 10, 0)
        assert (values(found), positions) == ([b"c"], {PLACE: 6})
