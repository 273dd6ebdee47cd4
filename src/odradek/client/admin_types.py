"""What the admin client returns: plain values, without the wire's habits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

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
