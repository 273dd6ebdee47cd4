"""Decisions about single partitions: one is made with limits of its own, one is deleted, topics get their numbers.

Numbers of partitions need not be in a row here (MyKafka makes them one by one). A topic comes with its first partition
and goes with its last one, in the same decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.controller.assignment import assign, load_of
from odradek.controller.decisions_base import Decision, Facts, integer, known_topic, malformed, text, texts
from odradek.controller.decisions_topics import (
    check_name,
    check_room,
    factor_of,
    new_id,
    new_partition,
    new_topic,
    replication_factor,
)
from odradek.controller.image import (
    ADD_PARTITIONS,
    DELETE_PARTITION,
    DELETE_TOPIC,
    NUMBER_TOPICS,
    ClusterImage,
    MetadataRecord,
    PartitionLimits,
    TopicImage,
)
from odradek.model import INTERNAL_TOPICS
from odradek.wire.errors import ErrorCode, PeerError

GAPS_MAX = 100_000  # numbers of all topics without a partition, below the highest one: Kafka's clients are shown each
LIMIT_MAX = 2**63 - 1


def create_partition(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Make one partition with limits of its own, and its topic if there is none."""
    name, index, limits = text(args, "name"), integer(args, "partition"), _limits(args)
    topic = image.topics.get(name)
    if topic is None:
        check_name(image, name)
    if name in INTERNAL_TOPICS:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} belongs to the broker")
    if topic is not None and index in topic.partitions:
        raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"partition {index} of topic {name!r} exists already")
    if not 0 <= index < facts.partitions_max:
        raise PeerError(
            ErrorCode.INVALID_PARTITIONS, f"partitions count from 0 to partitions.max - 1 = {facts.partitions_max - 1}"
        )
    check_room(image, facts, 1)
    _check_gaps(image, 0 if topic is None else topic.partition_count, index)
    if topic is None:
        replicas = assign(image.brokers.values(), 1, replication_factor(image, facts, -1), load_of(image))
        partition = new_partition(image, name, index, replicas[0], limits=limits)
        return Decision([new_topic(image, name, new_id(image, facts), texts(args, "configs"), [partition])])
    _check_plain(image, topic, "made")
    replicas = assign(image.brokers.values(), 1, factor_of(image, facts, topic), load_of(image))
    partition = new_partition(image, name, index, replicas[0], topic.gone, limits)
    return Decision([MetadataRecord(ADD_PARTITIONS, {"topic_name": name, "partitions": [partition]})])


def delete_partition(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Take one partition away; the last one takes its topic with it."""
    name, index = text(args, "name"), integer(args, "partition")
    topic = known_topic(image, name, index)
    if name in INTERNAL_TOPICS:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{name} belongs to the broker and cannot be deleted")
    _check_plain(image, topic, "deleted")
    if len(topic.partitions) == 1:
        return Decision([MetadataRecord(DELETE_TOPIC, {"topic_name": name})])
    body = {"topic_name": name, "topic_id": topic.id.hex(), "partition": index}
    return Decision([MetadataRecord(DELETE_PARTITION, body)])


def number_topics(image: ClusterImage) -> list[MetadataRecord]:
    """Give topics that have no number theirs, in the order of names: an earlier version made them without.

    A record says which, so that all brokers agree, also those that know the topics from a snapshot.
    """
    nameless = sorted(
        topic.name for topic in image.topics.values() if not topic.number and topic.name not in INTERNAL_TOPICS
    )
    numbers = {
        image.topics[name].id.hex(): number for number, name in enumerate(nameless, start=image.next_topic_number)
    }
    return [MetadataRecord(NUMBER_TOPICS, {"numbers": numbers})] if numbers else []


def _limits(args: Mapping[str, Any]) -> PartitionLimits:
    given = args.get("limits")
    if not isinstance(given, Mapping):
        raise malformed("limits", given)
    limits = PartitionLimits(*(integer(given, name) for name in PartitionLimits._fields))
    if limits.segment_bytes < 1 or min(limits) < 0 or max(limits) > LIMIT_MAX:
        raise malformed("limits", dict(given))
    return limits


def _check_gaps(image: ClusterImage, present: int, index: int) -> None:
    new = index - present
    if new <= 0:
        return
    gaps = sum(topic.partition_count - len(topic.partitions) for topic in image.topics.values())
    if gaps + new > GAPS_MAX:
        raise PeerError(
            ErrorCode.INVALID_PARTITIONS,
            f"partition {index} would leave {new} numbers below it without a partition; {gaps} there are already, and "
            f"{GAPS_MAX} there may be: take a lower number",
        )


def _check_plain(image: ClusterImage, topic: TopicImage, done: str) -> None:
    """Refuse single partitions where the object store knows a topic's partitions by their numbers only."""
    kept = {**image.broker_configs, **topic.configs}
    if kept.get("channel.store"):
        what = "is a channel: its objects hold the records of all partitions"
    elif topic.archived or kept.get("remote.storage.enable", "false").lower() != "false":
        what = "has archived segments, or may have (remote.storage.enable)"
    else:
        return
    raise PeerError(
        ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} {what}; its partitions cannot be {done} one by one"
    )
