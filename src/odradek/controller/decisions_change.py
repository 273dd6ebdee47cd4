"""One change of one partition: who may lead, when a reassignment is done, and which epochs rise.

Pure. Every decision about a partition goes through `settle`, so that what always holds is kept in one place: the leader
is in sync, those in sync are replicas and never none, and no epoch falls (KIP-455, KIP-497, KIP-631).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from odradek.controller.decisions_base import Facts
from odradek.controller.image import (
    NO_LEADER,
    PARTITION_CHANGE,
    ClusterImage,
    MetadataRecord,
    PartitionImage,
    TopicImage,
)


class Electorate:
    """Who may lead at the moment, best first: alive and active, active, or at least not fenced."""

    def __init__(
        self, image: ClusterImage, facts: Facts, *, fencing: int | None = None, stopping: int | None = None
    ) -> None:
        """Look at the brokers as they will be when one of them is fenced, or has begun to shut down."""
        unfenced = [broker for broker in image.brokers.values() if not broker.fenced and broker.id != fencing]
        self.unfenced = frozenset(broker.id for broker in unfenced)
        self.active = frozenset(broker.id for broker in unfenced if broker.is_active and broker.id != stopping)
        self._ranks = (self.active & facts.live, self.active, self.unfenced)

    @classmethod
    def with_unfenced(cls, image: ClusterImage, facts: Facts, broker_id: int) -> Electorate:
        """Look at the brokers as they will be when this one is fenced no more."""
        after = ClusterImage(brokers=dict(image.brokers))
        after.brokers[broker_id] = replace(image.brokers[broker_id], fenced=False)
        return cls(after, facts)

    def best(self, candidates: Sequence[int]) -> int:
        """The first of the best kind, or NO_LEADER."""
        for rank in self._ranks:
            for candidate in candidates:
                if candidate in rank:
                    return candidate
        return NO_LEADER


def settle(partition: PartitionImage, electorate: Electorate, *, preferred: int | None = None) -> PartitionImage:
    """Finish a reassignment that is done, and find a leader among those in sync if the present one cannot go on.

    `preferred` shall lead if it may. Epochs are left to `raised`.
    """
    settled = _completed(partition, electorate)
    isr = settled.isr
    if preferred is not None and preferred in isr and preferred in electorate.active:
        return settled._replace(leader=preferred)
    if settled.leader in isr and settled.leader in electorate.active:
        return settled
    return settled._replace(leader=electorate.best([replica for replica in settled.replicas if replica in isr]))


def settle_uncleanly(partition: PartitionImage, electorate: Electorate) -> PartitionImage:
    """Find a leader among those in sync, else among all replicas; then it alone is in sync, and records may be lost."""
    settled = settle(partition, electorate)
    if settled.leader != NO_LEADER:
        return settled
    whole = [replica for replica in settled.replicas if replica not in settled.adding]
    leader = electorate.best(whole)
    if leader == NO_LEADER:
        leader = electorate.best(settled.adding)
    return settled if leader == NO_LEADER else settle(settled._replace(isr=(leader,), leader=leader), electorate)


def raised(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """`after` with the epochs that it must have as the successor of `before`; the same if nothing changes."""
    if after == before:
        return after
    leader_epoch = before.leader_epoch + (after.leader != before.leader)
    return after._replace(leader_epoch=leader_epoch, partition_epoch=before.partition_epoch + 1)


def change_record(topic: TopicImage, index: int, after: PartitionImage) -> list[MetadataRecord]:
    """The record that makes the present partition into `after`, with its epochs raised; none if nothing changes."""
    before = topic.partitions[index]
    after = raised(before, after)
    if after == before:
        return []
    body: dict[str, Any] = {"topic_id": topic.id.hex(), "partition": index}
    for name, new, old in zip(PartitionImage._fields, after, before, strict=True):
        if new != old:
            body[name] = list(new) if isinstance(new, tuple) else new
    return [MetadataRecord(PARTITION_CHANGE, body)]


def _completed(partition: PartitionImage, electorate: Electorate) -> PartitionImage:
    """End a reassignment when all that were to come are in sync, and one that stays can lead."""
    if not partition.adding and not partition.removing:
        return partition
    isr = without(partition.isr, partition.removing)
    if not set(partition.adding) <= set(isr) or electorate.unfenced.isdisjoint(isr):
        return partition
    replicas = without(partition.replicas, partition.removing)
    return partition._replace(replicas=replicas, isr=isr, adding=(), removing=())


def without(broker_ids: Iterable[int], gone: Iterable[int]) -> tuple[int, ...]:
    """Those that stay, in their order."""
    leaving = frozenset(gone)
    return tuple(broker_id for broker_id in broker_ids if broker_id not in leaving)


def fence_changes(image: ClusterImage, facts: Facts, broker_id: int) -> list[MetadataRecord]:
    """Take a broker out of every in-sync set, and its leaderships away.

    Where nobody else is in sync it stays, without a leader: only it has all records.
    """
    electorate = Electorate(image, facts, fencing=broker_id)
    records: list[MetadataRecord] = []
    for topic, index, partition in image.all_partitions():
        if broker_id in partition.isr:
            isr = without(partition.isr, (broker_id,)) or partition.isr
            records += change_record(topic, index, settle(partition._replace(isr=isr), electorate))
    return records


def shutdown_changes(image: ClusterImage, facts: Facts, broker_id: int) -> list[MetadataRecord]:
    """Move what a broker leads to others in sync, and take it out of the in-sync sets that it does not lead."""
    electorate = Electorate(image, facts, stopping=broker_id)
    records: list[MetadataRecord] = []
    for topic, index, partition in image.all_partitions():
        if broker_id in partition.isr:
            after = settle(partition, electorate)
            if partition.leader == broker_id and after.leader != broker_id and after.leader not in facts.live:
                continue  # one that may be dead: it is fenced soon, or heard of
            if after.leader not in (broker_id, NO_LEADER):
                after = settle(after._replace(isr=without(after.isr, (broker_id,))), electorate)
            records += change_record(topic, index, after)
    return records


def awaited_followers(image: ClusterImage, broker_id: int) -> bool:
    """Whether the broker leads a partition that a live replica is about to catch up with, and could then lead."""
    active = frozenset(broker.id for broker in image.brokers.values() if broker.is_active and broker.id != broker_id)
    return any(
        partition.leader == broker_id and not active.isdisjoint(without(partition.replicas, partition.adding))
        for _, _, partition in image.all_partitions()
    )
