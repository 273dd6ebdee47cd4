"""Bringing what is on this broker in line with the cluster's metadata: logs are made and dropped, roles are taken.

It looks at topics that have changed and compares them with what is here, so that it does not matter how many changes
came between two looks. One look at a time; making logs waits for the disk in threads. Nothing is looked at before this
broker's own registration has come back in the metadata: what was learned until then may be old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.broker.limits import log_owner
from odradek.broker.topics import NOBODY, Partition, Topic
from odradek.controller.image import ClusterImage, PartitionImage, TopicImage
from odradek.disk.errors import DiskError
from odradek.log.config import LogConfig
from odradek.log.epochs import NO_EPOCH
from odradek.log.errors import LogError
from odradek.log.log import PartitionLog
from odradek.model import OFFSETS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from odradek.broker.broker import Broker

_AGAIN_SECONDS = 5.0  # until a topic is looked at once more that could not be brought in line

logger = logging.getLogger(__name__)


class Followers(Protocol):
    """What copies the logs of partitions that others lead; `replication.fetcher.ReplicaFetchers` is what there is."""

    def follow(self, replica: Partition, leader_id: int, address: tuple[str, int]) -> None:
        """Copy from this broker from now on, and from nobody else."""

    def unfollow(self, tp: TopicPartition) -> None:
        """Copy no more; fine if nothing is copied."""


class InSync(Protocol):
    """What keeps the in-sync sets of partitions that are led here; `replication.isr.IsrKeeper` is what there is."""

    def lead(self, partition: Partition) -> None:
        """Watch a partition; again at each new epoch."""

    def resign(self, tp: TopicPartition) -> None:
        """Watch it no longer; fine if it was not watched."""

    def fetched(self, partition: Partition) -> None:
        """A follower has fetched."""


class OffsetsListener(Protocol):
    """Who wants to know which partitions of `__consumer_offsets` this broker leads."""

    def lead(self, index: int, epoch: int) -> None:
        """It leads this one now, in this term."""

    def resign(self, index: int, epoch: int | None) -> None:
        """It does not lead it any more, as of this term; None: there is no such partition any more."""


class TopicListener(Protocol):
    """Who wants to know how topics change; `broker.channels.Channels` is what there is."""

    def check(self, overrides: Mapping[str, str]) -> None:
        """Refuse settings that a topic cannot have here, by PeerError."""

    def changed(self, topic: Topic) -> None:
        """It is new, or its settings or roles have changed."""

    def deleted(self, topic: Topic) -> None:
        """It is about to go; its replicas are still what they were."""


class Hosting:
    """The replicas on this broker."""

    def __init__(self, broker: Broker) -> None:
        self.followers: Followers | None = None  # None: nobody else is there to be followed
        self.in_sync: InSync | None = None
        self.offsets: OffsetsListener | None = None
        self.channels: TopicListener | None = None
        self.on_roll: Callable[[PartitionLog], None] | None = None  # told of each log that begins a segment
        self._broker = broker
        self._by_log: dict[PartitionLog, Partition] = {}
        self._dirty: set[str] = set()
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.opened = asyncio.Event()  # this broker's own registration has been seen
        self._found: dict[str, set[int]] = {}  # what was in the data directory and has not been looked at yet
        # Of partitions that are gone, until their logs are freed; None: it could not be opened.
        self._doomed: dict[str, dict[int, PartitionLog | None]] = {}
        self._generations: dict[str, tuple[bytes, dict[int, int]]] = {}  # topic ids and partitions, as last looked at

    def partition_of(self, log: PartitionLog) -> Partition | None:
        """Whose log it is."""
        return self._by_log.get(log)

    def partitions(self) -> list[Partition]:
        """All replicas that are here."""
        return list(self._by_log.values())

    def _rolled(self, log: PartitionLog) -> None:
        if self.on_roll is not None:
            self.on_roll(log)

    # Called for the metadata.

    def look_at(self, topics: Iterable[str], partitions: Iterable[TopicPartition] | None = None) -> None:
        """These topics have changed, and of topics that are still the same only these partitions; None: perhaps all."""
        names = set(topics)
        self._dirty.update(names)
        if self.opened.is_set():
            changed: dict[str, list[int]] = {}
            for tp in partitions or ():
                changed.setdefault(tp.topic, []).append(tp.partition)
            for name in names:
                indexes = None if partitions is None else changed.get(name, [])
                self._note_gone(name, indexes)
                self._assign_known(name, indexes)
        if self._dirty:
            self._settled.clear()
            self._changed.set()

    def _note_gone(self, name: str, changed: list[int] | None) -> None:
        """Have what groups committed for deleted partitions forgotten, at once: what they commit later counts."""
        wanted = self._broker.metadata.image.topics.get(name)
        before = self._generations.pop(name, None)
        if before is not None and (wanted is None or before[0] != wanted.id):
            self._broker.on_topic_deleted(name)
            before = None
        if wanted is None:
            return
        known: dict[int, int] = {} if before is None else before[1]
        self._generations[name] = (wanted.id, known)
        # Not all of them each time: there may be thousands, made one by one.
        for index in (known.keys() | wanted.partitions.keys()) if before is None or changed is None else changed:
            was, role = known.pop(index, None), wanted.partitions.get(index)
            if role is not None:
                known[index] = role.generation
            if was is not None and (role is None or role.generation != was):
                self._broker.on_partition_deleted(name, index)

    def _assign_known(self, name: str, changed: list[int] | None) -> None:
        """Give replicas that are here already their new roles at once: logs that must be made first take their time.

        Topics and partitions that are gone end at once, too, so that nothing is acknowledged that is about to go; so do
        those that were made again meanwhile, and are others now.
        """
        wanted, present = self._broker.metadata.image.topics.get(name), self._broker.topics.get(name)
        if present is None:
            return
        if wanted is None or wanted.id != present.id:
            self._drop_topic(present)
            return
        for index in list(present.partitions) if changed is None else changed:
            partition, role = present.partitions.get(index), wanted.partitions.get(index)
            if partition is None:
                continue
            if role is None or role.generation != partition.generation:
                self._end(present.partitions.pop(index), None)
                self._doomed.setdefault(name, {})[index] = partition.log
                continue
            partition.archive = wanted.archived.get(index)
            if role != partition.role and self._broker.node_id in role.replicas:
                try:
                    self._assign(partition, role)
                except (DiskError, LogError) as error:
                    self._broker.heed(error)
                except Exception:
                    logger.exception("a bug in giving %s its role; it is tried again", partition.tp)
        if self.channels is not None:
            self.channels.changed(present)

    def open(self) -> None:
        """All that was true when this broker registered is known: begin, with everything that is here."""
        if not self.opened.is_set():
            self.opened.set()
            for tp in (*self._broker.store.logs, *self._broker.store.offline):
                self._found.setdefault(tp.topic, set()).add(tp.partition)
            self.look_at(self._found.keys() | self._broker.metadata.image.topics.keys())
            self._changed.set()

    async def settled(self) -> None:
        """Wait until this broker is what the metadata says that it is."""
        while self.opened.is_set() and (self._dirty or not self._settled.is_set()):
            await self._settled.wait()

    def start(self) -> None:
        """Begin to look."""
        self._settled.set()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop after what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self.opened.is_set():
                continue
            while self._dirty:
                name = self._dirty.pop()
                try:
                    await self._reconcile(name)
                except (DiskError, LogError) as error:
                    self._broker.heed(error)
                    logger.error("topic %s is not as the metadata wants it: %s", name, error)
                    asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.look_at, [name])
                except Exception:
                    logger.exception("a bug in bringing topic %s in line with the metadata", name)
            self._settled.set()

    # One topic.

    async def _reconcile(self, name: str) -> None:
        await self._free_doomed(name)
        broker, image = self._broker, self._broker.metadata.image
        wanted, present = image.topics.get(name), broker.topics.get(name)
        if wanted is None:
            self._drop_strays(name, image)
            return
        topic = present or Topic(name, wanted.id, {})
        self._configure(topic, wanted)
        await self._host(topic, wanted)
        if not self._is_wanted(topic):  # it went while logs were made
            self._doom(topic)
            await self._free_doomed(name)
            return
        broker.publish(topic)
        if self.channels is not None:
            self.channels.changed(topic)

    def _configure(self, topic: Topic, wanted: TopicImage) -> None:
        topic.partition_count = wanted.partition_count
        if topic.overrides != wanted.configs or not topic.partitions:
            topic.overrides = dict(wanted.configs)
            self._broker.reconfigure(topic)

    async def _host(self, topic: Topic, wanted: TopicImage) -> None:
        """Have exactly those replicas that are this broker's, each in its role."""
        node_id = self._broker.node_id
        await self._drop_others(topic, wanted)
        ours = self._ours(wanted)
        for index in self._found.pop(topic.name, set()) - ours.keys():
            self._drop_moved(TopicPartition(topic.name, index))
        self._free_damaged(topic, wanted)
        new = [index for index in ours if index not in topic.partitions]
        if new:
            await self._make_logs(topic, {index: ours[index] for index in new})
        for index in new:
            tp = TopicPartition(topic.name, index)
            log = self._broker.store.logs.get(tp)
            if log is not None:
                self._close_gap(tp, log, ours[index])
                generation = ours[index].generation
                seen = self._broker.watermarks.of(topic.id, index, generation)
                topic.partitions[index] = self._by_log[log] = Partition(topic, index, log, node_id, seen, generation)
                log.on_roll = self._rolled
        current = self._broker.metadata.image.topics.get(topic.name)  # it may have changed while logs were made
        if current is None or current.id != topic.id:
            return
        for index in ours:
            partition, role = topic.partitions.get(index), current.partitions.get(index)
            if partition is None or role is None or role.generation != partition.generation:
                continue  # it is gone already, perhaps made again: the next look, which is due, sees to it
            if node_id in role.replicas:
                partition.archive = current.archived.get(index)
                if not (partition.is_leader and role == partition.role):  # who follows may find his leader elsewhere
                    self._assign(partition, role)

    def _ours(self, wanted: TopicImage) -> dict[int, PartitionImage]:
        node_id = self._broker.node_id
        return {index: role for index, role in wanted.partitions.items() if node_id in role.replicas}

    async def _drop_others(self, topic: Topic, wanted: TopicImage) -> None:
        """Let go of replicas that are not this broker's any more, or of partitions that were made again since."""
        ours = self._ours(wanted)
        for index, partition in list(topic.partitions.items()):
            if topic.partitions.get(index) is not partition:
                continue  # it has gone meanwhile
            if index not in ours or ours[index].generation != partition.generation:
                role = wanted.partitions.get(index)
                del topic.partitions[index]
                self._end(partition, None if role is None else role.leader_epoch)
                await self._free_ended(partition.tp, partition.log)
                logger.info("%s-%d is no longer on this broker", topic.name, index)

    def _free_damaged(self, topic: Topic, wanted: TopicImage) -> None:
        """Let go of logs that could not be opened, where their partition is gone or was made again since."""
        store = self._broker.store
        for tp in [tp for tp in store.offline if tp.topic == topic.name]:
            role, owner = wanted.partitions.get(tp.partition), store.owner_of(tp)
            if role is None or owner not in ("", log_owner(topic.id, role.generation)):  # "": that cannot be told
                logger.warning("%s was damaged, and is deleted", tp)
                self._free(tp)

    def _close_gap(self, tp: TopicPartition, log: PartitionLog, role: PartitionImage) -> None:
        """A replica that lost records to a bad disk, and went on behind them, gets them again from its leader."""
        report = self._broker.store.reports.pop(tp, None)
        if report is not None and report.lost_records and role.leader not in (self._broker.node_id, NOBODY):
            log.truncate(log.next_offset - report.lost_records)

    async def _make_logs(self, topic: Topic, wanted: dict[int, PartitionImage]) -> None:
        broker, store = self._broker, self._broker.store
        missing: dict[tuple[int, str, LogConfig], list[TopicPartition]] = {}  # by what they have in common
        configs = broker.configs_of(topic, wanted)
        for index, role in wanted.items():
            tp = TopicPartition(topic.name, index)
            owner, config = log_owner(topic.id, role.generation), configs[index]
            log = store.logs.get(tp)
            if log is not None and log.state.topic_id != owner and (log.state.topic_id or role.generation):
                logger.warning("%s belongs to one of the same name that was deleted: it goes", tp)
                self._free(tp)
                log = None
            if log is not None:
                log.configure(config)
                if not log.state.topic_id:
                    log.state.topic_id = owner
                    log.state.save()
            elif tp not in store.offline:
                epoch = role.leader_epoch if role.leader == broker.node_id else NO_EPOCH
                missing.setdefault((epoch, owner, config), []).append(tp)
        threads = store.config.log_flush_threads  # making a log is mostly waiting for the disk
        creations = [
            store.begin_create(tps[first::threads], epoch, owner, config)
            for (epoch, owner, config), tps in missing.items()
            for first in range(min(threads, len(tps)))
        ]
        await asyncio.gather(*(_in_thread(creation.run) for creation in creations))
        for creation in creations:
            store.finish_create(creation)

    def _assign(self, partition: Partition, role: PartitionImage) -> None:
        """Let a replica lead, follow or wait, as its role says."""
        before = partition.role
        if role.leader != self._broker.node_id or role.leader_epoch != before.leader_epoch:
            self._tell_offsets(partition, role)
        if self.followers is not None:
            leader = self._broker.metadata.image.brokers.get(role.leader)
            if role.leader == self._broker.node_id or leader is None or leader.kafka is None:
                self.followers.unfollow(partition.tp)
        partition.take_role(role, self._broker.monotonic_ms())
        if self.in_sync is not None:
            if partition.progress is not None:
                self.in_sync.lead(partition)
            else:
                self.in_sync.resign(partition.tp)
        if partition.is_leader:
            self._broker.flusher.request(partition.log)  # nothing that came as a follower's may stay unsafe
            if role.leader_epoch != before.leader_epoch:
                logger.debug(
                    "leading %s in epoch %d from offset %d", partition.tp, role.leader_epoch, partition.epoch_start
                )
        elif self.followers is not None and leader is not None and leader.kafka is not None:
            self.followers.follow(partition, role.leader, leader.kafka)

    def _tell_offsets(self, partition: Partition, role: PartitionImage) -> None:
        if partition.topic.name != OFFSETS_TOPIC or self.offsets is None:
            return
        if role.leader == self._broker.node_id:
            asyncio.get_running_loop().call_soon(self.offsets.lead, partition.index, role.leader_epoch)
        elif partition.is_leader:
            self.offsets.resign(partition.index, role.leader_epoch)

    def follow_again(self, brokers: Iterable[int]) -> None:
        """These brokers have moved or come back: look at the topics that they lead."""
        moved = set(brokers)
        self.look_at(
            [
                topic.name
                for topic in self._broker.metadata.image.topics.values()
                if any(role.leader in moved for role in topic.partitions.values())
            ]
        )

    # Taking away.

    def _is_wanted(self, topic: Topic) -> bool:
        wanted = self._broker.metadata.image.topics.get(topic.name)
        return wanted is not None and wanted.id == topic.id

    def _drop_topic(self, topic: Topic) -> None:
        """Let nobody find a topic any more; its logs are freed when it is looked at."""
        self._broker.withdraw(topic)
        if self.channels is not None:
            self.channels.deleted(topic)
        self._doom(topic)
        logger.info("topic %s deleted", topic.name)

    def _doom(self, topic: Topic) -> None:
        doomed = self._doomed.setdefault(topic.name, {})
        for index, partition in topic.partitions.items():
            self._end(partition, None)
            doomed[index] = partition.log
        doomed.update((tp.partition, None) for tp in self._broker.store.offline if tp.topic == topic.name)

    def _end(self, partition: Partition, epoch: int | None) -> None:
        """Let a replica go, but for its log: nobody reads it, writes to it or waits for it any more.

        `epoch` is the term as of which it is so; None: there is no such partition any more.
        """
        if partition.topic.name == OFFSETS_TOPIC and self.offsets is not None:
            self.offsets.resign(partition.index, epoch)
        if self.followers is not None:
            self.followers.unfollow(partition.tp)
        if self.in_sync is not None:
            self.in_sync.resign(partition.tp)
        self._broker.written.discard(partition.log)
        self._by_log.pop(partition.log, None)
        partition.let_go()

    async def _free_doomed(self, name: str) -> None:
        doomed = self._doomed.pop(name, {})
        for index, log in doomed.items():
            tp = TopicPartition(name, index)
            if await self._free_ended(tp, log):
                logger.info("%s deleted", tp)

    async def _free_ended(self, tp: TopicPartition, log: PartitionLog | None) -> bool:
        """Free the log of a replica that has ended, None: one that is offline; False if it is not there any more."""
        store = self._broker.store
        if log is not None:
            await self._broker.flusher.rested(log)  # a flush under way must end first; the loop may not wait for it
        if store.logs.get(tp) is not log or (log is None and tp not in store.offline):
            return False
        self._free(tp)
        await asyncio.sleep(0)  # letting many go must not hold up the others
        return True

    def _drop_moved(self, tp: TopicPartition) -> None:
        """A log of a partition that is no longer this broker's; one that may be of another topic is left alone."""
        log = self._broker.store.logs.get(tp)
        if log is not None and not log.state.topic_id:
            logger.warning("%s is in the data directory, and was never this cluster's: it is left alone", tp)
            return
        self._free(tp)
        logger.info("%s was moved away while this broker was not there", tp)

    def _drop_strays(self, name: str, image: ClusterImage) -> None:
        """Logs of a topic that is no more: a crash, or this broker's absence, came between."""
        for tp in [TopicPartition(name, index) for index in self._found.pop(name, ())]:
            if tp in self._broker.store.offline:
                continue  # what is damaged is for a person to look at
            if name in image.deleted:
                self._free(tp)
            else:
                logger.warning("%s is in the data directory, but no topic's: it is left alone and not served", tp)

    def _free(self, tp: TopicPartition) -> None:
        """Let a partition go at once, and its bytes when a thread has time."""
        remove = self._broker.guarded(partial(self._broker.store.delete, tp))

        def run() -> None:
            try:
                remove()
            except DiskError as error:
                logger.warning("the bytes of the deleted %s are not freed until the next start: %s", tp, error)

        _in_thread(run)


def _in_thread(action: Callable[[], None]) -> asyncio.Future[None]:
    return asyncio.get_running_loop().run_in_executor(None, action)
