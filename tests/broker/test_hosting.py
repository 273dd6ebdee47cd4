"""A broker as the metadata wants it: logs that are made, kept and dropped, and roles that are taken in time."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.controller.image import MetadataRecord
from odradek.model import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode
from tests.broker.houses import DATA, House, SlowDisk, at_home, batch, refusal_of
from tests.client.support import asynchronous, tick, until

OWN, OTHER = 1, 2
LONG: dict[str, Any] = {"broker_session_timeout_ms": "10m"}


async def register_other(house: House) -> None:
    """Let another broker be known and counted on, without a process."""
    call = house.broker.metadata.call
    other = {"broker_id": OTHER, "incarnation": "x", "kafka": None, "http": None, "rack": None}
    epoch = (await call("register-broker", other))["broker_epoch"]
    beat = {"broker_id": OTHER, "broker_epoch": epoch, "applied_offset": epoch + 1}
    await call("heartbeat", {**beat, "wants_shutdown": False, "wants_fence": False})


class Listener:
    """Hears which partitions of the groups' topic are led."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int | None]] = []

    def lead(self, index: int, epoch: int) -> None:
        self.heard.append(("lead", index, epoch))

    def resign(self, index: int, epoch: int | None) -> None:
        self.heard.append(("resign", index, epoch))


@asynchronous
async def test_offsets_that_a_bad_disk_lost_are_not_given_out_again_by_the_only_replica() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await house.broker.create_topic("orders", 1, {})
        for number in range(10):
            await house.produce("orders", b"%d" % number)
        file = f"{DATA}/orders-0/{0:020d}.log"
        half = len(disk.read_file(file) or b"") // 2
    disk.truncate_file(file, half)
    async with at_home(disk) as house:
        assert await house.produce("orders", b"new") == 10


@asynchronous
async def test_a_replica_whose_disk_lost_records_gets_them_again_from_its_leader() -> None:
    disk = SlowDisk()
    async with at_home(disk, **LONG) as house:
        await register_other(house)
        await house.broker.change_topic("orders", 1, {}, -1, {"0": [OWN, OTHER]})
        for number in range(10):
            house.broker.partition("orders", 0).append(batch(b"%d" % number))
        house.broker.partition("orders", 0).log.flush()
        file = f"{DATA}/orders-0/{0:020d}.log"
        half = len(disk.read_file(file) or b"") // 2
    disk.truncate_file(file, half)
    async with at_home(disk, **LONG) as house:
        replica = house.broker.replica("orders", 0)
        assert replica.role.leader == OTHER
        assert replica.log.next_offset == 5, "it asks for the rest"


@asynchronous
async def test_a_coordinator_that_leads_on_in_a_later_term_hears_of_it_and_not_of_its_end() -> None:
    async with at_home(**LONG) as house:
        listener = house.broker.hosting.offsets = Listener()
        await house.broker.create_topic(OFFSETS_TOPIC, 1, {}, internal=True)
        await tick()
        assert listener.heard == [("lead", 0, 0)]
        partition = house.broker.partition(OFFSETS_TOPIC, 0)
        house.broker.hosting._assign(partition, partition.role._replace(leader_epoch=2, partition_epoch=2))
        await tick()
        assert listener.heard == [("lead", 0, 0), ("lead", 0, 2)]
        house.broker.hosting._assign(partition, partition.role._replace(leader=OTHER, leader_epoch=3))
        assert listener.heard[-1] == ("resign", 0, 3)


@asynchronous
async def test_a_partition_that_gets_a_second_replica_while_a_record_is_flushed_waits_for_it() -> None:
    async with at_home(**LONG) as house:
        await register_other(house)
        await house.broker.change_topic("orders", 1, {}, -1, {"0": [OWN]})
        partition = house.broker.partition("orders", 0)
        house.disk.may_flush.clear()
        end = partition.append(batch(b"a")).last_offset + 1
        answer = house.broker.committed(partition, end)
        grown = partition.role._replace(replicas=(OWN, OTHER), isr=(OWN, OTHER), partition_epoch=5)
        partition.take_role(grown, 0)
        house.disk.may_flush.set()
        await until(lambda: partition.log.flushed_offset == end)
        await tick()
        assert not answer.done(), "the other replica has nothing yet"
        assert partition.progress is not None
        partition.progress.fetched(OTHER, end, end, 1, 1)
        partition.advanced()
        await asyncio.wait_for(answer, 10)


@asynchronous
async def test_roles_change_while_logs_of_another_topic_are_being_made() -> None:
    async with at_home(**LONG) as house:
        await register_other(house)
        await house.broker.change_topic("orders", 1, {}, -1, {"0": [OWN, OTHER]})
        house.broker.hosting._task.cancel()  # type: ignore[union-attr]  # it makes logs, for ever
        metadata = house.broker.metadata
        changed = {"topic_id": house.broker.topics["orders"].id.hex(), "partition": 0, "partition_epoch": 9}
        record = MetadataRecord("partition-change", {**changed, "leader": OTHER, "leader_epoch": 7, "isr": [OTHER]})
        metadata.applied(metadata.applied_offset, [record])
        assert not house.broker.replica("orders", 0).is_leader


@asynchronous
async def test_a_log_of_a_topic_that_this_cluster_never_knew_is_left_alone() -> None:
    disk = SlowDisk()
    async with at_home(disk) as house:
        await house.broker.create_topic("orders", 1, {})
        await house.produce("orders", b"a")
        house.broker.partition("orders", 0).log.state.topic_id = ""
        house.broker.partition("orders", 0).log.state.save()
        tp = house.broker.partition("orders", 0).tp
        house.broker.hosting._drop_moved(tp)
        assert tp in house.broker.store.logs


@asynchronous
async def test_a_disk_that_fails_is_told_to_whoever_waits_for_replicas() -> None:
    async with at_home(**LONG) as house:
        await register_other(house)
        await house.broker.change_topic("orders", 1, {}, -1, {"0": [OWN, OTHER]})
        partition = house.broker.partition("orders", 0)
        house.disk.fail_next("flush", 5, ending=".log")
        end = partition.append(batch(b"a")).last_offset + 1
        answer = house.broker.committed(partition, end)
        await asyncio.wait({answer}, timeout=10)
        assert answer.exception() is not None
        assert house.broker.failed.done()


@asynchronous
async def test_what_readers_have_seen_they_see_after_a_restart_although_too_few_are_in_sync() -> None:
    disk = SlowDisk()
    async with at_home(disk, **LONG) as house:
        await register_other(house)
        await house.broker.change_topic("orders", 1, {"min.insync.replicas": "2"}, -1, {"0": [OWN, OTHER]})
        partition = house.broker.partition("orders", 0)
        end = partition.append(batch(b"a")).last_offset + 1
        await house.broker.flushed(partition, end)
        assert partition.progress is not None
        partition.progress.fetched(OTHER, end, end, 1, 1)
        partition.advanced()
        partition.append(batch(b"b"))
        await house.broker.metadata.call("fence-broker", {"broker_id": OTHER})
        await house.broker.hosting.settled()
        assert (partition.role.isr, partition.high_watermark) == ((OWN,), 1)
    async with at_home(disk, **LONG) as house:
        partition = house.broker.partition("orders", 0)
        assert (partition.role.isr, partition.high_watermark, partition.log.next_offset) == ((OWN,), 1, 2)


@asynchronous
async def test_a_topic_that_goes_takes_no_more_records_though_another_is_still_being_cleared_away() -> None:
    async with at_home() as house:
        broker = house.broker
        for name in ("busy", "orders"):
            await broker.create_topic(name, 1, {})
        house.disk.may_flush.clear()
        for name in ("busy", "orders"):
            broker.partition(name, 0).append(batch(b"x"))
        busy, waiting = (broker.committed(broker.partition(name, 0), 1) for name in ("busy", "orders"))
        await until(lambda: house.disk.flushes_begun > 0)
        deleting = [asyncio.create_task(broker.delete_topic(name)) for name in ("busy", "orders")]
        await until(lambda: not broker.metadata.image.topics)
        assert broker.topics == {}
        for future in (busy, waiting):
            assert await refusal_of(future) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        making = asyncio.create_task(broker.create_topic("orders", 1, {}))
        await until(lambda: "orders" in broker.metadata.image.topics)
        assert not any(task.done() for task in (*deleting, making)), "the disk has not flushed yet"
        house.disk.may_flush.set()
        await asyncio.gather(*deleting, making)
        assert await house.produce("orders", b"new") == 0
