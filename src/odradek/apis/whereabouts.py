"""Where partitions and brokers are, as the metadata has it: what Metadata and its like tell clients."""

from __future__ import annotations

from typing import NamedTuple

from odradek.apis.context import Context
from odradek.broker.topics import NOBODY
from odradek.controller.image import TopicImage
from odradek.log.epochs import NO_EPOCH
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode


class Endpoint(NamedTuple):
    """A broker that clients can reach."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Whereabouts(NamedTuple):
    """Who has a partition."""

    partition: int
    error: ErrorCode
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


def endpoints(context: Context) -> list[Endpoint]:
    """The brokers that are there; this one at the address of the door that is asked."""
    own = context.broker.node_id
    found = [
        Endpoint(broker.id, broker.kafka[0], broker.kafka[1], broker.rack)
        for broker in context.broker.metadata.image.brokers.values()
        if broker.kafka is not None and not broker.fenced and broker.id != own
    ]
    rack = context.broker.metadata.image.brokers.get(own)
    found.append(Endpoint(own, context.host, context.port, None if rack is None else rack.rack))
    return sorted(found)


def controller_of(context: Context) -> int:
    """Who is named as the controller: any broker passes on what is the controller's to do."""
    leader = context.broker.metadata.quorum.leader_id
    return leader if leader in {endpoint.node_id for endpoint in endpoints(context)} else context.broker.node_id


def partitions(context: Context, topic: TopicImage, first: int = 0, count: int | None = None) -> list[Whereabouts]:
    """The partitions of a topic, in order; a number below the highest that has none is shown without a leader."""
    end = topic.partition_count if count is None else min(first + count, topic.partition_count)
    return [_find(context, topic, index) for index in range(first, end)]


def _find(context: Context, topic: TopicImage, index: int) -> Whereabouts:
    broker, role = context.broker, topic.partitions.get(index)
    if role is None:  # a client takes its list for the whole of 0 to the highest, so that none can be left out
        return Whereabouts(index, ErrorCode.LEADER_NOT_AVAILABLE, NOBODY, NO_EPOCH, [], [], [])
    brokers = broker.metadata.image.brokers
    offline = [node for node in role.replicas if node not in brokers or brokers[node].fenced]
    leader, error = role.leader, ErrorCode.NONE
    isr = list(role.isr)
    if TopicPartition(topic.name, index) in broker.store.offline and broker.node_id in role.replicas:
        error = ErrorCode.KAFKA_STORAGE_ERROR  # its files are damaged
        offline.append(broker.node_id)
        isr = [node for node in isr if node != broker.node_id]
        leader = NOBODY if leader == broker.node_id else leader
    elif leader == NOBODY:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return Whereabouts(index, error, leader, role.leader_epoch, list(role.replicas), isr, offline)
