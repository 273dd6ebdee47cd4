"""Decisions about archived segments: one is there, old ones go, the objects of a deleted topic are gone.

A segment is announced by the leader of its partition when all its objects are in the store, and nobody drops a copy on
a disk before that. The leader says in which term it speaks: one that another has replaced changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.controller.decisions_base import Decision, Facts, integer, malformed, topic_id
from odradek.controller.image import ClusterImage, MetadataRecord, TopicImage
from odradek.controller.image_archive import (
    ARCHIVE_DELETED,
    ARCHIVE_SEGMENT,
    FORGET_ARCHIVED,
    PartitionArchive,
    Piece,
)
from odradek.wire.errors import ErrorCode, PeerError


def archive_segment(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Take note of a segment whose objects are all in the store."""
    topic, index = _led(image, args)
    piece = Piece(*(integer(args, name) for name in Piece._fields))
    archive = topic.archived.get(index)
    if archive is not None and piece in archive.pieces:
        return Decision()  # it was announced before, and the answer was lost
    try:
        (archive or PartitionArchive(piece.base_offset)).with_piece(piece)
    except ValueError as error:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{topic.name}-{index}: {error}") from error
    if piece.base_offset < 0 or piece.size_bytes < 0:
        raise malformed("base_offset, size_bytes", piece)
    body = {"topic_id": topic.id.hex(), "partition": index, **piece._asdict()}
    return Decision([MetadataRecord(ARCHIVE_SEGMENT, body)])


def forget_archived(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Let a partition begin at an offset, so that its leader may delete the objects of what lies before."""
    topic, index = _led(image, args)
    start = integer(args, "start")
    archive = topic.archived.get(index)
    if archive is None or start <= archive.start:
        return Decision()
    return Decision([
        MetadataRecord(FORGET_ARCHIVED, {"topic_id": topic.id.hex(), "partition": index, "start": start})
    ])  # fmt: skip


def archive_deleted(image: ClusterImage, args: Mapping[str, Any], _facts: Facts) -> Decision:
    """Take note that the objects of a deleted topic are gone."""
    gone = topic_id(args.get("topic_id")).hex()
    if gone not in image.doomed_archives:
        return Decision()
    return Decision([MetadataRecord(ARCHIVE_DELETED, {"topic_id": gone})])


def _led(image: ClusterImage, args: Mapping[str, Any]) -> tuple[TopicImage, int]:
    """The topic and partition that are meant, if the caller speaks in the term of its leader."""
    topic, index = image.topic_by_id(topic_id(args.get("topic_id"))), integer(args, "partition")
    if topic is None or index not in topic.partitions:
        raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition any more")
    epoch, current = integer(args, "leader_epoch"), topic.partitions[index].leader_epoch
    if epoch != current:
        raise PeerError(
            ErrorCode.FENCED_LEADER_EPOCH, f"{topic.name}-{index} is led in epoch {current}, not in {epoch}"
        )
    return topic, index
