"""The facade that every door uses: find partitions, make and delete topics, wait until records are safe.

One event loop owns it, and all methods are called there. A change of metadata is in the logs of a majority, and seen
here, before its call returns. A disk that fails stops the whole broker (`failed`): what it holds is in doubt until it
is opened again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from odradek.broker.archive_reading import ArchiveReader
from odradek.broker.config import BrokerConfig
from odradek.broker.hosting import Hosting
from odradek.broker.limits import limited
from odradek.broker.objects_config import TopicObjects
from odradek.broker.refusals import Refusals
from odradek.broker.settings import SettingsView
from odradek.broker.single_partitions import check_deletion, check_new_partition, plain_overrides
from odradek.broker.topic_rules import settings_problem
from odradek.broker.topics import Partition, Topic
from odradek.broker.watermarks import Watermarks
from odradek.clock import Clock
from odradek.controller.controller import Changes, Controller
from odradek.controller.decisions_topics import check_name
from odradek.controller.image import ClusterImage, PartitionLimits, TopicImage
from odradek.disk.errors import DiskError
from odradek.log.config import LogConfig
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.flusher import GroupFlusher
from odradek.log.log import PartitionLog
from odradek.log.store import LogStore
from odradek.model import INTERNAL_TOPICS, Offset, TopicPartition, topic_name_problem
from odradek.settings_table import SettingError
from odradek.wire.errors import ErrorCode, PeerError

_PRODUCER_ID_BLOCK = 1000

_Result = TypeVar("_Result")
Overrides: TypeAlias = "Mapping[str, str] | Callable[[Mapping[str, str]], Mapping[str, str]]"
logger = logging.getLogger(__name__)


class Lease(Protocol):
    """How long the controller counts on this broker; `controller.registration.Registration` is what there is."""

    @property
    def lease_until(self) -> int:
        """By the monotonic clock, in milliseconds."""

    @property
    def is_fenced(self) -> bool:
        """Whether the controller has said that it does not."""


def _nobody(_topic: str, _partition: int = -1) -> None:
    """Stands for those who want to know, until they say so."""


class Broker:
    """One broker: its topics, its store, and what it was told."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: SettingsView,
        clock: Clock,
        metadata: Controller,
        store: LogStore,
        watermarks: Watermarks,
    ) -> None:
        """Take over an open store and the cluster's metadata; call on the running loop."""
        self.config = config
        self.settings = settings.with_overrides(metadata.image.broker_configs, "broker")
        self.node_id = config.broker_id
        self.clock = clock
        self.store = store
        self.metadata = metadata
        self.watermarks = watermarks
        self.incarnation = secrets.token_hex(16)  # of this life: an earlier one may be registered still
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.flusher = GroupFlusher(store.config.log_flush_threads, self._stop_on_failure, self._wake_readers)
        self.topics: dict[str, Topic] = {}
        self.hosting = Hosting(self)
        self.registration: Lease | None = None  # None: nobody can take this broker's leaderships away
        self.metadata_version = 0  # changes with every topic that is made, grown or deleted
        self.on_topic_deleted: Callable[[str], None] = _nobody  # what the groups remember of it must go, too
        self.on_partition_deleted: Callable[[str, int], None] = _nobody  # likewise; it may have been made again since
        self.archive: ArchiveReader | None = None  # reads what is archived; None: nobody does
        self.refusals = Refusals()
        self.written: set[PartitionLog] = set()  # logs that were appended to since the last checkpoint
        self._configured = settings  # without what was changed while running
        self._by_id: dict[bytes, Topic] = {}
        self._changing = asyncio.Lock()  # one change of settings at a time: they are read, changed and written
        self._numbering = asyncio.Lock()  # one block of producer ids at a time
        self._next_producer_id = self._producer_ids_end = 0
        metadata.on_change = self._follow

    def start(self) -> None:
        """Bring the logs in line with the metadata, as far as it is known."""
        self.hosting.start()

    def _follow(self, image: ClusterImage, changes: Changes) -> None:
        """The metadata has changed."""
        own = image.brokers.get(self.node_id)
        if own is not None and own.incarnation == self.incarnation:
            self.hosting.open()
        if changes.configs or changes.everything:
            self._follow_settings(image)
        if changes.everything:
            self.metadata_version += 1
            self.hosting.look_at({*image.topics, *self.topics})
            return
        if changes.topics:
            self.metadata_version += 1
        names = {tp.topic for tp in changes.partitions}
        self.hosting.look_at(names | changes.topics, changes.partitions)
        if changes.brokers:
            self.hosting.follow_again(changes.brokers)

    def _follow_settings(self, image: ClusterImage) -> None:
        try:
            self.settings = self._configured.with_overrides(image.broker_configs, "broker")
        except SettingError as error:
            logger.error("the settings that were changed while running are not followed: %s", error)
            return
        for topic in self.topics.values():
            self.reconfigure(topic)
            if self.hosting.channels is not None:
                self.hosting.channels.changed(topic)

    @property
    def cluster_id(self) -> str:
        """The cluster's name for itself, made at its first start."""
        return self.metadata.image.cluster_id

    @property
    def stands_alone(self) -> bool:
        """Whether there is no other broker, and none is expected."""
        return len(self.metadata.quorum.voters) <= 1 and len(self.metadata.image.brokers) <= 1

    def monotonic_ms(self) -> int:
        """The time by which leases and followers are judged: it never goes back."""
        return time.monotonic_ns() // 1_000_000

    @property
    def is_fenced(self) -> bool:
        """Whether the controller may have given this broker's leaderships to others: it has not been heard of."""
        if self.registration is None or self.stands_alone:
            return False
        return self.registration.is_fenced or self.registration.lease_until < self.monotonic_ms()

    # Finding things.

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        return self._by_id.get(topic_id)

    def topic(self, name: str) -> Topic:
        """The topic of this name, or UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.topics.get(name)
        if topic is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def replica(self, topic: str, index: int) -> Partition:
        """A partition of which this broker has a replica; else an error that says what is wrong."""
        found = self.topics.get(topic)
        partition = None if found is None else found.partitions.get(index)
        if partition is not None:
            return partition
        tp = TopicPartition(topic, index)
        if tp in self.store.offline:
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is offline: {self.store.offline[tp]}")
        if found is not None and self.metadata.image.partition(topic, index) is not None:
            raise PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.node_id} has no replica of {tp}")
        raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {topic!r}")

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that this broker leads; NOT_LEADER_OR_FOLLOWER for one that another leads."""
        partition = self.replica(topic, index)
        if not partition.is_leader:
            raise partition.not_led()
        if self.is_fenced:
            raise partition.not_led("the controller has not been heard of for too long")
        return partition

    # Safety.

    def flushed(self, partition: Partition, offset: Offset) -> asyncio.Future[None]:
        """Done when all below `offset` is on stable storage here; fails with LogError if it never will be."""
        return self.flusher.flushed(partition.log, offset)

    def committed(self, partition: Partition, offset: Offset) -> asyncio.Future[None]:
        """Done when all below `offset` is as safe as acks=all promises; fails with PeerError or LogError."""
        if partition.log.safe_offset < offset:
            self.flusher.request(partition.log)
        else:
            partition.advanced()
        return partition.acknowledged(offset)

    def _wake_readers(self, log: PartitionLog) -> None:
        partition = self.hosting.partition_of(log)
        if partition is not None:
            partition.advanced()

    def _stop_on_failure(self, log: PartitionLog, error: LogStoppedError) -> None:
        partition = self.hosting.partition_of(log)
        if partition is not None:
            partition.fail(error)
        self.stop_for(error)

    def heed(self, error: Exception) -> None:
        """Stop if it was the disk that failed, and not something that a client asked for."""
        if isinstance(error, DiskError) or (isinstance(error, LogStoppedError) and isinstance(error.cause, DiskError)):
            self.stop_for(error)

    def stop_for(self, error: Exception) -> None:
        """The disk failed: nothing more is acknowledged, and whoever runs the broker ends it."""
        if not self.failed.done():
            logger.critical("the broker stops: %s", error)
            self.failed.set_result(error)

    # Changing topics.

    async def create_topic(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str],
        *,
        replication_factor: int | str = -1,
        internal: bool = False,
        timeout_ms: int = 30_000,
    ) -> Topic:
        """Make a topic; -1 partitions means as many as num.partitions says. Internal ones are the broker's to make."""
        count = self.check_new_topic(name, partition_count, overrides, internal=internal)
        await self.change_topic(name, count, overrides, replication_factor, timeout_ms=timeout_ms)
        return self.topic(name)

    async def change_topic(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str],
        replication_factor: int | str,
        assignments: Mapping[str, list[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int = 30_000,
    ) -> dict[str, Any]:
        """Have the controller make a topic that was checked, or check it, too."""
        args = {
            "name": name,
            "partitions": partition_count,
            "replication_factor": replication_factor,
            "assignments": None if assignments is None else dict(assignments),
            "configs": dict(overrides),
            "validate_only": validate_only,
        }
        return await self.change("create-topic", args, timeout_ms)

    def check_new_topic(
        self, name: str, partition_count: int, overrides: Mapping[str, str], *, internal: bool = False
    ) -> int:
        """Refuse a topic that cannot be made; say how many partitions it would get."""
        problem = topic_name_problem(name)
        if name in INTERNAL_TOPICS and not internal:
            problem = f"{name} belongs to the broker, which makes it when it is needed"
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if self.stands_alone:  # else another broker may have deleted it a moment ago: the controller knows
            check_name(self.metadata.image, name)
        if name not in self.metadata.image.topics and any(tp.topic == name for tp in self.store.offline):
            raise PeerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"files of an earlier topic {name!r} are damaged and offline"
            )
        count = self.config.num_partitions if partition_count == -1 else partition_count
        self._check_room(count)
        self.check_overrides(overrides)
        return count

    def _check_room(self, more: int) -> None:
        there = sum(len(topic.partitions) for topic in self.metadata.image.topics.values())
        if more < 1:
            raise PeerError(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
        if there + more > self.config.partitions_max:
            raise PeerError(
                ErrorCode.INVALID_PARTITIONS,
                f"{more} partitions more than the {there} that are here is over partitions.max = "
                f"{self.config.partitions_max}",
            )

    def check_overrides(self, overrides: Mapping[str, str], topic: TopicImage | None = None) -> None:
        """Refuse settings that a topic cannot have."""
        problem = settings_problem(self.settings, overrides, topic, stands_alone=self.stands_alone)
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_CONFIG, problem)
        if self.hosting.channels is not None:
            self.hosting.channels.check(overrides)

    async def delete_topic(self, name: str, topic_id: bytes | None = None, *, timeout_ms: int = 30_000) -> None:
        """Take a topic away, if it still has this id; its bytes are freed in the background."""
        if name in INTERNAL_TOPICS:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{name} belongs to the broker and cannot be deleted")
        if not self.config.delete_topic_enable:
            raise PeerError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        args = {"name": name, "topic_id": None if topic_id is None else topic_id.hex()}
        await self.change("delete-topic", args, timeout_ms)

    async def add_partitions(
        self,
        name: str,
        total: int,
        replicas: list[list[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int = 30_000,
    ) -> None:
        """Let a topic have `total` partitions, more than it has now; `replicas` are those of the new ones."""
        topic = self.topic(name)
        self.check_new_total(topic, total)
        assignments = None
        if replicas is not None:
            assignments = {str(index): nodes for index, nodes in enumerate(replicas, start=topic.partition_count)}
        args = {"name": name, "total": total, "assignments": assignments, "validate_only": validate_only}
        await self.change("add-partitions", args, timeout_ms)

    def check_new_total(self, topic: Topic, total: int) -> None:
        """Refuse a number of partitions that is not more than there are, or too many."""
        if topic.is_internal:  # groups are found by the number of its partitions
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{topic.name} belongs to the broker and cannot grow")
        present = topic.partition_count
        if total <= present:
            raise PeerError(
                ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {present} partitions; {total} are not more"
            )
        self._check_room(total - present)

    async def create_partition(
        self, name: str, index: int, limits: PartitionLimits, *, timeout_ms: int = 30_000
    ) -> None:
        """Make one partition with limits of its own, whatever others the topic has; the first one makes the topic."""
        topic, offline = self.metadata.image.topics.get(name), self.store.offline
        check_new_partition(self.config, self.settings, topic, TopicPartition(name, index), offline)
        configs = plain_overrides(self.settings)
        args = {"name": name, "partition": index, "limits": limits._asdict(), "configs": configs}
        await self.change("create-partition", args, timeout_ms)

    async def delete_partition(self, name: str, index: int, *, timeout_ms: int = 30_000) -> None:
        """Take one partition away with all that it holds; the last one takes its topic with it."""
        check_deletion(self.config, self.settings, self.metadata.image.topics.get(name), name)
        await self.change("delete-partition", {"name": name, "partition": index}, timeout_ms)

    async def set_topic_overrides(self, name: str, change: Overrides) -> None:
        """Replace the settings that a topic has for itself, given those of this moment; its logs follow at once."""
        async with self._changing:
            topic = self.topic(name)
            while True:
                was = (
                    self.metadata.image.topics[name].configs if name in self.metadata.image.topics else topic.overrides
                )
                overrides = change(was) if callable(change) else change
                self.check_overrides(overrides, self.metadata.image.topics.get(name))
                args = {"name": name, "configs": dict(overrides), "was": dict(was)}
                if await self._set("set-topic-configs", args):
                    return

    @property
    def broker_overrides(self) -> Mapping[str, str]:
        """The topics' defaults that were changed while running."""
        return self.metadata.image.broker_configs

    async def set_broker_overrides(self, change: Overrides) -> None:
        """Replace the defaults of all topics that were changed while running, given those of this moment."""
        async with self._changing:
            while True:
                was = self.broker_overrides
                overrides = change(was) if callable(change) else change
                self.check_broker_overrides(overrides)
                if await self._set("set-broker-configs", {"configs": dict(overrides), "was": dict(was)}):
                    return

    async def _set(self, command: str, args: Mapping[str, Any]) -> bool:
        """Change settings; False if somebody else has changed them since they were read."""
        try:
            await self.change(command, args)
        except PeerError as error:
            if error.code is ErrorCode.INVALID_UPDATE_VERSION:
                return False
            raise
        return True

    def check_broker_overrides(self, overrides: Mapping[str, str]) -> SettingsView:
        """Refuse defaults that cannot be changed while running; give the settings that would hold."""
        try:
            settings = self._configured.with_overrides(overrides, "broker")
            for topic in self.topics.values():  # what is good for all may contradict what one has for itself
                settings.log_config(topic.overrides)
        except SettingError as error:
            raise PeerError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return settings

    async def change(self, command: str, args: Mapping[str, Any], timeout_ms: int = 30_000) -> dict[str, Any]:
        """Have the controller change the metadata, and wait until this broker is what it says."""
        try:
            result = await self.metadata.call(command, dict(args), timeout_ms=timeout_ms)
            await self.hosting.settled()
        except PeerError:
            self._check_disk()
            raise
        self._check_disk()
        return result

    def _check_disk(self) -> None:
        if self.failed.done():
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failed.result()))

    # Producer ids.

    async def new_producer_id(self) -> int:
        """An id that no producer has had and none will get again."""
        while self._next_producer_id == self._producer_ids_end:
            async with self._numbering:
                if self._next_producer_id == self._producer_ids_end:
                    result = await self.change("producer-ids", {"count": _PRODUCER_ID_BLOCK})
                    self._next_producer_id = int(result["first"])
                    self._producer_ids_end = self._next_producer_id + _PRODUCER_ID_BLOCK
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # Called by those who bring the logs in line with the metadata.

    def publish(self, topic: Topic) -> None:
        """A topic is as it should be: let everybody see it."""
        self.topics[topic.name] = topic
        self._by_id[topic.id] = topic
        self.metadata_version += 1

    def withdraw(self, topic: Topic) -> None:
        """A topic is no more."""
        self.topics.pop(topic.name, None)
        self._by_id.pop(topic.id, None)
        self.metadata_version += 1

    def reconfigure(self, topic: Topic) -> None:
        """Let a topic's logs follow its settings."""
        self._note_settings(topic)
        configs = self.configs_of(topic, topic.partitions)
        for partition in topic.partitions.values():
            partition.configure(configs[partition.index])
            if partition.log.safe_offset < partition.log.next_offset:
                self.flusher.request(partition.log)

    def configs_of(self, topic: Topic, indexes: Iterable[int]) -> dict[int, LogConfig]:
        """What the logs of these partitions read: their topic's settings, with the limits that each has for itself."""
        config, image = self.settings.log_config(topic.overrides), self.metadata.image.topics.get(topic.name)
        known: dict[PartitionLimits | None, LogConfig] = {None: config}
        configs: dict[int, LogConfig] = {}
        for index in indexes:
            partition = None if image is None else image.partitions.get(index)
            limits = None if partition is None else partition.limits
            if limits is not None and limits not in known:
                known[limits] = limited(config, limits)
            configs[index] = known[limits]
        return configs

    def _note_settings(self, topic: Topic) -> None:
        """Let a topic know what it must of its settings."""
        values = self.settings.with_overrides(topic.overrides).values
        replicas = values["min.insync.replicas"]
        topic.min_insync_replicas = replicas if isinstance(replicas, int) else 1
        objects = TopicObjects.of(values)
        topic.is_archived = objects.remote_storage_enable
        topic.is_channel = bool(objects.channel_store) and not topic.is_internal

    def guarded(self, action: Callable[[], _Result]) -> _Result:
        """Do something that only a failing disk can prevent."""
        try:
            return action()
        except (DiskError, LogError) as error:
            self.stop_for(error)
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def close(self) -> None:
        """Flush what is under way; the store is closed by whoever opened it."""
        await self.hosting.close()
        await self.flusher.close()
        if not self.failed.done():
            self.watermarks.save(self.hosting.partitions())
