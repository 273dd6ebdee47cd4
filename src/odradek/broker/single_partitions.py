"""The rules of partitions that are made and deleted one by one, as far as a broker's own settings decide them. Pure.

The controller checks the rest. Where the object store knows a topic's partitions by their numbers only, a partition
that is made again would find the objects of the old one: channels and archived topics are therefore left whole.
"""

from __future__ import annotations

from collections.abc import Container

from odradek.broker.config import BrokerConfig
from odradek.broker.settings import SettingsView
from odradek.controller.image import TopicImage
from odradek.model import INTERNAL_TOPICS, TopicPartition, topic_name_problem
from odradek.wire.errors import ErrorCode, PeerError


def check_new_partition(
    config: BrokerConfig,
    settings: SettingsView,
    topic: TopicImage | None,
    tp: TopicPartition,
    offline: Container[TopicPartition],
) -> None:
    """Refuse a partition that cannot be made on its own; `offline` are those whose files are damaged."""
    problem = topic_name_problem(tp.topic)
    if problem is None and tp.topic in INTERNAL_TOPICS:
        problem = f"{tp.topic} belongs to the broker, which makes it when it is needed"
    if problem is not None:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if not 0 <= tp.partition < config.partitions_max:
        raise PeerError(
            ErrorCode.INVALID_PARTITIONS,
            f"there is no partition {tp.partition}: they count from 0 to partitions.max - 1 = "
            f"{config.partitions_max - 1}",
        )
    _check_whole(settings, topic, "made")
    if tp in offline and (topic is None or tp.partition not in topic.partitions):
        raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"files of an earlier {tp} are damaged and offline")


def check_deletion(config: BrokerConfig, settings: SettingsView, topic: TopicImage | None, name: str) -> None:
    """Refuse to delete a partition of a topic on its own where that cannot be."""
    if name in INTERNAL_TOPICS:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{name} belongs to the broker and cannot be deleted")
    if not config.delete_topic_enable:
        raise PeerError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    _check_whole(settings, topic, "deleted")


def plain_overrides(settings: SettingsView) -> dict[str, str]:
    """What a topic that is made with its first partition has for itself: it is neither channel nor archived."""
    overrides = {}
    if settings.values["remote.storage.enable"]:
        overrides["remote.storage.enable"] = "false"
    if settings.values["channel.store"]:
        overrides["channel.store"] = ""
    return overrides


def _check_whole(settings: SettingsView, topic: TopicImage | None, done: str) -> None:
    if topic is None:
        return
    values = settings.with_overrides(topic.configs).values
    if values["channel.store"]:
        what = "is a channel, whose objects hold the records of all partitions"
    elif values["remote.storage.enable"]:
        what = "is archived (remote.storage.enable), and its objects are named by the partitions' numbers"
    else:
        return
    raise PeerError(
        ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} {what}: its partitions cannot be {done} one by one"
    )
