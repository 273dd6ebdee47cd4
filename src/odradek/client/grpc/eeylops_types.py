"""What Eeylops' client takes and gives: topics, values, brokers, and what a reader asks for. No gRPC here."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Topic(NamedTuple):
    """A topic; its id is never used again."""

    id: int
    name: str
    partitions: tuple[int, ...]  # their ids, from 1
    ttl_seconds: int


TopicLike: TypeAlias = Topic | int  # a topic, or its id


class Value(NamedTuple):
    """A value in a partition."""

    offset: int
    timestamp: int  # ms since 1970
    value: bytes


class Batch(NamedTuple):
    """Values that came together, and where to go on."""

    values: list[Value]
    next_offset: int


class Node(NamedTuple):
    """A broker and where its gRPC door is; port 0: it has none."""

    id: int
    host: str
    port: int


class ClusterConfig(NamedTuple):
    """All brokers, and the id of the active controller (-1: none at this moment)."""

    nodes: tuple[Node, ...]
    leader_id: int


class Place(NamedTuple):
    """A partition, by the ids of this door."""

    topic_id: int
    partition_id: int


class Reading(NamedTuple):
    """What a reader wants of a partition."""

    place: Place
    consumer: str
    offset: int  # -1: by time, or by the last commit
    since_ms: int
    until_ms: int  # 0: without end
    resume: bool
    batch_size: int  # 0: as the broker has it
    follower: bool


def reading_of(
    topic: TopicLike,
    partition: int,
    *,
    consumer: str,
    offset: int | None,
    since_ms: int | None,
    until_ms: int | None,
    batch_size: int,
    follower: bool,
) -> Reading:
    """What the arguments of `consume` and `subscribe` mean: without a start, the last commit, or the beginning."""
    if offset is not None and since_ms is not None:
        raise ValueError("begin at an offset or at a time, not at both")
    if offset is not None and offset < 0:
        raise ValueError(f"an offset is not negative, as {offset} is")
    by_commit = offset is None and since_ms is None and bool(consumer)
    by_time = since_ms is not None
    return Reading(
        Place(topic_id(topic), partition),
        consumer,
        -1 if by_commit or by_time else offset or 0,
        since_ms or 0,
        until_ms or 0,
        by_commit,
        batch_size,
        follower,
    )


def topic_id(topic: TopicLike) -> int:
    """The id of a topic that is given as such or by its id."""
    return topic.id if isinstance(topic, Topic) else topic
