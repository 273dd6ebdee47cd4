"""Channels (seed 002, RAMA): topics whose messages are kept in an object store, too, ordered by time.

A topic with a `channel.store` is one. The broker that leads a partition brings its records into the store
(`channel_upload`); a publisher hears that his message is taken when it is there. Readers get it before: from the
log, as a consumer does. A broker without channels has nothing to do here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.broker.broker import Broker
from odradek.broker.channel_deletion import Deleted, Deletions
from odradek.broker.channel_reading import ChannelReading
from odradek.broker.channel_scan import StoredMessage
from odradek.broker.channel_spec import settle_spec, stored_spec
from odradek.broker.channel_stores import ChannelStores, check_place, end_tasks, spec_of
from odradek.broker.channel_upload import Uploader, away_error
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.objects_config import ObjectsConfig, TopicObjects
from odradek.broker.topics import Partition, Topic
from odradek.disk.interface import Disk
from odradek.log.outcomes import Appended
from odradek.model import Offset
from odradek.objects.errors import StoreError
from odradek.objects.reader import expire_channel
from odradek.objects.spec import ChannelSpec
from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from odradek.settings_table import SettingError
from odradek.wire.errors import ErrorCode, PeerError

_CLOSE_SECONDS = 5.0  # for what is under way when the broker stops
_RECORD_OVERHEAD_BYTES = 40
_BATCH_OVERHEAD_BYTES = 128

logger = logging.getLogger(__name__)


class ChannelGauge(NamedTuple):
    """What one partition of a channel that is led here tells of itself."""

    topic: str
    partition: int
    behind_bytes: int  # in the log and not in the store
    behind_seconds: float  # for how long something has been due
    away_seconds: float  # for how long the store has not answered
    objects: int  # that were put since this broker leads it
    failures: int  # attempts that failed since then


class Channels:
    """The channels of one broker."""

    def __init__(self, broker: Broker, config: ObjectsConfig, disk: Disk, stores: ChannelStores) -> None:
        """Made on the running loop; the stores are closed by whoever made them, after this."""
        self.config = config
        self.stores = stores
        self._broker = broker
        self._uploaders: dict[str, dict[int, Uploader]] = {}
        self._leaders: dict[bytes, int] = {}  # of partition 0 of each channel, as last seen, by the topic's id
        self._refused: dict[bytes, PeerError] = {}  # channels that cannot be served as they are
        self._reading = ChannelReading(broker, self.stores, self.spec, self._store_of)
        self._deletions = Deletions(disk, broker.store.directory, self.stores)
        self._keeper: asyncio.Task[None] | None = None  # lets old buckets go
        self._is_closed = False

    def start(self) -> None:
        """Serve the channels that there are, and hear of changes."""
        self._broker.hosting.channels = self
        for topic in list(self._broker.topics.values()):
            self.changed(topic)
        self._deletions.start()

    async def close(self) -> None:
        """Store what is in the logs, as far as that is quick, and end."""
        self._is_closed = True
        self._broker.hosting.channels = None
        uploaders = [each for running in self._uploaders.values() for each in running.values()]
        ending = [task for each in uploaders if (task := each.finish()) is not None]
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_SECONDS)
        for uploader in uploaders:
            uploader.stop(_closing())
        await end_tasks([*ending, *([] if self._keeper is None else [self._keeper])])
        await self._deletions.close()

    # What is a channel.

    def is_channel(self, topic: str) -> bool:
        """Whether a topic of this name is one."""
        found = self._broker.topics.get(topic)
        return found is not None and bool(self._store_of(found))

    def names(self) -> list[str]:
        """All channels of the cluster, in order."""
        return sorted(topic.name for topic in self._broker.topics.values() if self._store_of(topic))

    def spec(self, topic: Topic) -> ChannelSpec:
        """What a channel is, with the grid of time that its objects have; PeerError if it is none."""
        uploader = next(iter(self._uploaders.get(topic.name, {}).values()), None)
        if uploader is not None and uploader.partition.topic is topic:
            return uploader.spec
        if not self._store_of(topic):
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name!r} is a topic, but no channel")
        return spec_of(topic.name, topic.id, self._settings_of(topic.overrides))

    def _store_of(self, topic: Topic) -> str:
        """The URL of a channel's store; empty if the topic is none."""
        if topic.is_internal:
            return ""
        return str(topic.overrides.get("channel.store", self._broker.settings.values["channel.store"]))

    def _settings_of(self, overrides: Mapping[str, str]) -> TopicObjects:
        return TopicObjects.of(self._broker.settings.with_overrides(overrides).values)

    # Called for the metadata.

    def check(self, overrides: Mapping[str, str]) -> None:
        """Refuse a store that no channel of this broker can have, whoever asks for it."""
        if url := overrides.get("channel.store"):
            check_place(url, self.config, stands_alone=self._broker.stands_alone)

    def changed(self, topic: Topic) -> None:
        """A topic is new, or its settings or leaders have changed."""
        try:
            self._follow(topic)
        except Exception:
            logger.exception("a bug in serving channel %s", topic.name)

    def _follow(self, topic: Topic) -> None:
        url = self._store_of(topic)
        if not url and topic.name not in self._uploaders:
            return
        running = self._uploaders.setdefault(topic.name, {})
        spec = self._spec_for(topic, url) if url else None
        for index, uploader in list(running.items()):
            partition = uploader.partition
            is_led = topic.partitions.get(index) is partition and partition.is_leader
            if spec is None or not is_led or uploader.epoch != partition.leader_epoch or uploader.url != url:
                running.pop(index).stop(uploader.partition.not_led("its channel is not served here any more"))
        if spec is not None and not self._is_closed:
            for index, partition in topic.partitions.items():
                if index in running:
                    running[index].reconfigure(spec)
                elif partition.is_leader:
                    running[index] = Uploader(partition, url, spec, self.stores, self._broker.clock)
                    running[index].start()
        if not running:
            del self._uploaders[topic.name]
        elif self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())
        self._note_leader(topic)

    def _spec_for(self, topic: Topic, url: str) -> ChannelSpec | None:
        """What a topic's channel is to be; None if it cannot be served, which is said once."""
        try:
            check_place(url, self.config, stands_alone=self._broker.stands_alone)
            spec = spec_of(topic.name, topic.id, self._settings_of(topic.overrides))
            _check_order(spec.fifo, topic.partition_count)
        except PeerError as error:
            if self._refused.get(topic.id) is None:
                logger.error("channel %s is not served: %s", topic.name, error.message)
            self._refused[topic.id] = error
            return None
        self._refused.pop(topic.id, None)
        return spec

    def _note_leader(self, topic: Topic) -> None:
        """Remember who leads it: that broker is to clean up when the topic is gone."""
        image = self._broker.metadata.image.topics.get(topic.name)
        if image is not None and image.id == topic.id and image.partitions:
            self._leaders[topic.id] = image.partitions[min(image.partitions)].leader

    def deleted(self, topic: Topic) -> None:
        """A topic is no more: so are its objects, and one broker sees to it."""
        self._refused.pop(topic.id, None)
        leader = self._leaders.pop(topic.id, self._broker.node_id)
        error = PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"channel {topic.name!r} was deleted")
        uploaders = self._uploaders.pop(topic.name, {}).values()
        ending = [task for uploader in uploaders if (task := uploader.stop(error)) is not None]
        url = self._store_of(topic)
        if url and self._is_cleaner(leader):
            self._deletions.add(Deleted(url, topic.name, topic.id.hex()), ending)

    def _is_cleaner(self, leader: int) -> bool:
        alive = {broker.id for broker in self._broker.metadata.image.brokers.values() if not broker.fenced}
        return self._broker.node_id == (leader if leader in alive or not alive else min(alive))

    async def deletions_done(self) -> None:
        """Wait until the objects of deleted channels are gone."""
        await self._deletions.idle()

    # Making one.

    async def create(
        self,
        name: str,
        *,
        store: str | None = None,
        fifo: bool = False,
        partitions: int = 1,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic that is a channel, and tell the store of it; PeerError says what cannot be."""
        configs = dict(overrides or {})
        url = store or configs.get("channel.store") or self.config.store_url
        configs["channel.store"] = url
        if fifo:
            configs |= {"channel.fifo": "true", "message.timestamp.type": "LogAppendTime"}
        self._broker.check_new_topic(name, partitions, configs)
        settings = self._checked(name, configs)
        _check_order(settings.channel_fifo, partitions)
        await self._check_free(name, url)
        topic = await self._broker.create_topic(name, partitions, configs)
        spec = spec_of(name, topic.id, settings)
        try:
            await self.stores.run(url, lambda opened: settle_spec(opened, spec))
        except StoreError as error:  # its leader tells the store as soon as that answers
            logger.warning("channel %s is made, and its store does not know it yet: %s", name, error)

    def _checked(self, name: str, configs: Mapping[str, str]) -> TopicObjects:
        try:
            settings = self._settings_of(configs)
        except SettingError as error:
            raise PeerError(ErrorCode.INVALID_CONFIG, str(error)) from error
        check_place(settings.channel_store, self.config, stands_alone=self._broker.stands_alone)
        spec_of(name, bytes(16), settings)
        return settings

    async def _check_free(self, name: str, url: str) -> None:
        """See whether the store can be used, and has no channel of this name."""
        try:
            found = await self.stores.run(url, lambda opened: stored_spec(opened, name))
            has_objects = found is None and await self.stores.run(url, lambda opened: any(opened.list(name)))
        except StoreError as error:
            raise store_error(error) from error
        if has_objects:  # its readers would take them for its own, and its deletion would take them along
            raise PeerError(
                ErrorCode.INVALID_CONFIG,
                f"{url} has objects below {name}/ that belong to no channel: remove them, or choose another name",
            )
        if found is not None:
            raise PeerError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"{url} holds a channel {name!r} already, of the id {found.id}: if it was deleted just now, try again "
                "in a moment; else choose another name or store",
            )

    # Publishing.

    async def publish(
        self, name: str, records: Sequence[NewRecord], partition: int | None = None
    ) -> tuple[Offset, Offset]:
        """Append records and wait until the store has them: the first and the last offset. PeerError if it has not."""
        found = self._broker.partition(name, partition or 0)
        uploader = self._uploader_of(found)
        self._check_backlog(uploader)
        found.check_in_sync()
        try:
            appended = self._append(found, records)
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error
        seconds = (self.config.channel_timeout_ms + uploader.spec.slice_ms) / 1000
        try:
            async with asyncio.timeout(seconds):
                await uploader.stored(appended.last_offset + 1)
        except TimeoutError:
            raise away_error(uploader, seconds) from None
        return appended.base_offset, appended.last_offset

    def _append(self, partition: Partition, records: Sequence[NewRecord]) -> Appended:
        batches = bytearray()
        for run in _runs(records, partition.log.config.max_message_bytes - _BATCH_OVERHEAD_BYTES):
            batches += build_batch(run)
        appended = partition.append(batches)
        self._broker.written.add(partition.log)
        if partition.log.safe_offset > appended.last_offset:
            partition.advanced()
        else:
            self._broker.flusher.request(partition.log)
        return appended

    def _uploader_of(self, partition: Partition) -> Uploader:
        topic = partition.topic
        uploader = self._uploaders.get(topic.name, {}).get(partition.index)
        if uploader is None or uploader.partition is not partition or uploader.epoch != partition.leader_epoch:
            self._follow(topic)
            uploader = self._uploaders.get(topic.name, {}).get(partition.index)
        if uploader is not None and not self._is_closed:
            return uploader
        if self._is_closed:
            raise _closing()
        if topic.id in self._refused:
            raise self._refused[topic.id]
        raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name!r} is a topic, but no channel")

    def _check_backlog(self, uploader: Uploader) -> None:
        """Refuse at once what would only wait: the store has been away for long, or too much waits already."""
        if uploader.behind_bytes > self.config.channel_backlog_bytes:
            raise PeerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{uploader.behind_bytes} bytes of {uploader.partition.tp} wait for the store {uploader.url}, more "
                f"than channel.backlog.bytes = {self.config.channel_backlog_bytes}: try again later",
            )
        if uploader.away_seconds * 1000 > self.config.channel_timeout_ms:
            raise PeerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the store {uploader.url} has not answered for {uploader.away_seconds:.0f} s ({uploader.failure}): "
                "nothing was stored, try again later",
            )

    def stored(self, partition: Partition, offset: Offset) -> asyncio.Future[None]:
        """Done when all below `offset` is in the store; fails with PeerError when another broker leads meanwhile."""
        return self._uploader_of(partition).stored(offset)

    # Reading.

    async def read(self, name: str, start_ms: int, skip: int, count: int, wait_ms: int = 0) -> list[StoredMessage]:
        """Messages of this time and later, by bucket and offset, without the first `skip`; may wait for one."""
        topic = self._broker.topic(name)
        self.spec(topic)
        return await self._reading.read(topic, start_ms, skip, count, wait_ms)

    # Looking after them.

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.log_retention_check_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Let go of the buckets that retention no longer keeps, of channels whose first partition is led here."""
        for name, running in list(self._uploaders.items()):
            uploader = running.get(0)
            if uploader is None or uploader.frontier is None or uploader.spec.retention_ms < 0:
                continue
            spec, now_ms = uploader.spec, self._broker.clock.now_ms()
            try:
                count = await self.stores.run(uploader.url, lambda store: expire_channel(store, spec, now_ms))  # noqa: B023
            except StoreError as error:
                logger.warning("old buckets of channel %s stay in the store for now: %s", name, error)
            except Exception:
                logger.exception("a bug in letting old buckets of channel %s go; it is tried again", name)
            else:
                if count:
                    logger.info("%d old objects of channel %s are deleted", count, name)

    def gauges(self) -> list[ChannelGauge]:
        """Numbers of all partitions of channels that are led here."""
        return [
            ChannelGauge(
                name, index, each.behind_bytes, each.behind_seconds, each.away_seconds, each.objects, each.failures
            )
            for name, running in sorted(self._uploaders.items())
            for index, each in sorted(running.items())
        ]


def _check_order(fifo: bool, partitions: int) -> None:
    if fifo and partitions != 1:
        raise PeerError(
            ErrorCode.INVALID_PARTITIONS, f"a fifo channel has one partition, not {partitions}: order needs it"
        )


def store_error(error: StoreError) -> PeerError:
    """What a client is told when a store does not do as it should."""
    return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def _closing() -> PeerError:
    return PeerError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is about to stop: what is in its log is stored later")


def _runs(records: Sequence[NewRecord], size_max: int) -> list[Sequence[NewRecord]]:
    """Cut records into as many batches as a log takes; one record that is too large is left to it."""
    plain = sum([len(record.value or b"") + len(record.key or b"") for record in records])
    if plain + len(records) * _RECORD_OVERHEAD_BYTES <= size_max and not any(record.headers for record in records):
        return [records]
    cuts, size = [0], 0
    for index, record in enumerate(records):
        own = len(record.value or b"") + len(record.key or b"") + _RECORD_OVERHEAD_BYTES
        own += sum(len(name) * 4 + len(value or b"") + _RECORD_OVERHEAD_BYTES for name, value in record.headers)
        if size + own > size_max and index > cuts[-1]:
            cuts.append(index)
            size = 0
        size += own
    return [records[start:end] for start, end in zip(cuts, [*cuts[1:], len(records)], strict=True)]
