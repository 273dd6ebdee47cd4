"""One fetch: reads its partitions within a bound of bytes, and waits until there is enough.

`FetchRound` reads, `WaitingFetch` waits for partitions to move and has the round read those again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from odradek.apis.leader_epoch import check_leader_epoch
from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.fetch_sessions import PartitionKey, Wanted
from odradek.broker.topics import Partition
from odradek.log.reader import begin_read
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import fetch

_EMPTY = memoryview(b"")


class Reading:
    """What one partition gave."""

    __slots__ = (
        "data", "error", "high_watermark", "is_cold", "key", "last_stable", "log_start", "partition", "size_bytes",
        "wanted",
    )  # fmt: skip

    def __init__(self, key: PartitionKey, wanted: Wanted) -> None:
        self.key = key
        self.wanted = wanted
        self.partition: Partition | None = None
        self.data = _EMPTY
        self.size_bytes = 0
        self.is_cold = False  # its bytes must be read from the disk
        self.error: PeerError | None = None
        self.high_watermark = -1
        self.last_stable = -1
        self.log_start = -1

    def take(self, data: memoryview) -> None:
        """Keep what was read."""
        self.data = data
        self.size_bytes = len(data)
        self.is_cold = False


class FetchRound:
    """The partitions of one request, and what they have given so far."""

    def __init__(self, *, broker: Broker, committed_only: bool, max_bytes: int, refusal: PeerError | None) -> None:
        self._broker = broker
        self._committed_only = committed_only
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
        if isinstance(topic_key, str):
            return self._broker.partition(topic_key, index)
        topic = self._broker.topic_by_id(topic_key)
        if topic is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return self._broker.partition(topic.name, index)

    def _read_partition(self, reading: Reading, partition: Partition) -> None:
        log, wanted = partition.log, reading.wanted
        reading.high_watermark = partition.high_watermark
        reading.last_stable = partition.last_stable_offset
        reading.log_start = log.log_start
        check_leader_epoch(wanted.leader_epoch, partition.leader_epoch)
        room = min(wanted.max_bytes, self._max_bytes - self.size_bytes)
        if room <= 0 and self.size_bytes:
            return
        upto = reading.last_stable if self._committed_only else reading.high_watermark
        chunk = log.read(wanted.offset, max(room, 0), upto=upto, nowait=True)
        if chunk is None:
            reading.is_cold = True
        else:
            self._take(reading, chunk.data, room)

    def _take(self, reading: Reading, data: memoryview, room: int) -> None:
        """Keep bytes; one batch that is too large is sent only if nothing else is (KIP-74)."""
        if len(data) > room and self.size_bytes:
            data = _EMPTY
        reading.take(data)
        self.size_bytes += len(data)

    async def read_from_disk(self) -> None:
        """Read in a thread what is not in memory."""
        loop = asyncio.get_running_loop()
        for reading in self.readings:
            if not reading.is_cold or reading.partition is None:
                continue
            reading.is_cold = False
            room = min(reading.wanted.max_bytes, self._max_bytes - self.size_bytes)
            if room <= 0 and self.size_bytes:
                continue
            try:
                upto = reading.last_stable if self._committed_only else reading.high_watermark
                job = begin_read(reading.partition.log, reading.wanted.offset, max(room, 0), upto)
                try:
                    chunk = await loop.run_in_executor(None, job.run)
                finally:
                    job.finish()
                self._take(reading, chunk.data, room)
            except CLIENT_FAULTS as error:
                reading.error = peer_error(error)
                self.has_error = True


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
        # What was appended and not shown when it was read is among the appended bytes already: any move may show it.
        has_more = any(reading.last_stable < partition.log.next_offset for partition, reading in read)
        self._missing_bytes = 0 if has_more else self._appended_bytes() + min_bytes - round_.size_bytes
        round_.drop()
        for partition in self._partitions:
            partition.wake_on_advance(self._wake)
        self._timer = loop.call_later(wait_seconds, self._finish)
        if any(reading.high_watermark < partition.high_watermark for partition, reading in read):
            self._wake()  # it has moved since it was read

    def _appended_bytes(self) -> int:
        return sum(partition.appended_bytes for partition in self._partitions)

    def _wake(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """See whether it is worth to read: enough has been appended, or a partition is gone."""
        self._is_looking = False
        if self.future.done() or self._final_read is not None:
            return
        is_gone = any(partition.log.ended for partition in self._partitions)
        if not is_gone and self._appended_bytes() < self._missing_bytes:
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
