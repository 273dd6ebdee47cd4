"""One fetch: reads its partitions within a bound of bytes, and waits until there is enough.

`FetchRound` reads, `WaitingFetch` waits for partitions to move and has the round read those again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.apis.leader_epoch import check_leader_epoch
from odradek.broker.archive_reading import read_chunk
from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.fetch_sessions import PartitionKey, Wanted
from odradek.broker.topics import Partition
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import fetch

_EMPTY = memoryview(b"")
_NONE = -1


class Reader(NamedTuple):
    """Who fetches: a consumer, or a broker that copies the logs."""

    replica_id: int  # -1: a consumer
    replica_epoch: int
    committed_only: bool
    rack: str  # "" if it does not say
    from_followers: bool  # it may be sent to a follower, or read from one

    @property
    def is_replica(self) -> bool:
        """Whether it is a broker."""
        return self.replica_id >= 0


class Reading:
    """What one partition gave."""

    __slots__ = (
        "data", "diverging", "end", "error", "high_watermark", "is_cold", "is_counted", "key", "last_stable",
        "log_start", "nearer", "partition", "size_bytes", "wanted",
    )  # fmt: skip

    def __init__(self, key: PartitionKey, wanted: Wanted) -> None:
        self.key = key
        self.wanted = wanted
        self.partition: Partition | None = None
        self.data = _EMPTY
        self.size_bytes = 0
        self.is_cold = False  # its bytes must be read from the disk, or from the archive
        self.error: PeerError | None = None
        self.high_watermark = -1
        self.last_stable = -1
        self.log_start = -1
        self.end = -1  # up to here it may be read
        self.diverging: tuple[int, int] | None = None  # where the log of a follower parts from ours: epoch, its end
        self.nearer = _NONE  # the broker that is to be read from instead
        self.is_counted = False  # what a follower has was noted

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell beside records."""
        return self.diverging is not None or self.nearer != _NONE

    def take(self, data: memoryview) -> None:
        """Keep what was read."""
        self.data = data
        self.size_bytes = len(data)
        self.is_cold = False


class FetchRound:
    """The partitions of one request, and what they have given so far."""

    def __init__(self, *, broker: Broker, reader: Reader, max_bytes: int, refusal: PeerError | None) -> None:
        self.reader = reader
        self._broker = broker
        self._max_bytes = max_bytes
        self._refusal = refusal
        self.readings: list[Reading] = []
        self.size_bytes = 0
        self.has_error = False

    def add(self, wanted: Mapping[PartitionKey, Wanted]) -> None:
        """Take partitions on."""
        self.readings = [Reading(key, each) for key, each in wanted.items()]

    @property
    def needs_disk(self) -> bool:
        """Whether some bytes are not in memory."""
        return any(reading.is_cold for reading in self.readings)

    def is_enough(self, min_bytes: int) -> bool:
        """Whether the answer can leave: enough bytes, or something to tell at once."""
        return self.size_bytes >= min_bytes or self.has_error or not self.readings

    def read(self) -> None:
        """Read every partition anew."""
        self.size_bytes = 0
        self.has_error = False
        for reading in self.readings:
            self._read_one(reading)

    def drop(self) -> None:
        """Let go of what was read; `read` gets it again."""
        self.size_bytes = 0
        for reading in self.readings:
            reading.take(_EMPTY)

    def _read_one(self, reading: Reading) -> None:
        """Read one partition, as far as the answer has room."""
        reading.error = None
        reading.take(_EMPTY)
        try:
            partition = reading.partition = self._find(reading.key)
            self._read_partition(reading, partition)
        except CLIENT_FAULTS as error:
            reading.error = peer_error(error)
            self.has_error = True

    def _find(self, key: PartitionKey) -> Partition:
        if self._refusal is not None:
            raise self._refusal
        topic_key, index = key
        if isinstance(topic_key, bytes):
            topic = self._broker.topic_by_id(topic_key)
            if topic is None:
                raise PeerError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            topic_key = topic.name
        if self.reader.is_replica or not self.reader.from_followers or self._broker.is_fenced:
            return self._broker.partition(topic_key, index)
        return self._broker.replica(topic_key, index)

    def _read_partition(self, reading: Reading, partition: Partition) -> None:
        log, wanted = partition.log, reading.wanted
        reading.high_watermark = partition.high_watermark
        reading.last_stable = partition.last_stable_offset
        reading.log_start = log.log_start if partition.archive is None else partition.log_start
        check_leader_epoch(wanted.leader_epoch, partition.leader_epoch)
        reading.diverging, reading.nearer = None, _NONE
        if self.reader.is_replica:
            if not self._serves_replica(reading, partition):
                return
        elif self.reader.rack and self._is_nearer_elsewhere(reading, partition):
            return
        else:
            reading.end = reading.last_stable if self.reader.committed_only else reading.high_watermark
            if wanted.offset > log.next_offset and not partition.is_leader:
                raise PeerError(ErrorCode.OFFSET_NOT_AVAILABLE, "this replica is not so far yet")
        room = min(wanted.max_bytes, self._max_bytes - self.size_bytes)
        if room <= 0 and self.size_bytes:
            return
        if wanted.offset < log.state.log_start and self._is_archived(partition, wanted.offset):
            reading.is_cold = True
            return
        chunk = log.read(wanted.offset, max(room, 0), upto=reading.end, nowait=True)
        if chunk is None:
            reading.is_cold = True
        else:
            self._take(reading, chunk.data, room)

    def _is_archived(self, partition: Partition, offset: int) -> bool:
        """Whether an offset is to be read from the archive; a replica copies only what is on the leader's disk."""
        has_reader = self._broker.archive is not None and not self.reader.is_replica
        return has_reader and partition.is_in_archive_only(offset)

    def _serves_replica(self, reading: Reading, partition: Partition) -> bool:
        """See whether a follower's log is like ours, and note how far it is; False if it must cut its own first."""
        log, wanted, reader = partition.log, reading.wanted, self.reader
        if reader.replica_id not in partition.role.replicas:
            raise PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.tp} has no replica on {reader.replica_id}")
        if wanted.last_epoch >= 0 and log.epochs.latest >= 0:  # a log that has begun anew knows no epochs
            epoch, end = log.epochs.end_of(min(wanted.last_epoch, log.epochs.latest), log.next_offset)
            if epoch < wanted.last_epoch or end < wanted.offset:
                reading.diverging = (epoch, end)
                self.has_error = True  # it is told at once
                return False
        if not log.log_start <= wanted.offset <= log.next_offset:
            return True  # reading it says so
        reading.end = log.next_offset
        if not reading.is_counted and partition.progress is not None:
            reading.is_counted = True
            now_ms = self._broker.monotonic_ms()
            partition.progress.fetched(reader.replica_id, wanted.offset, log.next_offset, now_ms, reader.replica_epoch)
            partition.advanced()
            if self._broker.hosting.in_sync is not None:
                self._broker.hosting.in_sync.fetched(partition)
            reading.high_watermark = partition.high_watermark
        return True

    def _is_nearer_elsewhere(self, reading: Reading, partition: Partition) -> bool:
        """See whether a replica in sync stands in the consumer's own rack, and this one does not."""
        brokers, rack = self._broker.metadata.image.brokers, self.reader.rack
        own = brokers.get(self._broker.node_id)
        if not partition.is_leader or partition.progress is None or own is None or own.rack == rack:
            return False
        for replica in partition.role.isr:
            there = brokers.get(replica)
            has_it = partition.progress.end_of(replica) >= reading.wanted.offset
            if there is not None and there.rack == rack and not there.fenced and has_it:
                reading.nearer = replica
                self.has_error = True  # it is told at once
                return True
        return False

    def _take(self, reading: Reading, data: memoryview, room: int) -> None:
        """Keep bytes; one batch that is too large is sent only if nothing else is (KIP-74)."""
        if len(data) > room and self.size_bytes:
            data = _EMPTY
        reading.take(data)
        self.size_bytes += len(data)

    async def read_from_disk(self) -> None:
        """Read in threads what is not in memory: from the disk, or from the archive."""
        away: PeerError | None = None  # the archive did not answer: it is not waited for again
        for reading in self.readings:
            if not reading.is_cold or reading.partition is None:
                continue
            reading.is_cold = False
            room = min(reading.wanted.max_bytes, self._max_bytes - self.size_bytes)
            if room <= 0 and self.size_bytes:
                continue
            is_archived = self._is_archived(reading.partition, reading.wanted.offset)
            try:
                if is_archived and away is not None:
                    raise away
                chunk = await read_chunk(
                    self._broker, reading.partition, reading.wanted.offset, max(room, 0), reading.end
                )
                self._take(reading, chunk.data, room)
                self.has_error |= is_archived  # there is more behind it, but it is not waited for: this is enough
            except CLIENT_FAULTS as error:
                reading.error = peer_error(error)
                self.has_error = True
                away = reading.error if is_archived else away


class WaitingFetch:
    """A fetch that waits for more bytes, for an error or for its time to end.

    It holds no records meanwhile: it counts the bytes that come, and everything is read once, at the end.
    """

    def __init__(
        self, round_: FetchRound, min_bytes: int, wait_seconds: float, respond: Callable[[], fetch.Response]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[fetch.Response] = loop.create_future()
        self.future.add_done_callback(self._forget)
        self._loop = loop
        self._round = round_
        self._min_bytes = min_bytes
        self._respond = respond
        self._is_looking = False
        self._final_read: asyncio.Task[None] | None = None
        read = [(reading.partition, reading) for reading in round_.readings if reading.partition is not None]
        self._partitions = [partition for partition, _ in read]
        self._terms = [partition.leader_epoch for partition in self._partitions]
        # What was appended and not shown when it was read is among the appended bytes already: any move may show it.
        has_more = any(reading.end < partition.log.next_offset for partition, reading in read)
        self._missing_bytes = 0 if has_more else self._appended_bytes() + min_bytes - round_.size_bytes
        round_.drop()
        for partition in self._partitions:
            if round_.reader.is_replica:
                partition.wake_on_append(self._wake)
            else:
                partition.wake_on_advance(self._wake)
        self._timer = loop.call_later(wait_seconds, self._finish)
        if any(reading.high_watermark < partition.high_watermark for partition, reading in read) or (
            round_.reader.is_replica and has_more
        ):
            self._wake()  # it has moved since it was read

    def _appended_bytes(self) -> int:
        return sum(partition.appended_bytes for partition in self._partitions)

    def _wake(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """See whether it is worth to read: enough has been appended, or a partition is gone or led by another."""
        self._is_looking = False
        if self.future.done() or self._final_read is not None:
            return
        is_gone = any(partition.is_gone or partition.log.ended for partition in self._partitions)
        is_over = [partition.leader_epoch for partition in self._partitions] != self._terms
        if not is_gone and not is_over and self._appended_bytes() < self._missing_bytes:
            return
        self._round.read()
        if self._round.needs_disk:
            self._finish()
        elif self._round.is_enough(self._min_bytes):
            self.future.set_result(self._respond())
        else:  # what was appended is not flushed yet
            self._round.drop()

    def _finish(self) -> None:
        """Read what there is, from the disk if need be, and answer."""
        if self.future.done() or self._final_read is not None:
            return
        self._round.read()
        if self._round.needs_disk:
            self._final_read = self._loop.create_task(self._read_from_disk())
        else:
            self.future.set_result(self._respond())

    async def _read_from_disk(self) -> None:
        try:
            await self._round.read_from_disk()
        except Exception as error:
            if not self.future.done():
                self.future.set_exception(error)
            return
        if not self.future.done():
            self.future.set_result(self._respond())

    def _forget(self, _: asyncio.Future[fetch.Response]) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.forget(self._wake)
