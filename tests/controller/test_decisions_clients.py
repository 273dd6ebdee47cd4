"""Clients are registered with one topic, found by the hash of their key, and gone when revoked or with the topic."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.controller import decisions_clients
from odradek.controller.image import ClusterImage, MetadataRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.controller.worlds import World

HASH, OTHER = "ab" * 32, "cd" * 32


def world_with_topic() -> World:
    world = World((1,))
    world.topic("t")
    return world


def topic_id(world: World, name: str = "t") -> str:
    return world.image.topics[name].id.hex()


def register(world: World, hashed: str = HASH, **changed: Any) -> dict[str, Any]:
    return world.do("register-client", **{"name": "t", "topic_id": topic_id(world), "hash": hashed, **changed})


def revoke(world: World, client_id: str) -> dict[str, Any]:
    return world.do("revoke-client", name="t", topic_id=topic_id(world), client_id=client_id)


def test_a_client_is_registered_by_one_record() -> None:
    world = world_with_topic()
    result = register(world)
    assert result["is_new"]
    assert len(bytes.fromhex(result["client_id"])) == 8
    assert world.log[-1] == MetadataRecord(
        "register-client",
        {"topic_name": "t", "topic_id": topic_id(world), "client_id": result["client_id"], "hash": HASH},
    )
    assert world.image.topics["t"].clients == {bytes.fromhex(HASH): result["client_id"]}


def test_a_key_that_is_registered_stays_who_it_is() -> None:
    world = world_with_topic()
    first = register(world)
    records = len(world.log)
    assert register(world) == {"client_id": first["client_id"], "is_new": False}
    assert len(world.log) == records
    assert register(world, OTHER)["client_id"] != first["client_id"]


def test_a_revoked_client_is_gone_and_the_others_stay() -> None:
    world = world_with_topic()
    first, second = register(world), register(world, OTHER)
    revoke(world, first["client_id"])
    assert world.image.topics["t"].clients == {bytes.fromhex(OTHER): second["client_id"]}
    with pytest.raises(PeerError, match="has no client") as caught:
        revoke(world, first["client_id"])
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND
    assert register(world)["is_new"]


def test_clients_go_with_their_topic() -> None:
    world = world_with_topic()
    register(world)
    was = topic_id(world)
    world.do("delete-topic", name="t")
    world.topic("t")
    assert world.image.topics["t"].clients == {}
    with pytest.raises(PeerError) as caught:
        register(world, topic_id=was)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_snapshot_has_the_clients_and_a_copy_stands_apart() -> None:
    world = world_with_topic()
    client_id = register(world)["client_id"]
    content = world.image.to_json()
    assert content["topics"][0]["clients"] == {client_id: HASH}
    assert ClusterImage.from_json(content).topics["t"].clients == world.image.topics["t"].clients
    copy = world.image.copy()
    revoke(world, client_id)
    assert copy.topics["t"].clients == {bytes.fromhex(HASH): client_id}
    assert "clients" not in world.image.to_json()["topics"][0]


@pytest.mark.parametrize("hashed", ["", "ab", "xy" * 32, "ab" * 33, 5, None])
def test_a_hash_that_is_none_is_refused(hashed: object) -> None:
    with pytest.raises(PeerError) as caught:
        register(world_with_topic(), hash=hashed)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_not_there_has_no_clients() -> None:
    world = world_with_topic()
    for command in ("register-client", "revoke-client", "find-topic"):
        with pytest.raises(PeerError) as caught:
            world.do(command, name="none", topic_id="", client_id="", hash=HASH)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_found_without_a_record() -> None:
    world = world_with_topic()
    decision = world.decide("find-topic", name="t")
    assert (decision.records, decision.result) == ([], {"topic_id": topic_id(world)})


def test_a_topic_has_so_many_clients_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions_clients, "CLIENTS_MAX", 1)
    world = world_with_topic()
    register(world)
    assert not register(world)["is_new"]
    with pytest.raises(PeerError, match="revoke some") as caught:
        register(world, OTHER)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
