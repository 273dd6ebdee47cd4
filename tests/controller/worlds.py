"""A cluster of nothing but metadata: commands are decided and applied at once, and the image is checked each time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from odradek.controller.decisions import Decision, Facts, decide
from odradek.controller.image import NO_LEADER, ClusterImage, MetadataRecord, PartitionImage

Result = dict[str, Any]


class World:
    """An image with its log, and the sessions that are said to be alive."""

    def __init__(self, brokers: Iterable[int] = (), racks: Mapping[int, str] | None = None) -> None:
        self.image = ClusterImage(cluster_id="c")
        self.log: list[MetadataRecord] = []
        self.live: set[int] = set()
        self.facts = Facts(0, 1, frozenset(), 0, Random(5), 0)
        for broker_id in brokers:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.beat(broker_id)

    def decide(self, command: str, **args: Any) -> Decision:
        """What the controller would do. Arguments go through JSON, as between brokers."""
        facts = replace(self.facts, live=frozenset(self.live), next_offset=len(self.log))
        before = self.image.to_json()
        decision = decide(command, self.image, json.loads(json.dumps(args)), facts)
        assert self.image.to_json() == before, "a decision changes nothing itself"
        return decision

    def do(self, command: str, **args: Any) -> Result:
        """Let the controller do it; each record alone must leave a sound image."""
        decision = self.decide(command, **args)
        for record in decision.records:
            self.write(record)
        result: Result = json.loads(json.dumps(decision.result))
        return result

    def write(self, record: MetadataRecord) -> None:
        """Apply one record as it would come from the disk."""
        record = MetadataRecord(record.type, json.loads(json.dumps(record.body)))
        before = {(topic.id, index): each for topic, index, each in self.image.all_partitions()}
        self.image.apply(record, len(self.log))
        self.log.append(record)
        check_sound(self.image)
        for topic, index, after in self.image.all_partitions():
            check_epochs(before.get((topic.id, index), after), after)

    # What brokers and operators do.

    def register(self, broker_id: int, incarnation: str = "a", rack: str | None = None, **more: Any) -> int:
        args = {"broker_id": broker_id, "incarnation": incarnation, "kafka": ["h", 9000 + broker_id], "http": None}
        epoch: int = self.do("register-broker", **args, rack=rack, **more)["broker_epoch"]
        return epoch

    def beat(self, broker_id: int, *, behind: bool = False, **wants: bool) -> Result:
        self.live.add(broker_id)
        epoch = self.epoch(broker_id)
        applied_offset = epoch - 1 if behind else len(self.log)
        return self.do("heartbeat", broker_id=broker_id, broker_epoch=epoch, applied_offset=applied_offset, **wants)

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.live.discard(broker_id)
            self.do("fence-broker", broker_id=broker_id)

    def topic(self, name: str = "t", *assignments: list[int], partitions: int = 1, factor: object = -1) -> Result:
        if assignments:
            given = {str(index): replicas for index, replicas in enumerate(assignments)}
            return self.do("create-topic", name=name, partitions=len(given), assignments=given)
        return self.do("create-topic", name=name, partitions=partitions, replication_factor=factor)

    def alter(self, isr: Iterable[int], topic: str = "t", index: int = 0, leader: int | None = None) -> Result:
        """Let the leader propose an in-sync set with all epochs as they are."""
        partition = self.partition(topic, index)
        return self.alter_as(partition.leader if leader is None else leader, isr, topic, index)

    def alter_as(self, broker: int, members: Iterable[int], topic: str = "t", index: int = 0, **changed: Any) -> Result:
        partition = self.partition(topic, index)
        asked = {
            "topic_id": self.image.topics[topic].id.hex(),
            "partition": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "isr": [
                [member, self.image.brokers[member].epoch if member in self.image.brokers else -1] for member in members
            ],
        }
        result = self.do(
            "alter-partition", broker_id=broker, broker_epoch=self.epoch(broker), partitions=[asked | changed]
        )
        (answer,) = result["partitions"]
        assert isinstance(answer, dict)
        return answer

    def reassign(self, replicas: list[int] | None, topic: str = "t", index: int = 0) -> Result:
        return self.do("reassign", partitions=[{"topic": topic, "partition": index, "replicas": replicas}])

    def partition(self, topic: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[topic].partitions[index]


def check_sound(image: ClusterImage) -> None:
    """What holds of every image that decisions have made."""
    for topic, index, partition in image.all_partitions():
        name = f"{topic.name}-{index}: {partition}"
        replicas, isr = set(partition.replicas), set(partition.isr)
        assert replicas, name
        assert len(replicas) == len(partition.replicas), name
        assert isr, name
        assert len(isr) == len(partition.isr), name
        assert isr <= replicas, name
        assert partition.leader == NO_LEADER or partition.leader in isr, name
        assert partition.leader == NO_LEADER or not image.brokers[partition.leader].fenced, name
        assert set(partition.adding) | set(partition.removing) <= replicas, name
        assert not set(partition.adding) & set(partition.removing), name
        assert replicas - set(partition.removing), name
        assert replicas <= set(image.brokers), name
        if len(isr) > 1:
            assert not any(image.brokers[member].fenced for member in isr), name
    assert image.names == {topic.id: name for name, topic in image.topics.items()}
    assert len(image.metric_names) == len(image.topics)


def check_epochs(before: PartitionImage, after: PartitionImage) -> None:
    """What holds between an image of a partition and the next."""
    assert after.partition_epoch == before.partition_epoch + (after != before), (before, after)
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader), (before, after)
