"""A partition as the doors see it: how far it can be read, and who is told when that moves."""

from __future__ import annotations

from odradek.broker.topics import Partition, Topic
from odradek.controller.image import PartitionImage
from odradek.model import OFFSETS_TOPIC
from tests.client.support import asynchronous
from tests.log.support import LogOnDisk, batch

NODE = 7


def partition_on(on_disk: LogOnDisk, epoch: int = 3) -> Partition:
    partition = Partition(Topic("orders", bytes(16), {}), 0, on_disk.log, NODE)
    partition.take_role(PartitionImage(replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=epoch), 0)
    return partition


def test_only_the_topic_of_offsets_is_internal() -> None:
    assert Topic(OFFSETS_TOPIC, bytes(16), {}).is_internal
    assert not Topic("orders", bytes(16), {}).is_internal


def test_a_partition_that_is_flushed_in_groups_can_be_read_as_far_as_it_is_flushed() -> None:
    partition = partition_on(LogOnDisk(flush="group"))
    written = partition.append(batch(b"a", b"b"))
    assert (written.base_offset, written.last_offset) == (0, 1)
    assert (partition.high_watermark, partition.log.next_offset) == (0, 2)
    partition.log.flush()
    partition.advanced()
    assert partition.high_watermark == 2


def test_a_partition_that_trusts_its_replicas_can_be_read_at_once() -> None:
    for flush in ("replicated", "os"):
        partition = partition_on(LogOnDisk(flush=flush))
        partition.append(batch(b"a"))
        partition.advanced()
        assert partition.high_watermark == 1
        assert partition.log.flushed_offset == 0


def test_the_last_stable_offset_stops_at_an_open_transaction_but_not_beyond_the_high_watermark() -> None:
    partition = partition_on(LogOnDisk())
    partition.append(batch(b"plain"))
    partition.append(batch(b"open", producer=(7, 0, 0), transactional=True))
    assert partition.last_stable_offset == 0, "nothing is flushed"
    partition.log.flush()
    partition.advanced()
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)


def test_records_carry_the_leaders_epoch() -> None:
    partition = partition_on(LogOnDisk(), epoch=9)
    partition.append(batch(b"a"))
    assert partition.log.epochs.latest == 9


def test_the_log_start_is_the_logs() -> None:
    partition = partition_on(LogOnDisk(flush="os"))
    partition.append(batch(b"a", b"b"))
    partition.log.delete_records(1).run()
    assert partition.log_start == 1


@asynchronous
async def test_those_who_wait_are_told_until_they_are_forgotten() -> None:
    partition = partition_on(LogOnDisk())
    told: list[str] = []

    def first() -> None:
        told.append("first")
        partition.forget(first)  # while it is being told

    def second() -> None:
        told.append("second")

    partition.wake_on_advance(first)
    partition.wake_on_advance(second)
    partition.advanced()
    partition.advanced()
    partition.forget(second)
    partition.forget(second)
    partition.advanced()
    assert sorted(told) == ["first", "second", "second"]
