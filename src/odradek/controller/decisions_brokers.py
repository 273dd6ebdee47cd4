"""Decisions about brokers: registration, heartbeats, fencing, controlled shutdown, farewell (KIP-500, KIP-631)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odradek.controller.decisions_base import Decision, Facts, flag, integer, malformed, registered, text
from odradek.controller.decisions_change import (
    Electorate,
    awaited_followers,
    change_record,
    fence_changes,
    settle,
    shutdown_changes,
)
from odradek.controller.image import (
    BROKER_SHUTDOWN,
    FENCE_BROKER,
    NO_LEADER,
    REGISTER_BROKER,
    UNFENCE_BROKER,
    UNREGISTER_BROKER,
    BrokerImage,
    ClusterImage,
    MetadataRecord,
)
from odradek.wire.errors import ErrorCode, PeerError

_NAMED_MAX = 5  # partitions that an error lists


def register_broker(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Take in a broker that has started; it is fenced until it has read the metadata up to here.

    What an earlier start of the same broker led goes to others first. The same start may register as often as it likes.
    """
    asked = _registration(args)
    cluster_id = args.get("cluster_id") or ""
    if cluster_id not in ("", image.cluster_id):
        raise PeerError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {asked.id} belongs to cluster {cluster_id}, and this is cluster {image.cluster_id or '(new)'}",
        )
    known = image.brokers.get(asked.id)
    records: list[MetadataRecord] = []
    if known is not None:
        same = replace(asked, epoch=known.epoch, fenced=known.fenced, shutting_down=known.shutting_down)
        if known == same:
            return Decision(result={"broker_epoch": known.epoch})
        if known.incarnation != asked.incarnation and asked.id in facts.live:
            raise PeerError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another broker with id {asked.id} is alive{_at(known)}; give this one another id, or stop that one",
            )
        if asked.directory != known.directory and "" not in (asked.directory, known.directory):
            _check_nothing_is_lost(image, asked.id)
        if not known.fenced:
            records += fence_changes(image, facts, asked.id)
    body = {
        "broker_id": asked.id,
        "incarnation": asked.incarnation,
        "kafka": None if asked.kafka is None else list(asked.kafka),
        "http": None if asked.http is None else list(asked.http),
        "grpc": None if asked.grpc is None else list(asked.grpc),
        "rack": asked.rack,
        "directory": asked.directory,
    }
    records.append(MetadataRecord(REGISTER_BROKER, body))
    return Decision(records, {"broker_epoch": facts.next_offset + len(records) - 1})


def _registration(args: Mapping[str, Any]) -> BrokerImage:
    broker_id = integer(args, "broker_id")
    if not 0 <= broker_id < 2**31:
        raise malformed("broker_id", broker_id)
    return BrokerImage(
        broker_id,
        epoch=-1,
        incarnation=text(args, "incarnation"),
        kafka=_address(args, "kafka"),
        http=_address(args, "http"),
        grpc=_address(args, "grpc"),
        rack=None if args.get("rack") is None else text(args, "rack"),
        directory=text(args, "directory", ""),
    )


def _check_nothing_is_lost(image: ClusterImage, broker_id: int) -> None:
    """Refuse a broker with a new data directory that alone was in sync somewhere: it would lead with nothing."""
    missed = [
        f"{topic.name}-{index}"
        for topic, index, partition in image.all_partitions()
        if partition.isr == (broker_id,) and len(partition.replicas) > 1
    ]
    if missed:
        raise PeerError(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {broker_id} has a new data directory, and only its old one had all records of {_some(missed)}; "
            "bring that back, or let another replica lead with what it has: odradek cluster elect --unclean",
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def _address(args: Mapping[str, Any], name: str) -> tuple[str, int] | None:
    value = args.get(name)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise malformed(name, value)
    host, port = value
    if not isinstance(host, str) or not isinstance(port, int) or not 0 <= port < 2**16:
        raise malformed(name, value)
    return host, port


def _at(broker: BrokerImage) -> str:
    address = broker.kafka or broker.http
    return "" if address is None else f" at {address[0]}:{address[1]}"


def heartbeat(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Hear a broker; most of the time nothing changes.

    It is unfenced once it has read its own registration, and the record that has fenced it: before, it would take
    itself for the leader of what others lead now, and readers would not see what these have acknowledged.
    """
    broker = registered(image, args)
    if flag(args, "wants_shutdown"):
        return _stopping(image, facts, broker)
    if broker.fenced:
        if flag(args, "wants_fence") or integer(args, "applied_offset") < max(broker.epoch, broker.fenced_at):
            return Decision(result={"fenced": True, "may_stop": False})
        return Decision(_unfencing(image, facts, broker), {"fenced": False, "may_stop": False})
    if flag(args, "wants_fence"):
        return Decision(_fencing(image, facts, broker), {"fenced": True, "may_stop": False})
    return Decision(result={"fenced": False, "may_stop": False})


def _stopping(image: ClusterImage, facts: Facts, broker: BrokerImage) -> Decision:
    """Move what it leads; it may stop when nothing is left to move, and no follower is about to catch up."""
    if broker.fenced:
        return Decision(result={"fenced": True, "may_stop": True})
    changes = shutdown_changes(image, facts, broker.id)
    may_stop = not changes and not awaited_followers(image, broker.id)
    announced = [] if broker.shutting_down else [_of(BROKER_SHUTDOWN, broker)]
    return Decision([*announced, *changes], {"fenced": False, "may_stop": may_stop})


def _unfencing(image: ClusterImage, facts: Facts, broker: BrokerImage) -> list[MetadataRecord]:
    """Let a broker lead what has waited for it. Should only the first record survive, `adopt` does the rest."""
    electorate = Electorate.with_unfenced(image, facts, broker.id)
    records = [_of(UNFENCE_BROKER, broker)]
    for topic, index, partition in image.all_partitions():
        if partition.leader == NO_LEADER and broker.id in partition.isr:
            records += change_record(topic, index, settle(partition, electorate))
    return records


def _fencing(image: ClusterImage, facts: Facts, broker: BrokerImage) -> list[MetadataRecord]:
    return [*fence_changes(image, facts, broker.id), _of(FENCE_BROKER, broker)]


def fence_broker(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """The controller's own: a broker's session is over, so others lead. No change for one that is fenced or gone."""
    broker = image.brokers.get(integer(args, "broker_id"))
    return Decision() if broker is None or broker.fenced else Decision(_fencing(image, facts, broker))


def unregister_broker(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Forget a broker that holds nothing any more."""
    broker_id = integer(args, "broker_id")
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise PeerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {broker_id} is registered")
    held = [
        f"{topic.name}-{index}" for topic, index, partition in image.all_partitions() if broker_id in partition.replicas
    ]
    if held:
        raise PeerError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} still has replicas of {_some(held)}; move them to other brokers first",
        )
    return Decision([_of(UNREGISTER_BROKER, broker)])


def _of(type_: str, broker: BrokerImage) -> MetadataRecord:
    return MetadataRecord(type_, {"broker_id": broker.id, "broker_epoch": broker.epoch})
