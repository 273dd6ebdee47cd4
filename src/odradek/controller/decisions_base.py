"""What every decision of the controller is made of: facts, records, a result, and arguments that are looked at.

Pure. Arguments come from other brokers as JSON; what is wrong with them is INVALID_REQUEST, never an exception of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from odradek.controller.image import BrokerImage, ClusterImage, MetadataRecord, TopicImage
from odradek.wire.errors import ErrorCode, PeerError


class Chance(Protocol):
    """Where ids come from; `random.Random` is one."""

    def randbytes(self, n: int, /) -> bytes:
        """So many bytes."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision needs to know besides the image."""

    now: int  # ms
    node_id: int  # the active controller's
    live: frozenset[int]  # brokers whose session is alive (BrokerSessions.alive)
    default_replication_factor: int  # 0: three, or as many as there are brokers
    chance: Chance
    next_offset: int  # where the first record of the decision will stand in the metadata log
    partitions_max: int = 20_000  # of all topics together: `partitions.max`


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, and what to answer when a majority has it.

    The image is sound after each record alone, should only the first of them survive the controller.
    """

    records: list[MetadataRecord] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)


class Command(Protocol):
    """One thing that the controller can be asked; refuses by PeerError and changes nothing itself."""

    def __call__(self, image: ClusterImage, args: Mapping[str, Any], facts: Facts, /) -> Decision:
        """Decide, given the image with all that is under way."""


# Looking things up.


def topic_of(image: ClusterImage, name: str) -> TopicImage:
    """The topic of this name, or UNKNOWN_TOPIC_OR_PARTITION."""
    topic = image.topics.get(name)
    if topic is None:
        raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def known_topic(image: ClusterImage, name: str, index: int) -> TopicImage:
    """The topic of this name if it has this partition, or UNKNOWN_TOPIC_OR_PARTITION."""
    topic = topic_of(image, name)
    if index not in topic.partitions:
        raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {name!r}")
    return topic


def registered(image: ClusterImage, args: Mapping[str, Any]) -> BrokerImage:
    """The broker that asks, if it asks in the epoch of its registration, or STALE_BROKER_EPOCH."""
    broker_id, epoch = integer(args, "broker_id"), integer(args, "broker_epoch")
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise PeerError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise PeerError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}"
        )
    return broker


# Reading arguments.


def integer(args: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A number that is whole."""
    value = args.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise malformed(name, value)
    return value


def text(args: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text."""
    value = args.get(name, default)
    if not isinstance(value, str):
        raise malformed(name, value)
    return value


def flag(args: Mapping[str, Any], name: str) -> bool:
    """True or false; false if it is not there."""
    value = args.get(name, False)
    if not isinstance(value, bool):
        raise malformed(name, value)
    return value


def texts(args: Mapping[str, Any], name: str) -> dict[str, str]:
    """Settings and their values."""
    value = args.get(name, {})
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise malformed(name, value)
    return dict(value)


def broker_ids(value: Any, name: str) -> tuple[int, ...]:
    """A list of broker ids."""
    if not isinstance(value, Sequence) or not all(type(each) is int for each in value):
        raise malformed(name, value)
    return tuple(value)


def objects(args: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects."""
    value = args.get(name)
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise malformed(name, value)
    return value


def topic_id(value: Any, name: str = "topic_id") -> bytes:
    """A topic's id, written in hex."""
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise malformed(name, value) from None


def malformed(name: str, value: object) -> PeerError:
    """What to raise for an argument that makes no sense."""
    shown = repr(value)
    return PeerError(ErrorCode.INVALID_REQUEST, f"{name} cannot be {shown if len(shown) <= 80 else shown[:80] + '...'}")
