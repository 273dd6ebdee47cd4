"""Closed segments go into the store, are announced, and only then leave the disk; nothing is lost when it fails."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from odradek.broker import archiving as module
from odradek.broker.archive_reading import find_offset, read_chunk
from odradek.broker.archiving import next_closed
from odradek.broker.topics import Partition
from odradek.controller.image_archive import PartitionArchive
from odradek.objects.archive import LOG, STATE, put_segment
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.archives import ARCHIVED, TOPIC, Keeper, keeping, new_url, value
from tests.broker.houses import DATA, START_MS, batch, refusal_of, values_of
from tests.client.support import asynchronous, until


def archive_of(partition: Partition) -> PartitionArchive:
    assert partition.archive is not None
    return partition.archive


async def all_values(keeper: Keeper, start: int = 0, max_bytes: int = 4_000) -> list[bytes | None]:
    """All that can be read from an offset on, wherever it is."""
    found: list[bytes | None] = []
    partition, offset = keeper.partition, start
    while offset < partition.high_watermark:
        chunk = await read_chunk(keeper.house.broker, partition, offset, max_bytes)
        assert chunk.data
        assert chunk.base_offset <= offset
        found += values_of(chunk.data)
        offset = chunk.next_offset
    return found


@pytest.mark.parametrize("kind", ["memory", "file"])
@asynchronous
async def test_all_is_read_from_offset_0_although_the_disk_keeps_little(kind: str, tmp_path: Path) -> None:
    async with keeping(tmp_path.as_uri() if kind == "file" else None) as keeper:
        partition = await keeper.fill(40)
        await keeper.archive()
        assert partition.log_start == 0
        assert partition.log.log_start > 30
        assert partition.log.size_bytes < 3_000
        assert archive_of(partition).end == partition.log.segments[-1].base_offset
        assert await all_values(keeper) == [value(number) for number in range(40)]
        assert await all_values(keeper, 7) == [value(number) for number in range(7, 40)]
        assert [each.base_offset for each in keeper.segments()] == [
            piece.base_offset for piece in archive_of(partition).pieces
        ]


@asynchronous
async def test_nothing_leaves_the_disk_before_it_is_announced() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(20)
        await keeper.housekeeping.expire()
        assert partition.log.log_start == 0, "nothing is archived yet"
        keeper.store.changes_left = 9  # two segments, and the first object of a third
        await keeper.archive()
        assert keeper.store.is_away
        assert len(archive_of(partition).pieces) == 2
        assert partition.log.log_start == archive_of(partition).end
        assert len(keeper.objects()) == 9
        assert len(keeper.segments()) == 2
        keeper.store.come_back()
        await keeper.archive()
        assert archive_of(partition).end == partition.log.segments[-1].base_offset
        assert len(keeper.objects()) == 4 * len(archive_of(partition).pieces)
        assert await all_values(keeper) == [value(number) for number in range(20)]


@pytest.mark.parametrize("changes", range(9))
@asynchronous
async def test_an_upload_that_was_cut_short_is_cleared_away_by_the_next_leader(changes: int) -> None:
    url = new_url()
    async with keeping(url) as keeper:
        await keeper.fill(12)
        keeper.store.changes_left = changes
        await keeper.archiving.run_once()
    async with keeping(url, keeper.house) as later:
        # As if another broker had cut its segments elsewhere: what nobody announced must go.
        topic_id = later.partition.topic_id.hex()
        put_segment(later.store.store, TOPIC, topic_id, 0, 2, 5, bytes(batch(b"stray")))
        await later.archive()
        announced = archive_of(later.partition).pieces
        assert [each.base_offset for each in later.segments()] == [piece.base_offset for piece in announced]
        assert len(later.objects()) == 4 * len(announced)
        assert await all_values(later) == [value(number) for number in range(12)]


@asynchronous
async def test_many_partitions_are_archived_in_one_round_and_tried_again_in_the_next() -> None:
    async with keeping() as keeper:
        await keeper.house.broker.create_topic(TOPIC, 9, ARCHIVED)
        for index in range(9):
            for number in range(6):
                await keeper.house.produce(TOPIC, value(number), partition=index)
        keeper.store.changes_left = 40
        await keeper.archive()
        keeper.store.come_back()
        await keeper.archive()
        partitions = [keeper.house.broker.partition(TOPIC, index) for index in range(9)]
        assert all(archive_of(each).end == each.log.log_start > 0 for each in partitions)
        assert len(keeper.objects()) == 4 * sum(len(archive_of(each).pieces) for each in partitions)


@asynchronous
async def test_an_announcement_without_an_answer_is_not_made_twice() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(8)
        await keeper.archiving.run_once()
        pieces, offset = archive_of(partition).pieces, keeper.house.broker.metadata.quorum.applied_offset
        await keeper.archiving.run_once()
        assert archive_of(partition).pieces == pieces
        assert keeper.house.broker.metadata.quorum.applied_offset == offset


@asynchronous
async def test_only_what_is_closed_flushed_and_committed_is_copied() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(1)
        assert next_closed(partition, 0) is None, "the only segment is open"
        keeper.house.disk.may_flush.clear()
        for number in range(1, 8):
            partition.append(batch(value(number)))
        assert len(partition.log.segments) > 2
        assert next_closed(partition, 0) is None, "nothing is flushed"
        keeper.house.disk.may_flush.set()
        await keeper.house.broker.flushed(partition, 8)
        found = next_closed(partition, 0)
        assert found is not None
        assert found[1] == 0
        partition.high_watermark = 1
        assert next_closed(partition, 0) is None, "not every replica has it"


@asynchronous
async def test_where_producers_do_not_wait_for_the_disk_archiving_sees_to_the_flush() -> None:
    async with keeping() as keeper:
        await keeper.house.broker.create_topic(
            TOPIC, 1, {"remote.storage.enable": "true", "segment.bytes": "1500", "flush": "os"}
        )
        partition = keeper.partition
        for number in range(9):
            partition.append(batch(value(number)))
            partition.advanced()
        await keeper.archiving.run_once()
        await until(lambda: partition.log.flushed_offset == 9)
        await keeper.archiving.run_once()
        assert archive_of(partition).end == partition.log.segments[-1].base_offset


@asynchronous
async def test_a_large_segment_becomes_several_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES_MAX", 2_000)
    async with keeping() as keeper:
        partition = await keeper.fill(20, overrides={"segment.bytes": "7000"})
        await keeper.archive()
        assert len(archive_of(partition).pieces) > 2 * (len(partition.log.segments) - 1)
        assert all(piece.size_bytes <= 2_000 for piece in archive_of(partition).pieces)
        assert await all_values(keeper) == [value(number) for number in range(20)]


@asynchronous
async def test_after_a_restart_the_archive_is_known_and_goes_on() -> None:
    url = new_url()
    async with keeping(url) as keeper:
        await keeper.fill(20)
        await keeper.archive()
        end = archive_of(keeper.partition).end
    async with keeping(url, keeper.house) as later:
        assert (later.partition.log_start, archive_of(later.partition).end) == (0, end)
        assert await all_values(later) == [value(number) for number in range(20)]
        await later.fill(20, first=20)
        await later.archive()
        assert await all_values(later) == [value(number) for number in range(40)]
        assert later.partition.log.log_start > 20


@asynchronous
async def test_a_store_that_is_away_is_said_once_and_once_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.broker.archiving")
    async with keeping() as keeper:
        await keeper.fill(6)
        keeper.store.is_away = True
        for _ in range(3):
            await keeper.archiving.run_once()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        keeper.store.come_back()
        await keeper.archiving.run_once()
        await keeper.archiving.run_once()
        assert [record.message for record in caplog.records if "back" in record.message] == [
            caplog.records[0].message, "the archive is back",
        ]  # fmt: skip


@asynchronous
async def test_a_leader_that_was_replaced_announces_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.broker.archiving")
    async with keeping() as keeper:
        partition = await keeper.fill(6)
        partition.role = partition.role._replace(leader_epoch=9)  # the controller has heard of another term
        await keeper.archiving.run_once()
        assert partition.archive is None
        assert "not in 9" in caplog.text
        await keeper.housekeeping.expire()
        assert partition.log.log_start == 0


@asynchronous
async def test_a_leader_whose_disk_was_lost_goes_on_behind_the_archive() -> None:
    url = new_url()
    async with keeping(url) as keeper:
        await keeper.fill(20)
        await keeper.archive()
        end = archive_of(keeper.partition).end
    keeper.house.disk.remove_tree(f"{DATA}/{TOPIC}-0")
    async with keeping(url, keeper.house) as later:
        partition = later.partition
        assert (partition.log_start, partition.log.log_start, partition.log_end) == (0, end, end)
        await later.fill(10, first=end)
        await later.archive()
        assert await all_values(later) == [value(number) for number in range(end + 10)]


# Retention.


@asynchronous
async def test_retention_lets_the_oldest_go_in_the_metadata_first_and_then_in_the_store() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(40, overrides={"retention.bytes": "8000"})
        await keeper.archive()
        await keeper.archive()
        start = partition.log_start
        assert 20 < start < partition.log.log_start
        assert archive_of(partition).start == start
        kept = sum(piece.size_bytes for piece in archive_of(partition).pieces)
        assert 8_000 <= kept + partition.log.segments[-1].size_bytes < 8_000 + 3_000
        assert len(keeper.objects()) == 4 * len(archive_of(partition).pieces)
        assert await all_values(keeper, start) == [value(number) for number in range(start, 40)]


@asynchronous
async def test_what_is_too_old_goes_by_its_newest_record() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(20, overrides={"retention.ms": "3600000"})
        await keeper.archive()
        assert partition.log_start == 0
        keeper.house.clock.advance(3_600_000 + 10_500)
        await keeper.archive()
        assert 8 <= partition.log_start <= 11
        assert keeper.segments()[0].base_offset == partition.log_start


@asynchronous
async def test_objects_that_could_not_be_deleted_are_deleted_later() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(30, overrides={"retention.bytes": "100000"})
        await keeper.archive()
        whole = len(keeper.objects())
        await keeper.house.broker.set_topic_overrides(TOPIC, lambda was: {**was, "retention.bytes": "8000"})
        keeper.store.changes_left = 0
        await keeper.archiving.run_once()
        assert partition.log_start > 0, "it is forgotten"
        assert len(keeper.objects()) == whole
        keeper.store.come_back()
        await keeper.archiving.run_once()
        assert len(keeper.objects()) == 4 * len(archive_of(partition).pieces) < whole


# Deleting a topic, and settings.


@asynchronous
async def test_a_deleted_topic_takes_its_objects_along() -> None:
    async with keeping() as keeper:
        await keeper.fill(12)
        await keeper.archive()
        assert keeper.objects()
        broker = keeper.house.broker
        await broker.delete_topic(TOPIC)
        keeper.store.is_away = True
        await keeper.archiving.run_once()
        assert broker.metadata.image.doomed_archives
        keeper.store.come_back()
        await keeper.fill(4)  # a topic of the same name is another one
        await keeper.archiving.run_once()
        assert all(keeper.partition.topic_id.hex() in key for key in keeper.objects())
        assert broker.metadata.image.doomed_archives, "it is looked at again: a leader may have been putting still"
        await keeper.archiving.run_once()
        assert broker.metadata.image.doomed_archives == {}
        assert await all_values(keeper) == [value(number) for number in range(4)]


@asynchronous
async def test_archiving_is_not_turned_off_while_the_archive_has_something() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(12)
        broker = keeper.house.broker
        off = {"remote.storage.enable": "false", "segment.bytes": "1500"}
        await broker.set_topic_overrides(TOPIC, off)
        await broker.set_topic_overrides(TOPIC, lambda was: {**was, "remote.storage.enable": "true"})
        await keeper.archive()
        assert archive_of(partition).pieces
        assert await refusal_of(broker.set_topic_overrides(TOPIC, off)) is ErrorCode.INVALID_CONFIG


@asynchronous
async def test_an_archive_that_a_changed_default_has_stranded_goes() -> None:
    url = new_url()
    own = {"segment.bytes": "1500", "retention.bytes": "4000"}
    async with keeping(url, remote_storage_enable="true") as keeper:
        await keeper.house.broker.create_topic(TOPIC, 1, own)
        await keeper.fill(12)
        await keeper.archive()
        assert archive_of(keeper.partition).pieces
    async with keeping(url, keeper.house) as later:
        partition = await later.fill(20, first=12)
        await later.archive()
        await later.fill(20, first=32)
        await later.archive()
        await later.archive()
        assert archive_of(partition).pieces == ()
        assert later.objects() == []
        start = partition.log_start
        assert start == partition.log.log_start
        assert await all_values(later, start) == [value(number) for number in range(start, 52)]


@asynchronous
async def test_a_damaged_segment_is_said_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(8)
        await keeper.archive()
        lost = keeper.segments()[0]
        keeper.store.store.delete([lost.key(LOG), lost.key(STATE)])
        with pytest.raises(PeerError) as error:
            await read_chunk(keeper.house.broker, partition, 0, 1_000)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "archive" in str(error.value)
        assert (await read_chunk(keeper.house.broker, partition, lost.end_offset, 1_000)).data


@asynchronous
async def test_offsets_are_found_by_time_in_the_archive_and_on_the_disk() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(30)
        await keeper.archive()
        broker = keeper.house.broker
        for number in (0, 3, 11, partition.log.log_start - 1, partition.log.log_start, 29):
            found = await find_offset(broker, partition, START_MS + number * 1_000 - 500)
            assert found is not None
            assert (found.offset, found.timestamp) == (number, START_MS + number * 1_000)
        assert await find_offset(broker, partition, START_MS + 29_001) is None
