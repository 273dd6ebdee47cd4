"""Decisions about clients of a topic: who is registered, and who no longer is (RAMA's client identity).

A client is known by the hash of its key; the key itself never gets here. All of it goes with the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.controller.decisions_base import Decision, Facts, malformed, text, topic_id, topic_of
from odradek.controller.image import REGISTER_CLIENT, REVOKE_CLIENT, ClusterImage, MetadataRecord, TopicImage
from odradek.wire.errors import ErrorCode, PeerError

CLIENTS_MAX = 10_000  # of one topic: whoever reaches the door may register
HASH_BYTES = 32
_ID_BYTES = 8


def find_topic(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Say whether there is such a topic; who has the answer has also heard of all that was decided before."""
    return Decision(result={"topic_id": topic_of(image, text(args, "name")).id.hex()})


def register_client(image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Let a key be good for a topic, if the topic still has this id; one that is so already stays as it is."""
    topic, hashed = _topic(image, args), _hash(args)
    present = topic.clients.get(hashed)
    if present is not None:
        return Decision(result={"client_id": present, "is_new": False})
    if len(topic.clients) >= CLIENTS_MAX:
        raise PeerError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name!r} has {CLIENTS_MAX} clients, and may have no more: revoke some that are not used",
        )
    taken = set(topic.clients.values())
    client_id = facts.chance.randbytes(_ID_BYTES).hex()
    while client_id in taken:
        client_id = facts.chance.randbytes(_ID_BYTES).hex()
    record = MetadataRecord(REGISTER_CLIENT, _body(topic, client_id, hashed))
    return Decision([record], {"client_id": client_id, "is_new": True})


def revoke_client(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Let a client's key be good for a topic no longer."""
    topic, wanted = _topic(image, args), text(args, "client_id")
    for hashed, client_id in topic.clients.items():
        if client_id == wanted:
            return Decision([MetadataRecord(REVOKE_CLIENT, _body(topic, client_id, hashed))])
    raise PeerError(ErrorCode.RESOURCE_NOT_FOUND, f"topic {topic.name!r} has no client {wanted!r}")


def _body(topic: TopicImage, client_id: str, hashed: bytes) -> dict[str, str]:
    return {"topic_name": topic.name, "topic_id": topic.id.hex(), "client_id": client_id, "hash": hashed.hex()}


def _topic(image: ClusterImage, args: Mapping[str, Any]) -> TopicImage:
    topic = topic_of(image, text(args, "name"))
    if topic_id(args.get("topic_id")) != topic.id:
        raise PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic.name!r} was deleted and made again meanwhile")
    return topic


def _hash(args: Mapping[str, Any]) -> bytes:
    try:
        hashed = bytes.fromhex(text(args, "hash"))
    except ValueError:
        hashed = b""
    if len(hashed) != HASH_BYTES:
        raise malformed("hash", args["hash"])
    return hashed
