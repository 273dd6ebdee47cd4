"""The rules of archived topics: which store will do, what may be changed, and what retention lets go. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from odradek.broker.objects_config import ObjectsConfig
from odradek.controller.image import TopicImage
from odradek.controller.image_archive import Piece
from odradek.records.header import NO_TIMESTAMP
from odradek.settings_table import Value


def store_problem(config: ObjectsConfig, *, stands_alone: bool) -> str | None:
    """Say why the archive cannot be where `store.url` says; None if it can."""
    if stands_alone or not (config.store_is_own or config.store_url.startswith("memory:")):
        return None
    return (
        f"the brokers of a cluster need one store for archived segments, and no other broker reads {config.store_url}: "
        "start all of them with the same store.url, such as s3://bucket/prefix"
    )


def change_problem(topic: TopicImage | None, values: Mapping[str, Value]) -> str | None:
    """Say why a topic cannot have these settings on account of what is archived of it; None if it can."""
    if topic is None or values["remote.storage.enable"] or not any(each.pieces for each in topic.archived.values()):
        return None
    return (
        f"remote.storage.enable cannot be turned off while records of {topic.name} are in the archive only: nobody "
        "could read them any more; delete the records up to where the disks begin, or make another topic"
    )


def expired_pieces(pieces: Sequence[Piece], behind_bytes: int, values: Mapping[str, Value], now_ms: int) -> int:
    """How many of the oldest pieces retention lets go; `behind_bytes` is what the partition has behind the archive."""
    bytes_max, age_max_ms = cast("int", values["retention.bytes"]), cast("int", values["retention.ms"])
    left = behind_bytes + sum(piece.size_bytes for piece in pieces)
    count = 0
    for piece in pieces:
        left -= piece.size_bytes
        is_over = 0 <= bytes_max <= left
        is_old = age_max_ms >= 0 and piece.max_timestamp != NO_TIMESTAMP and now_ms - piece.max_timestamp > age_max_ms
        if not is_over and not is_old:
            break
        count += 1
    return count
