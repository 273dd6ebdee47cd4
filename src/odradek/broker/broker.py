"""The facade that every door uses: find partitions, make and delete topics, wait until records are safe.

One event loop owns it, and all methods are called there. A change of metadata is on stable storage before its call
returns. A disk that fails stops the whole broker (`failed`): what it holds is in doubt until it is opened again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

from odradek.broker.config import BrokerConfig
from odradek.broker.settings import SettingsView
from odradek.broker.topics import INTERNAL_TOPICS, Partition, Topic
from odradek.clock import Clock
from odradek.controller import image as records
from odradek.controller.journal import EPOCH_ALONE, MetadataJournal
from odradek.disk.errors import DiskError
from odradek.log.config import LogConfig
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.flusher import GroupFlusher
from odradek.log.log import PartitionLog
from odradek.log.store import LogStore
from odradek.model import Offset, TopicPartition, topic_name_problem
from odradek.settings_table import SettingError
from odradek.wire.errors import ErrorCode, PeerError

LEADER_EPOCH_ALONE = 0  # a broker that stands alone has led every partition from its beginning
_PRODUCER_ID_BLOCK = 1000

_Result = TypeVar("_Result")
Overrides: TypeAlias = "Mapping[str, str] | Callable[[Mapping[str, str]], Mapping[str, str]]"
logger = logging.getLogger(__name__)


def _nobody(_topic: str) -> None:
    """Stands for those who want to know, until they say so."""


class Broker:
    """One broker: its topics, its store, and what it was told."""

    def __init__(
        self, config: BrokerConfig, settings: SettingsView, clock: Clock, journal: MetadataJournal, store: LogStore
    ) -> None:
        """Take over an open store and its metadata; call on the running loop."""
        self.config = config
        self.settings = settings.with_overrides(journal.image.broker_configs, "broker")
        self.node_id = config.broker_id
        self.clock = clock
        self.store = store
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.flusher = GroupFlusher(store.config.log_flush_threads, self._stop_on_failure, self._wake_readers)
        self.topics: dict[str, Topic] = {}
        self.metadata_version = 0  # changes with every topic that is made, grown or deleted
        self.on_topic_deleted: Callable[[str], None] = _nobody  # what the groups remember of it must go, too
        self.written: set[PartitionLog] = set()  # logs that were appended to since the last checkpoint
        self._configured = settings  # without what was changed while running
        self._by_id: dict[bytes, Topic] = {}
        self._by_log: dict[PartitionLog, Partition] = {}
        self._by_metric_name: dict[str, str] = {}  # names by what they are where '.' and '_' are the same
        self._journal = journal
        self._changing = asyncio.Lock()  # one change of metadata at a time
        self._next_producer_id = self._producer_ids_end = journal.image.next_producer_id

    async def start(self) -> None:
        """Bring the logs in line with the metadata: a crash may have come between the two."""
        if not self._journal.image.cluster_id:
            await self._record(records.CLUSTER, {"cluster_id": secrets.token_urlsafe(16)})
        for partition in list(self.store.logs):
            if partition.topic not in self._journal.image.topics:
                self._drop_stray(partition)
        for topic_image in list(self._journal.image.topics.values()):
            topic = Topic(topic_image.name, topic_image.id, dict(topic_image.configs))
            await self._add_partitions(topic, 0, topic_image.partition_count)
            self._publish(topic)

    def _drop_stray(self, partition: TopicPartition) -> None:
        if partition.topic in self._journal.image.deleted:
            self._free(partition)
        else:
            logger.warning("%s is in the data directory, but no topic's: it is left alone and not served", partition)

    @property
    def cluster_id(self) -> str:
        """The cluster's name for itself, made at the first start."""
        return self._journal.image.cluster_id

    @property
    def metadata_epoch(self) -> int:
        """In which epoch metadata is written."""
        return EPOCH_ALONE

    @property
    def metadata_end(self) -> Offset:
        """The offset behind the last change of metadata."""
        return self._journal.next_offset

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

    def partition(self, topic: str, index: int) -> Partition:
        """One partition, or UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR for one whose files are damaged."""
        found = self.topics.get(topic)
        partition = None if found is None else found.partitions.get(index)
        if partition is None:
            tp = TopicPartition(topic, index)
            if tp in self.store.offline:
                raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is offline: {self.store.offline[tp]}")
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {topic!r}")
        return partition

    # Safety.

    def flushed(self, partition: Partition, offset: Offset) -> asyncio.Future[None]:
        """Done when all below `offset` is on stable storage; fails with LogError if it never will be."""
        return self.flusher.flushed(partition.log, offset)

    def _wake_readers(self, log: PartitionLog) -> None:
        partition = self._by_log.get(log)
        if partition is not None:
            partition.advanced()

    def _stop_on_failure(self, _log: PartitionLog, error: LogStoppedError) -> None:
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
        self, name: str, partition_count: int, overrides: Mapping[str, str], *, internal: bool = False
    ) -> Topic:
        """Make a topic; -1 partitions means as many as num.partitions says. Internal ones are the broker's to make."""
        async with self._changing:
            count = self.check_new_topic(name, partition_count, overrides, internal=internal)
            topic = Topic(name, secrets.token_bytes(16), dict(overrides))
            body = {"topic_name": name, "topic_id": topic.id.hex(), "partitions": count, "configs": topic.overrides}
            await self._record(records.CREATE_TOPIC, body)
            await self._add_partitions(topic, 0, count)
            self._publish(topic)
        logger.info("topic %s made with %d partitions", name, count)
        return topic

    def check_new_topic(
        self, name: str, partition_count: int, overrides: Mapping[str, str], *, internal: bool = False
    ) -> int:
        """Refuse a topic that cannot be made; say how many partitions it would get."""
        problem = topic_name_problem(name)
        if name in INTERNAL_TOPICS and not internal:
            problem = f"{name} belongs to the broker, which makes it when it is needed"
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in self.topics:
            raise PeerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        other = self._by_metric_name.get(name.replace(".", "_"))
        if other is not None:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} and {other!r} differ only in '.' and '_'")
        if any(tp.topic == name for tp in self.store.offline):
            raise PeerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"files of an earlier topic {name!r} are damaged and offline"
            )
        count = self.config.num_partitions if partition_count == -1 else partition_count
        self._check_room(count)
        self.check_overrides(overrides)
        return count

    def _check_room(self, more: int) -> None:
        there = len(self._by_log)
        if more < 1:
            raise PeerError(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
        if there + more > self.config.partitions_max:
            raise PeerError(
                ErrorCode.INVALID_PARTITIONS,
                f"{more} partitions more than the {there} that are here is over partitions.max = "
                f"{self.config.partitions_max}",
            )

    def check_overrides(self, overrides: Mapping[str, str]) -> None:
        """Refuse settings that a topic cannot have."""
        try:
            self.settings.log_config(overrides)
        except SettingError as error:
            raise PeerError(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def delete_topic(self, name: str, topic_id: bytes | None = None) -> None:
        """Take a topic away, if it still has this id; its bytes are freed in the background."""
        async with self._changing:
            if name in INTERNAL_TOPICS:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"{name} belongs to the broker and cannot be deleted")
            if not self.config.delete_topic_enable:
                raise PeerError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            topic = self.topic(name)
            if topic_id not in (None, topic.id):
                raise PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {name!r} was deleted and made again meanwhile")
            await self._record(records.DELETE_TOPIC, {"topic_name": name})
            del self.topics[name], self._by_id[topic.id], self._by_metric_name[name.replace(".", "_")]
            self.metadata_version += 1
            for partition in topic.partitions.values():
                self.written.discard(partition.log)
                del self._by_log[partition.log]
                self._free(partition.tp)
                partition.advanced()
                await asyncio.sleep(0)  # letting many go must not hold up the others
            for tp in [tp for tp in self.store.offline if tp.topic == name]:
                self._free(tp)
            self.on_topic_deleted(name)
        logger.info("topic %s deleted", name)

    async def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have `total` partitions, more than it has now."""
        async with self._changing:
            topic = self.topic(name)
            self.check_new_total(topic, total)
            await self._record(records.ADD_PARTITIONS, {"topic_name": name, "partitions": total})
            await self._add_partitions(topic, topic.partition_count, total)
            self.metadata_version += 1

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

    async def set_topic_overrides(self, name: str, change: Overrides) -> None:
        """Replace the settings that a topic has for itself, given those of this moment; its logs follow at once."""
        async with self._changing:
            topic = self.topic(name)
            overrides = change(topic.overrides) if callable(change) else change
            self.check_overrides(overrides)
            await self._record(records.SET_TOPIC_CONFIGS, {"topic_name": name, "configs": dict(overrides)})
            topic.overrides = dict(overrides)
            self._reconfigure(topic)

    @property
    def broker_overrides(self) -> Mapping[str, str]:
        """The topics' defaults that were changed while running."""
        return self._journal.image.broker_configs

    async def set_broker_overrides(self, change: Overrides) -> None:
        """Replace the defaults of all topics that were changed while running, given those of this moment."""
        async with self._changing:
            overrides = change(self.broker_overrides) if callable(change) else change
            settings = self.check_broker_overrides(overrides)
            await self._record(records.SET_BROKER_CONFIGS, {"configs": dict(overrides)})
            self.settings = settings
            for topic in self.topics.values():
                self._reconfigure(topic)

    def check_broker_overrides(self, overrides: Mapping[str, str]) -> SettingsView:
        """Refuse defaults that cannot be changed while running; give the settings that would hold."""
        try:
            settings = self._configured.with_overrides(overrides, "broker")
            for topic in self.topics.values():  # what is good for all may contradict what one has for itself
                settings.log_config(topic.overrides)
        except SettingError as error:
            raise PeerError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return settings

    def _reconfigure(self, topic: Topic) -> None:
        config = self._config_of(topic)
        for partition in topic.partitions.values():
            partition.configure(config)
            if partition.log.safe_offset < partition.log.next_offset:
                self.flusher.request(partition.log)
            partition.advanced()  # with another `flush`, more may count as safe

    def _config_of(self, topic: Topic) -> LogConfig:
        replicas = self.settings.with_overrides(topic.overrides).values["min.insync.replicas"]
        topic.min_insync_replicas = replicas if isinstance(replicas, int) else 1
        return self.settings.log_config(topic.overrides)

    # Producer ids.

    async def new_producer_id(self) -> int:
        """An id that no producer has had and none will get again."""
        while self._next_producer_id == self._producer_ids_end:
            async with self._changing:
                if self._next_producer_id == self._producer_ids_end:
                    end = self._next_producer_id + _PRODUCER_ID_BLOCK
                    await self._record(records.PRODUCER_IDS, {"next": end})
                    self._producer_ids_end = end
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # Inside.

    async def _add_partitions(self, topic: Topic, first: int, total: int) -> None:
        """Let a topic have its partitions from `first` on; their logs are made where there are none."""
        logs, offline = self.store.logs, self.store.offline
        wanted = [TopicPartition(topic.name, index) for index in range(first, total)]
        missing = [tp for tp in wanted if tp not in logs and tp not in offline]
        if missing:
            await self._make_logs(missing)
        config = self._config_of(topic)
        topic.partition_count = total
        for tp in wanted:
            log = logs.get(tp)
            if log is not None:
                log.configure(config)
                partition = Partition(topic, tp.partition, log, LEADER_EPOCH_ALONE)
                topic.partitions[tp.partition] = partition
                self._by_log[log] = partition

    async def _make_logs(self, partitions: list[TopicPartition]) -> None:
        threads = self.store.config.log_flush_threads  # making a log is mostly waiting for the disk
        shares = (partitions[first::threads] for first in range(min(threads, len(partitions))))
        try:
            creations = [self.store.begin_create(share, LEADER_EPOCH_ALONE) for share in shares]
            await asyncio.gather(*(self._in_thread(creation.run) for creation in creations))
            for creation in creations:
                self.store.finish_create(creation)
        except (DiskError, LogError) as error:
            self.stop_for(error)
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _free(self, tp: TopicPartition) -> None:
        """Let a partition go at once, and its bytes when a thread has time."""
        remove = self._guarded(partial(self.store.delete, tp))

        def run() -> None:
            try:
                remove()
            except DiskError as error:
                logger.warning("the bytes of the deleted %s are not freed until the next start: %s", tp, error)

        self._in_thread(run)

    def _publish(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._by_id[topic.id] = topic
        self._by_metric_name[topic.name.replace(".", "_")] = topic.name
        self.metadata_version += 1

    async def _record(self, type_: str, body: Mapping[str, object]) -> None:
        try:
            await self._in_thread(partial(self._journal.append, type_, body))
        except DiskError as error:
            self.stop_for(error)
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _guarded(self, action: Callable[[], _Result]) -> _Result:
        try:
            return action()
        except (DiskError, LogError) as error:
            self.stop_for(error)
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _in_thread(self, action: Callable[[], _Result]) -> asyncio.Future[_Result]:
        return asyncio.get_running_loop().run_in_executor(None, action)

    async def close(self) -> None:
        """Flush what is under way; the store is closed by whoever opened it."""
        await self.flusher.close()
