"""A topic and the replicas of its partitions that this broker holds: who leads, and how far each can be read."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from odradek.controller.image import PartitionImage
from odradek.controller.image_archive import PartitionArchive
from odradek.disk.interface import Buffer
from odradek.log.config import LogConfig
from odradek.log.log import PartitionLog
from odradek.log.outcomes import Appended
from odradek.model import INTERNAL_TOPICS, Offset, TopicPartition
from odradek.replication.progress import Progress
from odradek.wire.errors import ErrorCode, PeerError

NOBODY = -1
_WAITING_MANY = 1_000

logger = logging.getLogger(__name__)


class Partition:
    """One replica that is here, as the leader's or as a follower's."""

    __slots__ = (
        "_append_wakers",
        "_everywhere",
        "_node_id",
        "_waiting",
        "_wakers",
        "appended_bytes",
        "archive",
        "epoch_start",
        "generation",
        "high_watermark",
        "index",
        "is_gone",
        "is_leader",
        "log",
        "progress",
        "role",
        "stored_end",
        "topic",
        "tp",
    )  # fmt: skip

    def __init__(
        self, topic: Topic, index: int, log: PartitionLog, node_id: int, seen: Offset = 0, generation: int = 0
    ) -> None:
        """`seen` is how far it could be read in an earlier life."""
        self.topic = topic
        self.index = index
        self.generation = generation  # of the partition: made again after it was deleted, it is another one
        self.tp = TopicPartition(topic.name, index)
        self.log = log
        self.role = PartitionImage(replicas=(), isr=(), leader=NOBODY, leader_epoch=-1, partition_epoch=-1)
        self.is_leader = False
        self.is_gone = False  # the replica was taken away; its log may be there for a moment longer
        # Records below this can be read: all replicas in sync have them.
        self.high_watermark: Offset = max(log.log_start, min(seen, log.next_offset))
        self.epoch_start: Offset = 0  # where the log ended when this broker began to lead
        self.progress: Progress | None = None  # of the followers; None where there are none, or somebody else leads
        self.archive: PartitionArchive | None = None  # what is in the object store, as the metadata has it
        self.stored_end: Offset | None = None  # of a channel that is led here: below it all is stored; None: no channel
        self.appended_bytes = 0  # since the start; a fetch that waits counts by it, without reading
        self._node_id = node_id
        self._wakers: set[Callable[[], None]] = set()
        self._append_wakers: set[Callable[[], None]] = set()
        self._waiting: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._everywhere: deque[tuple[Offset, asyncio.Future[None]]] = deque()

    # Who leads.

    @property
    def leader_epoch(self) -> int:
        """The leader's term."""
        return self.role.leader_epoch

    @property
    def topic_id(self) -> bytes:
        """The id of its topic."""
        return self.topic.id

    @property
    def is_adding(self) -> bool:
        """Whether this replica is here because the partition is being moved."""
        return self._node_id in self.role.adding

    def take_role(self, role: PartitionImage, now_ms: int) -> None:
        """Follow the metadata: lead, follow, or wait for a leader. Whoever waits hears of a term that is over."""
        if role == self.role:
            return
        same_term = role.leader_epoch == self.role.leader_epoch and role.leader == self.role.leader
        self.role = role
        if not same_term:
            self.is_leader = False
            self.fail(self.not_led("another broker leads it now"))
            if role.leader == self._node_id:
                self._begin_term(now_ms)
            else:
                self.log.epochs.truncate_end(self.log.next_offset)
        elif self.progress is not None:
            self.progress.update(role.replicas, role.isr, role.partition_epoch)
        elif self.is_leader and len(role.replicas) > 1:
            self._watch_followers(now_ms)
        self.advanced()

    def _begin_term(self, now_ms: int) -> None:
        if self.archive is not None and self.log.next_offset < self.archive.end:
            # A disk was lost. Offsets that the archive has are not given to other records; it serves them all.
            logger.warning("%s: the log ends at %d, goes on where the archive ends", self.tp, self.log.next_offset)
            self.restart_at(self.archive.end)
        self.epoch_start = self.log.next_offset
        if self.log.epochs.latest < 0:  # else the first append does: without any, nobody can tell where logs part
            self.log.epochs.assign(self.role.leader_epoch, self.epoch_start)
        self.is_leader = True
        if len(self.role.replicas) > 1:
            self._watch_followers(now_ms)

    def _watch_followers(self, now_ms: int) -> None:
        role = self.role
        self.progress = Progress(
            self._node_id, role.replicas, role.isr, role.leader_epoch, role.partition_epoch, self.epoch_start, now_ms
        )

    def fail(self, error: Exception) -> None:
        """Tell everybody who waits that what he waits for will not come, or that nobody knows."""
        self.progress = None
        for waiting in (self._waiting, self._everywhere):
            while waiting:
                _, future = waiting.popleft()
                if not future.done():
                    future.set_exception(error)

    def not_led(self, reason: str = "another broker leads it") -> PeerError:
        """What somebody is told who took this broker for the leader."""
        return PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._node_id} does not lead {self.tp}: {reason}")

    def let_go(self) -> None:
        """The replica is taken away: wake everybody, nothing more will come."""
        self.is_leader = False
        self.is_gone = True
        self.fail(PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.tp} is no longer here"))
        self.advanced()

    # How far it can be read.

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings; with another `flush`, more may count as safe."""
        self.log.configure(config)
        self.advanced()

    @property
    def last_stable_offset(self) -> Offset:
        """Records below this belong to no transaction that is still open."""
        first_open = self.log.producers.first_unstable_offset
        return self.high_watermark if first_open is None else min(first_open, self.high_watermark)

    @property
    def log_start(self) -> Offset:
        """The first offset that can be read, here or in the archive."""
        archive = self.archive
        return self.log.log_start if archive is None or not archive.pieces else min(archive.start, self.log.log_start)

    def is_in_archive_only(self, offset: Offset) -> bool:
        """Whether an offset is no longer on this disk, and must be read from the object store."""
        return self.log_start <= offset < self.log.log_start

    @property
    def droppable_end(self) -> Offset:
        """Segments below this need not stay on this disk: all replicas have them, and so has the store, if any."""
        if self.stored_end is not None:
            end = min(self.high_watermark, self.stored_end)
        else:  # how much of a channel is stored only its leader knows: the others let go of what that has let go of
            end = self.log.log_start if self.topic.is_channel else self.high_watermark
        if not self.topic.is_archived:
            return end
        return min(end, self.log.log_start if self.archive is None else self.archive.end)

    @property
    def log_end(self) -> Offset:
        """Where the next record goes."""
        return self.log.next_offset

    def isr_changed(self) -> None:
        """Others count as in sync now, or are waited for no longer."""
        self.advanced()

    @property
    def is_settled(self) -> bool:
        """Whether a new leader knows how far its log can be read (KIP-207)."""
        return self.high_watermark >= self.epoch_start

    def append(self, data: memoryview | bytearray) -> Appended:
        """Write a producer's batches; they can be read when the high watermark has passed them."""
        appended = self.log.append(data, self.role.leader_epoch)
        self.appended_bytes += len(data)
        if self._append_wakers:
            for waker in tuple(self._append_wakers):
                waker()
        return appended

    def check_in_sync(self) -> None:
        """Refuse what asks for acks=all while fewer replicas than min.insync.replicas are in sync."""
        needed, present = self.topic.min_insync_replicas, len(self.role.isr)
        if needed > present:
            raise PeerError(ErrorCode.NOT_ENOUGH_REPLICAS, f"min.insync.replicas is {needed}; in sync is {present}")

    def advanced(self) -> None:
        """See how far the records are safe now, and tell those who wait; also that the partition is gone."""
        if self.is_leader:
            progress, own_end = self.progress, self.log.safe_offset
            end = (
                own_end
                if progress is None
                else progress.high_watermark(self.high_watermark, own_end, self.topic.min_insync_replicas)
            )
            self.high_watermark = max(self.high_watermark, end)
            waiting = self._waiting
            while waiting and waiting[0][0] <= self.high_watermark:
                _settle(waiting.popleft()[1])
            if self._everywhere:
                self._settle_everywhere()
        if self._wakers:
            for waker in tuple(self._wakers):
                waker()

    # Waiting.

    def acknowledged(self, offset: Offset) -> asyncio.Future[None]:
        """Done when every replica in sync has all below `offset`; fails with PeerError when the term ends before."""
        return self._when(self._waiting, offset, offset <= self.high_watermark)

    def everywhere(self, offset: Offset) -> asyncio.Future[None]:
        """Done when every replica has all below `offset`, in sync or not: what SSKafka means by `all`."""
        return self._when(self._everywhere, offset, self._everywhere_end() >= offset)

    def _when(
        self, waiting: deque[tuple[Offset, asyncio.Future[None]]], offset: Offset, is_so: bool
    ) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.is_leader:
            future.set_exception(self.not_led())
        elif is_so:
            future.set_result(None)
        else:
            if len(waiting) >= _WAITING_MANY and waiting[0][1].done():
                for each in [each for each in waiting if each[1].done()]:  # those who have hung up meanwhile
                    waiting.remove(each)
            waiting.append((offset, future))
        return future

    def hear(self, replica: int, end: Offset) -> None:
        """Take a replica's acknowledgement by SSKafka's door, for those who wait there."""
        if self.progress is not None:
            self.progress.acknowledged(replica, end)
            self._settle_everywhere()

    def _everywhere_end(self) -> Offset:
        own_end = self.log.safe_offset
        return own_end if self.progress is None else min(own_end, self.progress.everywhere())

    def _settle_everywhere(self) -> None:
        end = self._everywhere_end()
        while self._everywhere and self._everywhere[0][0] <= end:
            _settle(self._everywhere.popleft()[1])

    def wake_on_advance(self, waker: Callable[[], None]) -> None:
        """Call `waker` at every move of the high watermark, the log start or the leader, until `forget`."""
        self._wakers.add(waker)

    def wake_on_append(self, waker: Callable[[], None]) -> None:
        """Call `waker` also when records come that nobody else has yet: a follower wants these."""
        self._wakers.add(waker)
        self._append_wakers.add(waker)

    def forget(self, waker: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._wakers.discard(waker)
        self._append_wakers.discard(waker)

    # As a follower.

    def replicated(self, data: Buffer, high_watermark: Offset, log_start: Offset) -> None:
        """Write batches as the leader sent them, and hear how far they can be read there."""
        if len(data):
            self.log.append_replicated(data)
            self.appended_bytes += len(data)
        self.advanced_to(high_watermark)

    def advanced_to(self, high_watermark: Offset) -> None:
        """Let readers have what the leader lets its readers have, as far as it is here."""
        end = min(high_watermark, self.log.next_offset)
        if end > self.high_watermark:
            self.high_watermark = end
            self.advanced()

    def cut(self, offset: Offset) -> None:
        """Remove what the leader does not have, durably."""
        self.log.truncate(offset)
        self.high_watermark = min(self.high_watermark, self.log.next_offset)

    def restart_at(self, offset: Offset) -> None:
        """Throw all away and go on at the leader's first offset, durably."""
        self.log.start_over(offset)
        self.high_watermark = offset


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Topic:
    """One topic."""

    __slots__ = (
        "id", "is_archived", "is_channel", "is_internal", "min_insync_replicas", "name", "overrides", "partition_count",
        "partitions",
    )  # fmt: skip

    def __init__(self, name: str, topic_id: bytes, overrides: dict[str, str]) -> None:
        self.name = name
        self.id = topic_id
        self.overrides = overrides  # the settings that it has for itself
        self.partitions: dict[int, Partition] = {}  # those with a replica here, and without those that are offline
        self.partition_count = 0  # one more than the highest number of all; not every number below it has one
        self.is_internal = name in INTERNAL_TOPICS
        self.min_insync_replicas = 1
        self.is_channel = False  # channel.store: the leader brings every record into the object store
        self.is_archived = False  # remote.storage.enable: what is closed is copied into the object store
