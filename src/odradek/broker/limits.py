"""What the limits of a single partition mean for its log, and by which name a log knows whose it is. Pure."""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.settings import SettingsView
from odradek.controller.image import ClusterImage, PartitionLimits
from odradek.log.config import LogConfig
from odradek.model import TopicPartition

_SEGMENT_BYTES_MAX = 2**31 - 1  # as `segment.bytes` has it: indexes count no further


def partition_config(settings: SettingsView, image: ClusterImage, tp: TopicPartition) -> LogConfig:
    """What the log of a partition reads: its topic's settings, with the limits that it has for itself."""
    topic = image.topics.get(tp.topic)
    config = settings.log_config({} if topic is None else topic.configs)
    partition = image.partition(*tp)
    return config if partition is None or partition.limits is None else limited(config, partition.limits)


def limited(config: LogConfig, limits: PartitionLimits) -> LogConfig:
    """The settings of a partition's log, given its topic's.

    A partition has no more than `partition_bytes` when it begins a new segment; what is written to is never deleted.
    """
    segment_bytes = min(limits.segment_bytes, _SEGMENT_BYTES_MAX)
    return replace(
        config,
        segment_bytes=segment_bytes,
        # An old segment goes when the others have so many bytes: when all together have more than the limit.
        retention_bytes=max(limits.partition_bytes - segment_bytes, 0) + 1 if limits.partition_bytes else -1,
        retention_ms=limits.ttl_seconds * 1000 if limits.ttl_seconds else -1,
        cleanup_policy=frozenset({"delete"}),
    )


def log_owner(topic_id: bytes, generation: int) -> str:
    """What a log is marked with: a partition that was deleted and made again is another one."""
    return f"{topic_id.hex()}.{generation}" if generation else topic_id.hex()
