"""Decisions about partitions: in-sync sets, elections, reassignments, preferred leaders (KIP-455, KIP-460, KIP-497)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odradek.controller.decisions_base import (
    Decision,
    Facts,
    broker_ids,
    flag,
    integer,
    known_topic,
    malformed,
    objects,
    registered,
    text,
    topic_id,
    topic_of,
)
from odradek.controller.decisions_change import Electorate, change_record, raised, settle, settle_uncleanly, without
from odradek.controller.decisions_sparse import number_topics
from odradek.controller.image import NO_LEADER, ClusterImage, MetadataRecord, PartitionImage, TopicImage
from odradek.wire.errors import ErrorCode, PeerError

REBALANCED_MAX = 1_000  # leaders that one `rebalance` moves; the next one goes on


# In-sync sets.


def alter_partition(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Let a leader shrink and grow the in-sync sets of partitions that it leads, each on its own."""
    broker = registered(image, args)
    electorate = Electorate(image, facts)
    decision = Decision(result={"partitions": []})
    seen: set[tuple[bytes, int]] = set()
    for asked in objects(args, "partitions"):
        key = topic_id(asked.get("topic_id")), integer(asked, "partition")
        if key in seen:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"partition {key[1]} of topic id {key[0].hex()} is named twice")
        seen.add(key)
        answer = {"topic_id": key[0].hex(), "partition": key[1]}
        topic = image.topic_by_id(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        if topic is None or partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            shown = _shown(PartitionImage(leader_epoch=-1, partition_epoch=-1))
        else:
            isr = _proposed(asked)
            code, after = _isr_error(image, partition, broker.id, asked, isr), partition
            if code is ErrorCode.NONE:
                ordered = tuple(replica for replica in partition.replicas if replica in isr)
                after = raised(partition, settle(partition._replace(isr=ordered), electorate))
                decision.records.extend(change_record(topic, key[1], after))
                code = ErrorCode.NONE if after.leader == broker.id else ErrorCode.NEW_LEADER_ELECTED
            shown = _shown(after)
        decision.result["partitions"].append(answer | {"error": int(code)} | shown)
    return decision


def _proposed(asked: Mapping[str, Any]) -> dict[int, int]:
    """The in-sync set that a leader wants: broker epochs (-1: not known) by broker id."""
    members = asked.get("isr")
    if not isinstance(members, list):
        raise malformed("isr", members)
    pairs = [broker_ids(member, "isr") for member in members]
    if not all(len(pair) == 2 for pair in pairs) or len({pair[0] for pair in pairs}) != len(pairs):
        raise malformed("isr", members)
    return {pair[0]: pair[1] for pair in pairs}


def _isr_error(
    image: ClusterImage, partition: PartitionImage, leader: int, asked: Mapping[str, Any], isr: Mapping[int, int]
) -> ErrorCode:
    leader_epoch, partition_epoch = integer(asked, "leader_epoch"), integer(asked, "partition_epoch")
    if leader_epoch > partition.leader_epoch or partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the broker has seen what we have not: another controller is newer
    if leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if leader not in isr or not set(isr) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, partition, member, epoch) for member, epoch in isr.items()):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(image: ClusterImage, partition: PartitionImage, broker_id: int, epoch: int) -> bool:
    """Whether a replica may be in sync: what was fetched by an earlier start of the same broker does not count."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced or epoch not in (-1, broker.epoch):
        return False
    return not broker.shutting_down or broker_id in partition.isr


def _shown(partition: PartitionImage) -> dict[str, Any]:
    return {
        "isr": list(partition.isr),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
    }


# Elections.


def elect(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Give a partition its preferred leader; with `unclean`, any leader at all if it has none.

    Without a partition all of the topic, without a topic all that there are: then those that need or allow nothing are
    passed over, while a single one is refused with the reason.
    """
    unclean = flag(args, "unclean")
    electorate = Electorate(image, facts)
    if args.get("partition") is not None:
        name, index = text(args, "topic"), integer(args, "partition")
        topic = known_topic(image, name, index)
        after = _elected(topic, index, electorate, unclean=unclean)
        return Decision(change_record(topic, index, after), {"elected": [[name, index, after.leader]]})
    topics = list(image.topics.values()) if args.get("topic") is None else [topic_of(image, text(args, "topic"))]
    decision = Decision(result={"elected": []})
    for topic in topics:
        for index in topic.partitions:
            try:
                after = _elected(topic, index, electorate, unclean=unclean)
            except PeerError:
                continue
            decision.records.extend(change_record(topic, index, after))
            decision.result["elected"].append([topic.name, index, after.leader])
    return decision


def _elected(topic: TopicImage, index: int, electorate: Electorate, *, unclean: bool) -> PartitionImage:
    partition = topic.partitions[index]
    name = f"{topic.name}-{index}"
    if partition.leader != NO_LEADER and (unclean or partition.leader == partition.replicas[0]):
        raise PeerError(ErrorCode.ELECTION_NOT_NEEDED, f"{name} is led by broker {partition.leader}")
    if unclean:
        after = settle_uncleanly(partition, electorate)
        if after.leader == NO_LEADER:
            raise PeerError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"none of {name}'s replicas {_listed(partition)} is alive"
            )
        return after
    preferred = partition.replicas[0] if partition.replicas else NO_LEADER
    after = settle(partition, electorate, preferred=preferred)
    if after.leader == partition.leader:
        raise PeerError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"{name}'s first replica, broker {preferred}, is not in sync or down",
        )
    return after


def _listed(partition: PartitionImage) -> str:
    return ", ".join(str(replica) for replica in partition.replicas)


def rebalance(image: ClusterImage, _args: Mapping[str, Any], facts: Facts) -> Decision:
    """Move leadership back to preferred replicas that are alive and in sync, and find leaders where there are none."""
    electorate = Electorate(image, facts)
    records: list[MetadataRecord] = []
    for topic, index, preferred in _unbalanced(image, facts):
        if len(records) == REBALANCED_MAX:
            break
        records += change_record(topic, index, settle(topic.partitions[index], electorate, preferred=preferred))
    return Decision(records, {"moved": len(records)})


def _unbalanced(image: ClusterImage, facts: Facts) -> Iterator[tuple[TopicImage, int, int | None]]:
    for topic, index, partition in image.all_partitions():
        preferred = partition.replicas[0] if partition.replicas else NO_LEADER
        if partition.leader != preferred and preferred in facts.live:
            yield topic, index, preferred
        elif partition.leader == NO_LEADER:
            yield topic, index, None


def adopt(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """The controller's own, when its term begins: do what an earlier one has left undone.

    Partitions that a broker made while it stood alone become that broker's (by default the controller's own), and those
    without a leader that can have one get it. Topics that an earlier version made get their numbers.
    """
    broker_id = integer(args, "broker_id", facts.node_id)
    electorate = Electorate(image, facts)
    records: list[MetadataRecord] = []
    for topic, index, partition in image.all_partitions():
        owned = partition if partition.replicas else partition._replace(replicas=(broker_id,), isr=(broker_id,))
        records += change_record(topic, index, settle(owned, electorate))
    return Decision(records + number_topics(image), {"adopted": len(records)})


# Reassignments.


def reassign(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Begin to move partitions to other replicas, or stop moving them; all of the request, or nothing."""
    electorate = Electorate(image, facts)
    records: list[MetadataRecord] = []
    seen: set[tuple[str, int]] = set()
    for asked in objects(args, "partitions"):
        name, index = text(asked, "topic"), integer(asked, "partition")
        topic = known_topic(image, name, index)
        if (name, index) in seen:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{name}-{index} is named twice")
        seen.add((name, index))
        if asked.get("replicas") is None:
            after = _cancelled(topic, index)
        else:
            after = _moved(image, topic, index, broker_ids(asked["replicas"], "replicas"))
        records += change_record(topic, index, settle(after, electorate))
    return Decision(records)


def _cancelled(topic: TopicImage, index: int) -> PartitionImage:
    partition = topic.partitions[index]
    if not partition.adding and not partition.removing:
        raise PeerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.name}-{index} is not being moved")
    isr = without(partition.isr, partition.adding)
    if not isr:
        raise PeerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{topic.name}-{index} cannot go back: only replicas that were added are in sync",
        )
    return partition._replace(replicas=without(partition.replicas, partition.adding), isr=isr, adding=(), removing=())


def _moved(image: ClusterImage, topic: TopicImage, index: int, target: tuple[int, ...]) -> PartitionImage:
    """Let the partition have its present replicas and the new ones, until the new ones are in sync.

    Of a move that was under way, those in sync count as present; the others are dropped if they are not wanted.
    """
    partition = topic.partitions[index]
    present = [each for each in partition.replicas if each in partition.isr or each not in partition.adding]
    _check_target(image, f"{topic.name}-{index}", target, present)
    removing = without(present, target)
    return partition._replace(
        replicas=(*target, *removing),
        isr=without(partition.isr, set(partition.isr) - {*target, *removing}),
        adding=without(target, present),
        removing=removing,
    )


def _check_target(image: ClusterImage, name: str, target: tuple[int, ...], present: list[int]) -> None:
    problem = None
    if not present:
        problem = "it has no replicas yet"
    elif not target:
        problem = "a partition has at least one replica"
    elif len(set(target)) != len(target):
        problem = f"a broker is named twice in {list(target)}"
    for broker_id in target:
        broker = image.brokers.get(broker_id)
        if broker is None:
            problem = problem or f"broker {broker_id} is not registered"
        elif not broker.is_active and broker_id not in present:
            problem = problem or f"broker {broker_id} is down or about to stop"
    if problem is not None:
        raise PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name} cannot move: {problem}")
