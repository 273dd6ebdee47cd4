"""Decisions about topics, settings and producer ids.

What only a broker knows is checked there before it asks: values of settings, names of internal topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from odradek.controller.assignment import assign, load_of
from odradek.controller.decisions_base import (
    Decision,
    Facts,
    broker_ids,
    flag,
    integer,
    malformed,
    text,
    texts,
    topic_id,
    topic_of,
)
from odradek.controller.image import (
    ADD_PARTITIONS,
    CREATE_TOPIC,
    DELETE_TOPIC,
    PRODUCER_IDS,
    SET_BROKER_CONFIGS,
    SET_TOPIC_CONFIGS,
    ClusterImage,
    MetadataRecord,
    PartitionImage,
    PartitionLimits,
    TopicImage,
    metric_name,
    partition_body,
)
from odradek.controller.image_partitions import successor
from odradek.model import INTERNAL_TOPICS, topic_name_problem
from odradek.wire.errors import ErrorCode, PeerError

AUTOMATIC_FACTOR = 3
PRODUCER_IDS_MAX = 1_000_000  # that one request may take


def create_topic(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Make a topic: on brokers of the caller's choice, or where there is least."""
    name, configs = text(args, "name"), texts(args, "configs")
    check_name(image, name)
    given = args.get("assignments")
    if given is None:
        count = integer(args, "partitions")
        check_room(image, facts, count)
        factor = replication_factor(image, facts, args.get("replication_factor", -1))
        replicas = assign(image.brokers.values(), count, factor, load_of(image))
    else:
        if not isinstance(given, Mapping):
            raise malformed("assignments", given)
        if integer(args, "partitions", -1) not in (-1, len(given)):
            raise _misplaced(f"{name!r} is to have {args['partitions']} partitions, and replicas for {len(given)}")
        check_room(image, facts, len(given))
        replicas = _given(image, name, given, range(len(given)))
    made_id = new_id(image, facts)
    result = {"topic_id": made_id.hex(), "replication_factor": len(replicas[0])}
    if flag(args, "validate_only"):
        return Decision(result=result)
    partitions = [new_partition(image, name, index, each) for index, each in enumerate(replicas)]
    return Decision([new_topic(image, name, made_id, configs, partitions)], result)


def new_topic(
    image: ClusterImage, name: str, made_id: bytes, configs: Mapping[str, str], partitions: list[dict[str, Any]]
) -> MetadataRecord:
    """The record that makes a topic; the broker's own ones have no number."""
    body: dict[str, Any] = {"topic_name": name, "topic_id": made_id.hex()}
    if name not in INTERNAL_TOPICS:
        body["number"] = image.next_topic_number
    return MetadataRecord(CREATE_TOPIC, body | {"configs": dict(configs), "partitions": partitions})


def delete_topic(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Take a topic away, if it still has this id; whatever else is under way with it ends."""
    name = text(args, "name")
    topic = topic_of(image, name)
    if args.get("topic_id") is not None and topic_id(args["topic_id"]) != topic.id:
        raise PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {name!r} was deleted and made again meanwhile")
    return Decision([MetadataRecord(DELETE_TOPIC, {"topic_name": name})])


def add_partitions(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Let a topic have partitions up to `total`, more than it has now; each with as many replicas as the first.

    Numbers below its highest one that have no partition are left alone.
    """
    name, total = text(args, "name"), integer(args, "total")
    topic = topic_of(image, name)
    present = topic.partition_count
    if total <= present:
        raise PeerError(ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {present} partitions; {total} are not more")
    check_room(image, facts, total - present)
    if args.get("assignments") is None:
        factor = factor_of(image, facts, topic)
        replicas = assign(image.brokers.values(), total - present, factor, load_of(image))
    else:
        replicas = _given(image, name, args["assignments"], range(present, total))
    if flag(args, "validate_only"):
        return Decision()
    added = [new_partition(image, name, index, each, topic.gone) for index, each in enumerate(replicas, start=present)]
    return Decision([MetadataRecord(ADD_PARTITIONS, {"topic_name": name, "partitions": added})])


def set_topic_configs(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Replace the settings that a topic has for itself."""
    topic, configs = topic_of(image, text(args, "name")), texts(args, "configs")
    _check_unchanged(args, topic.configs)
    if configs == topic.configs:
        return Decision()
    return Decision([MetadataRecord(SET_TOPIC_CONFIGS, {"topic_name": topic.name, "configs": configs})])


def set_broker_configs(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Replace the defaults of all topics that were changed while running."""
    configs = texts(args, "configs")
    _check_unchanged(args, image.broker_configs)
    return Decision(
        [] if configs == image.broker_configs else [MetadataRecord(SET_BROKER_CONFIGS, {"configs": configs})]
    )


def producer_ids(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Hand out ids that no producer has had and none will get again."""
    count = integer(args, "count")
    if not 1 <= count <= PRODUCER_IDS_MAX:
        raise malformed("count", count)
    first = image.next_producer_id
    return Decision([MetadataRecord(PRODUCER_IDS, {"next": first + count})], {"first": first})


# Checks.


def check_name(image: ClusterImage, name: str) -> None:
    """Refuse a name that a new topic cannot have."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in image.topics:
        raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    other = image.metric_names.get(metric_name(name))
    if other is not None:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} and {other!r} differ only in '.' and '_'")


def check_room(image: ClusterImage, facts: Facts, more: int) -> None:
    """Refuse so many partitions more."""
    there = sum(len(topic.partitions) for topic in image.topics.values())
    if more < 1:
        raise PeerError(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
    if there + more > facts.partitions_max:
        raise PeerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{more} partitions more than the {there} that are here is over partitions.max = {facts.partitions_max}",
        )


def _check_unchanged(args: Mapping[str, Any], present: Mapping[str, str]) -> None:
    """Refuse a change that was made from settings which have changed meanwhile, if the caller says what it saw."""
    if args.get("was") is not None and texts(args, "was") != present:
        raise PeerError(ErrorCode.INVALID_UPDATE_VERSION, "the settings were changed meanwhile")


def replication_factor(image: ClusterImage, facts: Facts, asked: object) -> int:
    """How many replicas each partition gets. Brokers that are down count: they get theirs when they are back."""
    there = len(image.brokers)
    if not any(broker.is_active for broker in image.brokers.values()):
        raise PeerError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is up that could hold a replica")
    if asked == "all":
        return there
    if asked == -1:
        asked = facts.default_replication_factor or min(AUTOMATIC_FACTOR, there)
    if not isinstance(asked, int) or asked < 1:
        raise PeerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor is at least 1, or -1 for the default: {asked!r}",
        )
    if asked > there:
        raise PeerError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"{asked} replicas need {asked} brokers, and there are {there}"
        )
    return asked


def _given(image: ClusterImage, name: str, given: object, wanted: range) -> list[tuple[int, ...]]:
    """The replicas that the caller has chosen for each wanted partition, looked at."""
    if not isinstance(given, Mapping) or set(given) != {str(index) for index in wanted}:
        raise _misplaced(f"{name!r} needs replicas for partitions {wanted.start} to {wanted.stop - 1}, no others")
    chosen = [broker_ids(given[str(index)], "assignments") for index in wanted]
    for index, replicas in zip(wanted, chosen, strict=True):
        if not replicas or len(set(replicas)) != len(replicas):
            raise _misplaced(f"{name}-{index} needs at least one broker, and each once: {list(replicas)}")
        unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
        if unknown:
            raise _misplaced(f"{name}-{index}: broker {unknown[0]} is not registered")
        if not any(image.brokers[broker_id].is_active for broker_id in replicas):
            raise _misplaced(f"{name}-{index}: none of the brokers {list(replicas)} is up")
        if len(replicas) != len(chosen[0]):
            raise _misplaced(f"{name}-{index} has {len(replicas)} replicas, and the others have {len(chosen[0])}")
    return chosen


def _misplaced(problem: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def factor_of(image: ClusterImage, facts: Facts, topic: TopicImage) -> int:
    """How many replicas a partition gets that a topic has more: as many as its first one."""
    first = topic.partitions[min(topic.partitions)]
    return replication_factor(image, facts, len(first.replicas) - len(first.removing) or -1)


def new_partition(
    image: ClusterImage,
    name: str,
    index: int,
    replicas: tuple[int, ...],
    gone: Mapping[int, tuple[int, int]] = MappingProxyType({}),
    limits: PartitionLimits | None = None,
) -> dict[str, Any]:
    """How a new partition stands in its record; `gone` are those that its topic had before."""
    isr = tuple(broker_id for broker_id in replicas if image.brokers[broker_id].is_active)
    generation, epoch = successor(gone, index)
    made = PartitionImage(replicas, isr, isr[0], epoch, generation=generation, limits=limits)
    return partition_body(name, index, made)


def new_id(image: ClusterImage, facts: Facts) -> bytes:
    """An id that no topic has."""
    made = facts.chance.randbytes(16)
    while made in image.names or not any(made[:15]):  # Kafka keeps the lowest ids for itself
        made = facts.chance.randbytes(16)
    return made
