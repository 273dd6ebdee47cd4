"""Partitions that are made and deleted one by one: what is deleted is gone everywhere, what is made again is empty."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.broker.housekeeping import Housekeeping
from odradek.broker.topics import Partition
from odradek.broker.watermarks import Watermarks
from odradek.config import Settings
from odradek.controller.changes import Changes
from odradek.controller.decisions import Facts, decide
from odradek.controller.image import ClusterImage, PartitionImage, PartitionLimits
from odradek.log.config import LogConfig
from odradek.log.state import STATE_NAME
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import DATA, House, SlowDisk, at_home, batch, refusal_of, values_of
from tests.broker.test_hosting import LONG, OTHER, OWN, register_other
from tests.client.support import asynchronous, tick, until

LIMITS = PartitionLimits(segment_bytes=4096, partition_bytes=0, ttl_seconds=0)
SMALL = PartitionLimits(segment_bytes=100, partition_bytes=200, ttl_seconds=60)


async def make(house: House, *indexes: int, topic: str = "books", limits: PartitionLimits = LIMITS) -> None:
    for index in indexes:
        await house.broker.create_partition(topic, index, limits)


async def make_again_at_once(house: House, index: int, topic: str = "books") -> None:
    """Delete a partition and make it again, so that the broker hears of both in one batch of records."""
    active = house.broker.metadata._active
    assert active is not None
    working = active.working.copy()
    records: list[Any] = []
    for command in ("delete-partition", "create-partition"):
        facts = Facts(0, 1, frozenset({1}), 0, active._chance, active.next_offset + len(records))
        args = {"name": topic, "partition": index, "limits": LIMITS._asdict()}
        for record in decide(command, working, args, facts).records:
            working.apply(record, active.next_offset)
            records.append(record)
    assert len(records) == 2
    await active.commit(records)
    await house.broker.hosting.settled()


def content(house: House, index: int, topic: str = "books") -> list[bytes | None]:
    log = house.broker.replica(topic, index).log
    chunk = log.read(log.log_start, 1 << 20)
    return [] if chunk is None else values_of(chunk.data)


def files_of(disk: SlowDisk, directory: str) -> dict[str, bytes]:
    return {entry.name: disk.read_file(f"{directory}/{entry.name}") or b"" for entry in disk.list(directory)}


def put_back(disk: SlowDisk, directory: str, files: dict[str, bytes]) -> None:
    disk.remove_tree(directory) if disk.exists(directory) else None
    disk.make_directory(directory)
    for name, data in files.items():
        disk.write_atomic(f"{directory}/{name}", data)


@asynchronous
async def test_partitions_need_not_be_numbered_in_a_row() -> None:
    async with at_home() as house:
        await make(house, 7, 2)
        for index in (7, 2):
            assert await house.produce("books", b"%d" % index, partition=index) == 0
        assert sorted(house.broker.topic("books").partitions) == [2, 7]
        for gone in (0, 3, 8, -1):
            with pytest.raises(PeerError) as refused:
                house.broker.partition("books", gone)
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await house.broker.add_partitions("books", 9)
        assert sorted(house.broker.topic("books").partitions) == [2, 7, 8]


@asynchronous
async def test_a_thousand_who_make_one_partition_at_once_make_one() -> None:
    async with at_home() as house:
        answers = await asyncio.gather(*(refusal_of(make(house, 3)) for _ in range(1_000)))
        assert Counter(answers) == {ErrorCode.NONE: 1, ErrorCode.TOPIC_ALREADY_EXISTS: 999}


@asynchronous
async def test_many_partitions_of_many_topics_are_made_side_by_side() -> None:
    async with at_home() as house:
        await asyncio.gather(*(make(house, number // 8, topic=f"t{number % 8}") for number in range(400)))
        assert len(house.broker.store.logs) == 400
        assert {topic.number for topic in house.broker.metadata.image.topics.values()} == set(range(1, 9))


@asynchronous
async def test_the_last_partition_takes_the_topic_with_it() -> None:
    async with at_home() as house:
        await make(house, 1, 4)
        await house.broker.delete_partition("books", 1)
        assert list(house.broker.topic("books").partitions) == [4]
        await house.broker.delete_partition("books", 4)
        assert "books" not in house.broker.topics
        assert await refusal_of(house.broker.delete_partition("books", 4)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert house.broker.store.logs == {}


@asynchronous
async def test_what_cannot_be_made_or_deleted_is_refused() -> None:
    async with at_home(partitions_max=10) as house:
        for name, index, code in (
            ("a/b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
            (OFFSETS_TOPIC, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("x" * 250, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("books", -1, ErrorCode.INVALID_PARTITIONS),
            ("books", 10, ErrorCode.INVALID_PARTITIONS),
        ):
            assert await refusal_of(house.broker.create_partition(name, index, LIMITS)) is code
        assert await refusal_of(house.broker.delete_partition(OFFSETS_TOPIC, 0)) is ErrorCode.INVALID_REQUEST
    async with at_home(delete_topic_enable="false") as house:
        await make(house, 0, 1)
        assert await refusal_of(house.broker.delete_partition("books", 0)) is ErrorCode.TOPIC_DELETION_DISABLED


@asynchronous
async def test_topics_in_an_object_store_are_left_whole() -> None:
    async with at_home(remote_storage_enable="true") as house:
        await house.broker.create_topic("archived", 2, {})
        for action in (house.broker.delete_partition("archived", 1), make(house, 5, topic="archived")):
            assert await refusal_of(action) is ErrorCode.INVALID_REQUEST
        await make(house, 0, 1)  # where archives are the default this one has none
        assert not house.broker.topic("books").is_archived
        await house.broker.delete_partition("books", 1)


@asynchronous
async def test_a_partition_that_is_made_again_is_empty_and_its_leader_newer() -> None:
    async with at_home() as house:
        await make(house, 0, 1)
        old = house.broker.partition("books", 1)
        await house.produce("books", b"old", partition=1)
        await house.broker.delete_partition("books", 1)
        await make(house, 1)
        new = house.broker.partition("books", 1)
        assert new is not old
        assert (new.generation, new.leader_epoch) == (1, old.leader_epoch + 1)
        assert content(house, 1) == []
        assert await house.produce("books", b"new", partition=1) == 0
        assert house.broker.partition("books", 0).generation == 0


@asynchronous
async def test_a_broker_that_hears_of_both_at_once_begins_anew_too() -> None:
    async with at_home() as house:
        await make(house, 0, 1)
        await house.produce("books", b"old", partition=1)
        old = house.broker.partition("books", 1)
        await make_again_at_once(house, 1)
        assert house.broker.partition("books", 1) is not old
        assert content(house, 1) == []
        assert not old.is_leader
        with pytest.raises(Exception, match="deleted"):
            old.append(batch(b"late"))


@asynchronous
async def test_the_old_one_never_leads_as_the_new_one_not_even_for_a_moment() -> None:
    async with at_home() as house:
        await make(house, 0, 1)
        old, follow = house.broker.partition("books", 1), house.broker.metadata.on_change
        seen: list[tuple[bool, int]] = []

        def look(image: ClusterImage, changes: Changes) -> None:
            assert follow is not None
            follow(image, changes)
            seen.append((old.is_leader, old.leader_epoch))

        house.broker.metadata.on_change = look
        await make_again_at_once(house, 1)
        assert seen[0] == (False, 0), "it ends at once, in its own term"


@asynchronous
async def test_a_broker_that_was_away_while_a_partition_was_made_again_has_none_of_the_old_records() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await make(house, 0, 1)
        for index in (0, 1):
            await house.produce("books", b"old", partition=index)
    before = files_of(disk, f"{DATA}/books-1")
    async with at_home(disk) as house:
        await house.broker.delete_partition("books", 1)
        await make(house, 1)
        await house.produce("books", b"new", partition=1)
    after = files_of(disk, f"{DATA}/books-1")
    put_back(disk, f"{DATA}/books-1", before)
    async with at_home(disk) as house:
        assert content(house, 1) == []
        assert content(house, 0) == [b"old"]
    put_back(disk, f"{DATA}/books-1", after)
    async with at_home(disk) as house:
        assert content(house, 1) == [b"new"], "what is of the new one stays"


@asynchronous
async def test_what_a_bad_disk_lost_of_the_old_one_is_not_missed_in_the_new_one() -> None:
    disk = SlowDisk()
    directory, file = f"{DATA}/books-1", f"{DATA}/books-1/{0:020d}.log"
    async with at_home(disk, **LONG) as house:
        await register_other(house)
        await make(house, 0, 1)
        old = house.broker.replica("books", 1)
        for number in range(10):
            old.log.append(batch(b"%d" % number), old.leader_epoch)
        old.log.flush()
    before = files_of(disk, directory)
    async with at_home(disk, **LONG) as house:
        await house.broker.delete_partition("books", 1)
        await make(house, 1)
    put_back(disk, directory, before)  # as if it had been away
    disk.truncate_file(file, len(before[f"{0:020d}.log"]) // 2)
    async with at_home(disk, **LONG) as house:
        replica = house.broker.replica("books", 1)
        assert (replica.generation, replica.role.leader) == (1, OTHER)
        assert (replica.log.log_start, replica.log.next_offset) == (0, 0)


@asynchronous
async def test_a_broker_that_was_away_while_a_partition_was_deleted_frees_it() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await make(house, 0, 1)
        await house.produce("books", b"old", partition=1)
    before = files_of(disk, f"{DATA}/books-1")
    async with at_home(disk) as house:
        await house.broker.delete_partition("books", 1)
    put_back(disk, f"{DATA}/books-1", before)
    async with at_home(disk) as house:
        assert TopicPartition("books", 1) not in house.broker.store.logs
        await until(lambda: not disk.exists(f"{DATA}/books-1"))


@asynchronous
async def test_a_log_without_an_owner_is_not_taken_for_one_of_a_partition_that_was_made_again() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await make(house, 0, 1)
        await house.produce("books", b"old", partition=1)
    before = files_of(disk, f"{DATA}/books-1")
    async with at_home(disk) as house:
        await house.broker.delete_partition("books", 1)
        await make(house, 1)
    assert before.pop(STATE_NAME)
    put_back(disk, f"{DATA}/books-1", before)
    async with at_home(disk) as house:
        assert content(house, 1) == []


@pytest.mark.parametrize("again", [False, True])
@asynchronous
async def test_a_damaged_log_goes_with_its_partition(again: bool) -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await make(house, 0, 1)
        await house.produce("books", b"old", partition=1)
    disk.fail_next("read", 5, ending="books-1/" + "0" * 20 + ".log")
    async with at_home(disk) as house:
        tp = TopicPartition("books", 1)
        assert tp in house.broker.store.offline
        if again:
            await make_again_at_once(house, 1)
            assert content(house, 1) == []
        else:
            await house.broker.delete_partition("books", 1)
        assert tp not in house.broker.store.offline


@asynchronous
async def test_who_waits_for_a_partition_hears_that_it_is_gone() -> None:
    async with at_home() as house:
        await make(house, 0, 1)
        partition = house.broker.partition("books", 1)
        woken = asyncio.Event()
        partition.wake_on_advance(woken.set)
        house.disk.may_flush.clear()
        end = partition.append(batch(b"never safe")).last_offset + 1
        waiting = house.broker.committed(partition, end)
        await until(lambda: house.disk.flushes_begun > 0)
        deleting = asyncio.create_task(house.broker.delete_partition("books", 1))
        with pytest.raises(PeerError) as failed:
            await waiting
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert woken.is_set()
        house.disk.may_flush.set()
        await deleting
        assert await house.produce("books", b"fine", partition=0) == 0


@asynchronous
async def test_partitions_come_and_go_under_load_and_what_is_acknowledged_is_there() -> None:
    async with at_home() as house:
        await make(house, 0, 1)
        stored: Counter[int] = Counter()
        ends = False

        async def write() -> None:
            while not ends:
                try:
                    partition = house.broker.partition("books", 1)
                    end = partition.append(batch(b"x")).last_offset + 1
                    await house.broker.committed(partition, end)
                    stored[partition.generation] = max(stored[partition.generation], end)
                except PeerError as error:
                    assert error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    await tick()

        writers = [asyncio.create_task(write()) for _ in range(5)]
        for generation in range(8):
            await until(lambda generation=generation: stored[generation] > 3)  # type: ignore[misc]
            await house.broker.delete_partition("books", 1)
            await make(house, 1)
        ends = True
        await asyncio.gather(*writers)
        last = house.broker.partition("books", 1)
        assert last.generation == 8
        assert last.log.next_offset >= stored[8]
        assert not house.broker.failed.done()


@asynchronous
async def test_a_deletion_that_comes_while_the_log_is_made_is_followed() -> None:
    async with at_home() as house:
        await make(house, 0)
        making = asyncio.create_task(make(house, *range(1, 6)))
        deleting = [asyncio.create_task(_delete_when_there(house, index)) for index in range(1, 6)]
        await asyncio.gather(making, *deleting)
        assert list(house.broker.topic("books").partitions) == [0]
        assert list(house.broker.store.logs) == [TopicPartition("books", 0)]


async def _delete_when_there(house: House, index: int) -> None:
    await until(lambda: house.broker.metadata.image.partition("books", index) is not None)
    await house.broker.delete_partition("books", index)


@asynchronous
async def test_what_was_remembered_of_the_old_one_says_nothing_about_the_new_one() -> None:
    disk = SlowDisk()
    async with at_home(disk, **LONG) as house:
        await register_other(house)
        await house.broker.change_topic("books", 2, {}, -1, {"0": [OWN, OTHER], "1": [OWN, OTHER]})
        old = house.broker.partition("books", 1)
        old.append(batch(*(b"%d" % number for number in range(9))))
        old.high_watermark = 9
        house.broker.watermarks.save([old])
        assert Watermarks(disk, DATA).of(old.topic_id, 1) == 9
        await house.broker.delete_partition("books", 1)
        await make(house, 1)
        new = house.broker.replica("books", 1)
        assert (new.high_watermark, house.broker.watermarks.of(new.topic_id, 1, 1)) == (0, 0)
        house.broker.watermarks.save([new])
        assert Watermarks(disk, DATA).of(new.topic_id, 1) == 0


@asynchronous
async def test_groups_forget_a_deleted_partition_before_anybody_can_use_the_new_one() -> None:
    async with at_home() as house:
        told: list[tuple[str, int]] = []
        house.broker.on_partition_deleted = lambda topic, index: told.append((topic, index))
        await make(house, 0, 1, 5)
        assert told == []
        await house.broker.delete_partition("books", 5)
        await make_again_at_once(house, 1)
        assert told == [("books", 5), ("books", 1)]
        await house.broker.create_topic("others", 3, {})
        await house.broker.delete_topic("others")
        assert len(told) == 2, "a topic is told of as a whole"


@asynchronous
async def test_limits_hold_at_once_and_after_a_restart_whatever_the_topic_has() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await make(house, 0, limits=SMALL)
        await house.broker.add_partitions("books", 2)
        await house.broker.set_topic_overrides("books", {"retention.ms": "77", "cleanup.policy": "compact"})
        check_limits(house)
    async with at_home(disk) as house:
        check_limits(house)
        await house.broker.set_topic_overrides("books", {"retention.ms": "77"})
        assert house.broker.partition("books", 0).log.config.retention_ms == 60_000


def check_limits(house: House) -> None:
    config = house.broker.partition("books", 0).log.config
    assert (config.segment_bytes, config.retention_bytes, config.retention_ms) == (100, 101, 60_000)
    assert (config.deletes, config.compacts) == (True, False)
    plain = house.broker.partition("books", 1).log.config
    assert (plain.segment_bytes, plain.retention_ms, plain.compacts) == (1 << 30, 77, True)


@asynchronous
async def test_a_partition_without_limits_of_size_and_age_keeps_everything() -> None:
    async with at_home(retention_ms=5) as house:
        await make(house, 0)
        config = house.broker.partition("books", 0).log.config
        assert (config.segment_bytes, config.retention_bytes, config.retention_ms) == (4096, -1, -1)


@asynchronous
async def test_a_log_that_rolls_is_expired_without_the_timer() -> None:
    async with at_home() as house:
        housekeeping = Housekeeping(house.broker)
        housekeeping.start()
        try:
            await make(house, 0, limits=SMALL)
            for number in range(30):
                await house.produce("books", b"%020d" % number)
            partition = house.broker.partition("books", 0)
            await until(lambda: len(partition.log.segments) <= 3)
            assert partition.log_start > 20
            assert partition.log.next_offset == 30
        finally:
            await housekeeping.close()


@asynchronous
async def test_what_no_replica_confirmed_does_not_expire_at_a_roll() -> None:
    async with at_home(**LONG) as house:
        await register_other(house)
        housekeeping = Housekeeping(house.broker)
        housekeeping.start()
        try:
            await make(house, 0, limits=PartitionLimits(1024, 1, 0))
            partition = house.broker.partition("books", 0)
            assert set(partition.role.replicas) == {OWN, OTHER}
            for number in range(5):
                await house.produce("books", b"%01000d" % number)
            assert (partition.high_watermark, partition.log_start) == (0, 0)
            assert len(partition.log.segments) == 5
            assert partition.progress is not None
            epoch = house.broker.metadata.image.brokers[OTHER].epoch
            partition.progress.fetched(OTHER, 5, 5, house.broker.monotonic_ms(), epoch)
            partition.advanced()
            await until(lambda: len(partition.log.segments) == 1)
        finally:
            await housekeeping.close()


@asynchronous
async def test_a_partition_more_or_less_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands, made one by one: each must not cost as much as all."""
    async with at_home() as house:
        await make(house, *range(4))
        hosting, assigned = house.broker.hosting, Counter[int]()
        assign = hosting._assign

        def counted(partition: Partition, role: PartitionImage) -> None:
            assigned[partition.index] += 1
            assign(partition, role)

        monkeypatch.setattr(hosting, "_assign", counted)
        await make(house, 7)
        await house.broker.delete_partition("books", 2)
        assert set(assigned) == {7}
        assert [house.broker.replica("books", index).is_leader for index in (0, 1, 3, 7)] == [True] * 4


@asynchronous
async def test_the_settings_of_a_topic_are_worked_out_once_for_all_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with at_home() as house:
        work_out, asked = Settings.log_config, Counter[str]()

        def counted(settings: Settings, overrides: Mapping[str, str]) -> LogConfig:
            asked["times"] += 1
            return work_out(settings, overrides)

        monkeypatch.setattr(Settings, "log_config", counted)
        await house.broker.create_topic("few", 1, {})
        few, asked["times"] = asked["times"], 0
        await house.broker.create_topic("many", 50, {})
        assert 0 < asked["times"] == few
