"""What the admin client returns: plain values, without the wire's habits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from odradek.client.address import Address
from odradek.client.cluster import Node
from odradek.model import TopicPartition


class ResourceKind(IntEnum):
    """What settings belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a setting's value comes from; the lower, the stronger (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a topic, a broker or a group."""

    name: str
    value: str | None  # None where the broker keeps it secret
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers, and which of them is the controller."""

    cluster_id: str | None
    controller_id: int
    nodes: list[Node]


class BrokerInfo(NamedTuple):
    """A broker that is registered with the cluster."""

    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool  # it is not counted on: stopped, cut off, or not ready yet


class QuorumReplica(NamedTuple):
    """How far a voter or an observer has come in the metadata log; -1 where the broker that was asked does not know."""

    node_id: int
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum of the metadata log, as one broker sees it."""

    leader_id: int  # -1: there is none
    epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    addresses: dict[int, Address]  # of voters; empty before Kafka 3.9


class Move(NamedTuple):
    """A partition whose replicas are changing."""

    replicas: tuple[int, ...]  # with those that come and those that go
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list."""

    group: str
    protocol_type: str
    state: str  # empty before Kafka 2.6
    kind: str  # "classic", "consumer"; empty before Kafka 3.7


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, and what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    group: str
    state: str
    kind: str  # "classic" or "consumer"
    protocol_type: str
    assignor: str
    coordinator: int
    members: list[MemberDescription]


class PartitionLag(NamedTuple):
    """How far a group is behind in a partition."""

    committed: int
    end: int
    lag: int
