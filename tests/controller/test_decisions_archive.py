"""What is archived stands in the metadata: in order, by the leader's word alone, and until its objects are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.controller.changes import Changes
from odradek.controller.image import ClusterImage, MetadataRecord
from odradek.controller.image_archive import PartitionArchive, Piece
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.controller.worlds import World


def world_with_topic(configs: dict[str, str] | None = None) -> World:
    world = World((1, 2))
    world.do("create-topic", name="t", partitions=1, configs=configs or {})
    return world


def place(world: World, **changed: Any) -> dict[str, Any]:
    topic = world.image.topics["t"]
    return {"topic_id": topic.id.hex(), "partition": 0, "leader_epoch": topic.partitions[0].leader_epoch, **changed}


def announce(world: World, base: int, end: int, size: int = 100, newest: int = 5, **changed: Any) -> None:
    piece = {"base_offset": base, "end_offset": end, "size_bytes": size, "max_timestamp": newest}
    world.do("archive-segment", **{**place(world), **piece, **changed})


def forget(world: World, start: int, **changed: Any) -> None:
    world.do("forget-archived", **{**place(world), "start": start, **changed})


def archive(world: World) -> PartitionArchive:
    return world.image.topics["t"].archived[0]


def code_of(error: pytest.ExceptionInfo[PeerError]) -> ErrorCode:
    assert error.value.message
    return error.value.code


def test_segments_follow_one_another() -> None:
    world = world_with_topic()
    announce(world, 7, 20)
    announce(world, 20, 30)
    announce(world, 35, 40)  # what lay between was compacted away before it was archived
    assert archive(world) == (7, (Piece(7, 20, 100, 5), Piece(20, 30, 100, 5), Piece(35, 40, 100, 5)))
    assert archive(world).end == 40
    assert [archive(world).piece_at(offset) for offset in (0, 19, 20, 30, 39, 40)] == [
        Piece(7, 20, 100, 5), Piece(7, 20, 100, 5), Piece(20, 30, 100, 5), Piece(35, 40, 100, 5),
        Piece(35, 40, 100, 5), None,
    ]  # fmt: skip


def test_an_announcement_that_is_made_again_changes_nothing() -> None:
    world = world_with_topic()
    announce(world, 0, 20)
    records = len(world.log)
    announce(world, 0, 20)
    assert len(world.log) == records


@pytest.mark.parametrize(("base", "end"), [(0, 10), (19, 30), (25, 25), (30, 25)])
def test_a_segment_that_does_not_follow_is_refused(base: int, end: int) -> None:
    world = world_with_topic()
    announce(world, 0, 20)
    with pytest.raises(PeerError) as error:
        announce(world, base, end)
    assert code_of(error) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"leader_epoch": 99}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"topic_id": "00" * 16}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": "no"}, ErrorCode.INVALID_REQUEST),
        ({"base_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"size_bytes": -1}, ErrorCode.INVALID_REQUEST),
        ({"size_bytes": "1"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_only_the_leader_of_now_announces_and_only_what_makes_sense(changed: dict[str, Any], code: ErrorCode) -> None:
    world = world_with_topic()
    with pytest.raises(PeerError) as error:
        announce(world, 0, 20, **changed)
    assert code_of(error) is code
    assert world.image.topics["t"].archived == {}


def test_what_is_forgotten_moves_the_start_and_drops_whole_segments() -> None:
    world = world_with_topic()
    announce(world, 0, 20)
    announce(world, 20, 30)
    forget(world, 10)
    assert (archive(world).start, len(archive(world).pieces)) == (10, 2)
    forget(world, 20)
    assert (archive(world).start, archive(world).pieces) == (20, (Piece(20, 30, 100, 5),))
    forget(world, 5)
    assert archive(world).start == 20
    forget(world, 50)
    assert archive(world) == (50, ())
    announce(world, 50, 60)
    assert archive(world).end == 60
    with pytest.raises(PeerError) as error:
        forget(world, 55, leader_epoch=99)
    assert code_of(error) is ErrorCode.FENCED_LEADER_EPOCH


def test_nothing_is_forgotten_of_a_partition_without_an_archive() -> None:
    world = world_with_topic()
    records = len(world.log)
    forget(world, 5)
    assert len(world.log) == records


def test_a_deleted_topic_is_remembered_until_its_objects_are_gone() -> None:
    world = world_with_topic()
    announce(world, 0, 20)
    topic_id = world.image.topics["t"].id.hex()
    world.do("delete-topic", name="t")
    assert world.image.doomed_archives == {topic_id: "t"}
    assert ClusterImage.from_json(world.image.to_json()).doomed_archives == {topic_id: "t"}
    world.do("archive-deleted", topic_id=topic_id)
    assert world.image.doomed_archives == {}
    records = len(world.log)
    world.do("archive-deleted", topic_id=topic_id)
    assert len(world.log) == records


@pytest.mark.parametrize(("configs", "is_doomed"), [({"remote.storage.enable": "true"}, True), ({}, False)])
def test_a_topic_that_may_have_unannounced_objects_is_looked_after_too(
    configs: dict[str, str], is_doomed: bool
) -> None:
    world = world_with_topic(configs)
    world.do("delete-topic", name="t")
    assert bool(world.image.doomed_archives) is is_doomed


def test_a_snapshot_and_a_copy_hold_the_archive() -> None:
    world = world_with_topic()
    announce(world, 0, 20)
    loaded = ClusterImage.from_json(world.image.to_json())
    assert loaded.topics["t"].archived == world.image.topics["t"].archived
    copy = world.image.copy()
    announce(world, 20, 30)
    assert copy.topics["t"].archived == loaded.topics["t"].archived
    assert archive(world).end == 30


def test_whoever_acts_on_changes_hears_of_the_partition() -> None:
    world = world_with_topic()
    image, changes = world.image.copy(), Changes()
    body = {"base_offset": 0, "end_offset": 9, "size_bytes": 1, "max_timestamp": -1}
    where = {"topic_id": image.topics["t"].id.hex(), "partition": 0}
    changes.take(image, MetadataRecord("archive-segment", {**where, **body}), 0)
    assert changes.partitions == {TopicPartition("t", 0)}
    changes = Changes()
    changes.take(image, MetadataRecord("forget-archived", {**where, "start": 9}), 1)
    assert changes.partitions == {TopicPartition("t", 0)}
