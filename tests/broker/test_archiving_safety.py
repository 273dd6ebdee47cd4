"""What must not happen to an archive: that somebody who lags behind, or has a bad disk, deletes what is announced."""

from __future__ import annotations

import asyncio
import threading

import pytest

from odradek.broker.archive_reading import find_offset, read_chunk
from odradek.broker.archiving import Archiving
from odradek.broker.broker import Broker
from odradek.controller.image_archive import Piece
from odradek.objects.archive import LOG, put_segment
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.archives import TOPIC, Keeper, keeping, new_url, value
from tests.broker.houses import DATA, START_MS, batch, refusal_of, values_of
from tests.client.support import asynchronous, until


def pieces_of(keeper: Keeper) -> tuple[Piece, ...]:
    assert keeper.partition.archive is not None
    return keeper.partition.archive.pieces


def another_life(keeper: Keeper) -> Archiving:
    """One that knows only what the metadata say."""
    return Archiving(keeper.house.broker, keeper.archiving._config, keeper.archiving._stores)


@asynchronous
async def test_a_leader_that_has_not_heard_of_its_successor_deletes_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nobody_answers(*_args: object, **_more: object) -> dict[str, object]:
        raise PeerError(ErrorCode.REQUEST_TIMED_OUT, "no leader")

    async with keeping() as keeper:
        partition = await keeper.fill(20)
        await keeper.archive()
        archive, objects = partition.archive, keeper.objects()
        assert archive is not None
        monkeypatch.setattr(Broker, "change", nobody_answers)  # it is cut off from all but the store
        for known in (None, archive._replace(pieces=archive.pieces[:2])):
            partition.archive = known
            await another_life(keeper).run_once()
            assert keeper.objects() == objects


@asynchronous
async def test_what_was_cut_short_goes_once_it_lies_behind_and_waits_until_then() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(12)
        await keeper.archive()
        topic_id, end = partition.topic_id.hex(), pieces_of(keeper)[-1].end_offset
        stray, _ = put_segment(keeper.store.store, TOPIC, topic_id, 0, end + 1, end + 2, bytes(batch(b"stray")))
        later = another_life(keeper)
        await later.run_once()
        assert stray.key(LOG) in keeper.objects(), "somebody may have announced it"
        lists = keeper.store.requests.lists
        await later.run_once()
        assert keeper.store.requests.lists == lists, "nothing has moved"
        await keeper.fill(8, first=12)
        await later.run_once()
        assert len(keeper.objects()) == 4 * len(pieces_of(keeper))
        lists = keeper.store.requests.lists
        await keeper.fill(8, first=20)
        await later.run_once()
        assert keeper.store.requests.lists == lists, "there is nothing left to look for"


@asynchronous
async def test_objects_go_also_if_their_announcement_had_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with keeping() as keeper:
        change = keeper.house.broker.change

        async def unanswered(command: str, args: dict[str, object], timeout_ms: int = 30_000) -> dict[str, object]:
            await change(command, args, timeout_ms)
            raise PeerError(ErrorCode.REQUEST_TIMED_OUT, "the change is made, but this broker has not heard of it")

        partition = await keeper.fill(12)
        monkeypatch.setattr(keeper.house.broker, "change", unanswered)
        await keeper.archiving.run_once()
        assert len(pieces_of(keeper)) == 1
        monkeypatch.undo()
        await keeper.archiving.run_once()
        await keeper.house.broker.set_topic_overrides(TOPIC, lambda was: {**was, "retention.bytes": "1"})
        await keeper.archive()
        assert partition.log_start > 2
        assert len(keeper.objects()) == 4 * len(pieces_of(keeper))


@asynchronous
async def test_a_disk_that_has_lost_its_segments_does_not_take_the_archive_along() -> None:
    url = new_url()
    async with keeping(url) as keeper:
        await keeper.fill(13)
        await keeper.archive()
        end = pieces_of(keeper)[-1].end_offset
        assert end < keeper.partition.log_end
    disk, folder = keeper.house.disk, f"{DATA}/{TOPIC}-0"
    for entry in disk.list(folder):
        if entry.name.endswith(".log"):
            disk.remove(f"{folder}/{entry.name}")
    async with keeping(url, keeper.house) as later:
        partition = later.partition
        assert partition.log.log_start == 13 > end
        await later.archive()
        assert len(later.objects()) == 4 * len(pieces_of(later)) > 0
        await later.fill(6, first=13)
        await later.archive()
        found, offset = list[bytes | None](), partition.log_start
        while offset < partition.high_watermark:
            chunk = await read_chunk(later.house.broker, partition, offset, 4_000)
            found += values_of(chunk.data)
            offset = chunk.next_offset
        assert found == [value(number) for number in (*range(end), *range(13, 19))]


@asynchronous
async def test_records_that_are_deleted_while_they_are_copied_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(12)
        put = keeper.store._put

        def put_slowly(key: str, parts: list[bytes], only_new: bool) -> None:
            if partition.log.log_start == 0:
                partition.log.delete_records(5).run()
            put(key, parts, only_new)

        monkeypatch.setattr(keeper.store, "_put", put_slowly)
        await keeper.archive()
        assert partition.log_start == 5
        assert pieces_of(keeper)[0].base_offset == 5
        assert len(keeper.objects()) == 4 * len(pieces_of(keeper))


@asynchronous
async def test_a_reader_that_gives_up_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(12)
        await keeper.archive()
        asked, may_answer = threading.Event(), threading.Event()

        def hang(_key: str, _start: int, _length: int) -> bytes:
            asked.set()
            may_answer.wait(30)
            return b""

        monkeypatch.setattr(keeper.store, "_get_range", hang)
        reading = asyncio.create_task(read_chunk(keeper.house.broker, partition, 0, 4_000))
        try:
            await until(asked.is_set)
            reading.cancel()
            done, _ = await asyncio.wait([reading], timeout=5)
            assert done, "a broker could not stop"
        finally:
            may_answer.set()


@asynchronous
async def test_a_store_that_is_away_is_no_offset_that_is_gone() -> None:
    async with keeping() as keeper:
        partition = await keeper.fill(12)
        await keeper.archive()
        first = pieces_of(keeper)[0]
        assert first.end_offset > first.base_offset + 1
        place = {"topic_id": partition.topic_id.hex(), "partition": 0, "leader_epoch": partition.leader_epoch}
        await keeper.house.broker.change("forget-archived", {**place, "start": first.base_offset + 1})
        assert partition.log_start == first.base_offset + 1
        keeper.store.is_away = True
        assert await refusal_of(find_offset(keeper.house.broker, partition, START_MS)) is ErrorCode.KAFKA_STORAGE_ERROR


@asynchronous
async def test_a_segment_whose_bytes_have_changed_is_not_archived_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    async with keeping(store_threads=1) as keeper:
        partition = await keeper.fill(12)
        await keeper.house.broker.create_topic("others", 1, {"remote.storage.enable": "true", "segment.bytes": "1500"})
        for number in range(6):
            await keeper.house.produce("others", value(number))
        damaged = partition.log.segments[1]
        name = f"{DATA}/{TOPIC}-0/{damaged.base_offset:020d}.log"
        keeper.house.disk.overwrite(name, b"?", at=damaged.size_bytes - 10)
        for _ in range(2):
            await keeper.archive()
        assert pieces_of(keeper)[-1].end_offset == damaged.base_offset == partition.log.log_start
        assert len(keeper.objects()) == 4 * len(keeper.segments()) + 4 * len(keeper.segments("others"))
        assert keeper.segments("others")
        assert caplog.text.count("is not archived any further") == 1
