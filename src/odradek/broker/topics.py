"""A topic and its partitions as the doors see them: names, ids, epochs, and how far each partition can be read."""

from __future__ import annotations

from collections.abc import Callable

from odradek.log.config import LogConfig
from odradek.log.log import PartitionLog
from odradek.log.outcomes import Appended
from odradek.model import Offset, TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})


class Partition:
    """One partition that this broker leads."""

    __slots__ = ("_shown", "_wakers", "appended_bytes", "index", "leader_epoch", "log", "topic", "tp")

    def __init__(self, topic: Topic, index: int, log: PartitionLog, leader_epoch: int) -> None:
        self.topic = topic
        self.index = index
        self.tp = TopicPartition(topic.name, index)
        self.log = log
        self.leader_epoch = leader_epoch
        self.appended_bytes = 0  # since the start; a fetch that waits counts by it, without reading
        self._shown: Offset = 0  # up to here records were shown under an earlier setting: they stay visible
        self._wakers: set[Callable[[], None]] = set()

    @property
    def high_watermark(self) -> Offset:
        """Records below this can be read: they are as safe as the topic's `flush` setting asks."""
        return max(self.log.safe_offset, self._shown)

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings; with another `flush` what was shown is not hidden again."""
        self._shown = self.high_watermark
        self.log.configure(config)

    @property
    def last_stable_offset(self) -> Offset:
        """Records below this belong to no transaction that is still open."""
        first_open = self.log.producers.first_unstable_offset
        return self.high_watermark if first_open is None else min(first_open, self.high_watermark)

    @property
    def log_start(self) -> Offset:
        """The first offset that can be read."""
        return self.log.log_start

    def append(self, data: memoryview | bytearray) -> Appended:
        """Write a producer's batches; they can be read when the high watermark has passed them."""
        appended = self.log.append(data, self.leader_epoch)
        self.appended_bytes += len(data)
        return appended

    # Waiting for the high watermark.

    def wake_on_advance(self, waker: Callable[[], None]) -> None:
        """Call `waker` at every move of the high watermark or the log start, until `forget`."""
        self._wakers.add(waker)

    def forget(self, waker: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._wakers.discard(waker)

    def advanced(self) -> None:
        """Tell those who wait that there is more to read, or that the partition is gone."""
        if self._wakers:
            for waker in tuple(self._wakers):
                waker()


class Topic:
    """One topic."""

    __slots__ = ("id", "is_internal", "min_insync_replicas", "name", "overrides", "partition_count", "partitions")

    def __init__(self, name: str, topic_id: bytes, overrides: dict[str, str]) -> None:
        self.name = name
        self.id = topic_id
        self.overrides = overrides  # the settings that it has for itself
        self.partitions: dict[int, Partition] = {}  # without those that are offline
        self.partition_count = 0  # with them
        self.is_internal = name in INTERNAL_TOPICS
        self.min_insync_replicas = 1
