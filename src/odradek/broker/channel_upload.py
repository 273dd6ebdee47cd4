"""Brings one partition of a channel into its store, slice by slice; the partition's leader runs one.

The log is the buffer: records wait there until the slice is over, or large enough, and then go as few objects as the
keys allow. Whatever goes wrong is said and tried again, from the same record on, until the partition is led by
another: an object is only ever made new, so that what was sent twice is there once. Only what is below the high
watermark is sent, so that all leaders of a partition send the same.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from odradek.broker.channel_log import read_piece
from odradek.broker.channel_spec import settle_spec
from odradek.broker.channel_stores import ChannelStores
from odradek.broker.topics import Partition
from odradek.clock import Clock
from odradek.disk.errors import DiskError
from odradek.log.errors import LogError
from odradek.model import Offset
from odradek.objects.errors import StoreError
from odradek.objects.keys import publisher_hash, slice_start
from odradek.objects.putting import Frontier
from odradek.objects.slices import Message
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore
from odradek.records.errors import RecordError
from odradek.records.record import Record
from odradek.wire.errors import ErrorCode, PeerError

_BACKOFF_SECONDS = 0.1
_BACKOFF_SECONDS_MAX = 5.0
_LINGER_MS_MAX = 100  # behind the end of a slice, for what is on its way: it saves an object
_LINGER_SHARE = 10  # of a slice
_READ_BYTES = 4 << 20  # of the log, at once
_CHECKPOINT_MS = 60_000

logger = logging.getLogger(__name__)


class _Reach(NamedTuple):
    """How far a round goes: up to `sure`, and up to `limit` while records are of a slice that is over."""

    sure: Offset
    limit: Offset
    boundary_ms: int  # where the slice ends that is over
    appended_bytes: int  # by the partition's count when `sure` was its end


class _StoppedError(Exception):
    """Nothing more is sent: another broker leads the partition, or there is none."""


class Uploader:
    """One partition that this broker leads, in one term."""

    def __init__(self, partition: Partition, url: str, spec: ChannelSpec, stores: ChannelStores, clock: Clock) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.url = url
        self.spec = spec  # once prepared, its grid of time is the one in the store
        self.frontier: Offset | None = None  # all below is in the store; None: not known yet
        self.failing_since: float | None = None  # by the loop's time; None: the store answers, or nothing was asked
        self.failure = ""  # what it said last
        self.failures = 0
        self.objects = 0  # that were put
        self._wanted = spec  # as the settings have it
        self._settled: ChannelSpec | None = None  # what was wanted when the store was told
        self._stores = stores
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._publisher = publisher_hash(f"{partition.topic_id.hex()}:{partition.index}")
        self._waiting: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._moved = asyncio.Event()
        self._hurry = asyncio.Event()  # do not pause: it is to end
        self._is_idle = False  # anything that comes is news
        self._is_stopped = False  # threads look at it, too
        self._sent_bytes = 0  # of what the partition counts as appended
        self._due: tuple[float, int] | None = None  # when to send by the loop's time, and the end of the slice then
        self._log_end: Offset = 0  # when it began
        self._chain: Frontier | None = None  # what is in the store; only a thread at a time works with it
        self._saved_ms = 0
        self._backoff = _BACKOFF_SECONDS
        self._task: asyncio.Task[None] | None = None

    # Called by the channels.

    def start(self) -> None:
        """Begin; until it is known what the store has, the log keeps everything."""
        self.partition.stored_end = self.partition.log.log_start
        self._log_end = self.partition.log.next_offset
        self.partition.wake_on_advance(self._wake)
        self._task = self._loop.create_task(self._run(), name=f"channel {self.partition.tp}")

    def reconfigure(self, spec: ChannelSpec) -> None:
        """Follow a change of the settings; the store is told, too."""
        if spec != self._wanted:
            self._wanted = spec
            if self._is_idle:
                self._moved.set()

    def stop(self, error: PeerError) -> asyncio.Task[None] | None:
        """Send nothing more, and tell those who wait; the task ends when the request under way has."""
        self._is_stopped = True
        self.partition.forget(self._wake)
        self.partition.stored_end = None
        if self._task is not None:
            self._task.cancel()
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(error)
        return self._task

    def finish(self) -> asyncio.Task[None] | None:
        """Send what is there without waiting for the end of the slice, and end."""
        self._hurry.set()
        self._moved.set()
        return self._task

    def stored(self, offset: Offset) -> asyncio.Future[None]:
        """Done when all below `offset` is in the store; fails with PeerError when the term ends before."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.frontier is not None and offset <= self.frontier:
            future.set_result(None)
        elif self._is_stopped:
            future.set_exception(self.partition.not_led())
        else:
            self._waiting.append((offset, future))
        return future

    @property
    def behind_bytes(self) -> int:
        """Bytes of the log that are not in the store."""
        return max(self.partition.appended_bytes - self._sent_bytes, 0)

    @property
    def behind_seconds(self) -> float:
        """For how long something has been due that is not in the store."""
        if self._due is None or (self.frontier is not None and self.frontier >= self._end):
            return 0.0
        return max(self._loop.time() - self._due[0], 0.0)

    @property
    def away_seconds(self) -> float:
        """For how long the store has not answered; 0 if it does."""
        return 0.0 if self.failing_since is None else self._loop.time() - self.failing_since

    # Waiting.

    @property
    def _end(self) -> Offset:
        return self.partition.last_stable_offset

    def _wake(self) -> None:
        """The partition has moved; that matters if there was nothing, or if there is enough now."""
        if self._is_idle or self.behind_bytes >= self.spec.slice_bytes:
            self._moved.set()

    @property
    def _is_hurried(self) -> bool:
        return self._hurry.is_set() or self.failing_since is not None or self.behind_bytes >= self.spec.slice_bytes

    async def _reach(self) -> _Reach | None:
        """Wait until there is something to send and its slice is over; None if it is time to end."""
        frontier = self.frontier or 0
        while self._end <= frontier:
            self._due = None
            if self._hurry.is_set():
                return None
            if self._settled is not self._wanted:
                await self._prepare()
            self._succeeded()  # nothing is left to be tried again
            if self._is_save_due:
                await self._save()
                continue
            self._is_idle = True
            await self._move(_CHECKPOINT_MS / 1000)
            self._is_idle = False
        due, boundary_ms = self._due = self._due or self._next_due()
        while not self._is_hurried and (seconds := due - self._loop.time()) > 0:
            await self._move(seconds)
        sure, appended_bytes = self._end, self.partition.appended_bytes
        linger = min(_LINGER_MS_MAX, self.spec.slice_ms // _LINGER_SHARE) / 1000
        while not self._is_hurried and (seconds := due + linger - self._loop.time()) > 0:
            await self._move(seconds)
        return _Reach(sure, self._end, boundary_ms, appended_bytes)

    def _next_due(self) -> tuple[float, int]:
        """When the slice is over that runs now."""
        now_ms = self._clock.now_ms()
        end_ms = slice_start(self.spec, now_ms) + self.spec.slice_ms
        return self._loop.time() + max(end_ms - now_ms, 0) / 1000, end_ms

    async def _move(self, seconds: float) -> None:
        self._moved.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return

    # Working.

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
                return
            except (StoreError, LogError, DiskError, RecordError) as error:
                if self.partition.log.ended:
                    return  # what stopped it stops this, too
                self._failed(str(error))
            except Exception as error:
                logger.exception("a bug in storing %s; it is tried again", self.partition.tp)
                self._failed(f"{type(error).__name__}: {error}")
            if self._hurry.is_set():
                return  # what is in the log goes there after the next start
            pause, self._backoff = self._backoff, min(self._backoff * 2, _BACKOFF_SECONDS_MAX)
            try:
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    def _failed(self, reason: str) -> None:
        self.failure = reason
        self.failures += 1
        if self.failing_since is None:
            self.failing_since = self._loop.time()
            logger.warning("%s is not stored for now, and tried again until it is: %s", self.partition.tp, reason)

    def _succeeded(self) -> None:
        if self.failing_since is not None:
            logger.info("%s is stored again, after %.1f s", self.partition.tp, self.away_seconds)
            self.failing_since = None
            self.failure = ""
        self._backoff = _BACKOFF_SECONDS

    async def _work(self) -> None:
        if self.frontier is None:
            await self._prepare()
            await self._begin()
        while True:
            reach = await self._reach()
            if reach is None:
                break
            if self._settled is not self._wanted:
                await self._prepare()
            await self._send(reach)
        await self._save()

    async def _prepare(self) -> None:
        """Have the store know what the channel is; its grid of time stays as it was."""
        wanted = self._wanted
        self.spec = await self._stores.run(self.url, partial(settle_spec, spec=wanted))
        self._settled = wanted
        if self._chain is not None:
            self._chain.spec = self.spec

    async def _begin(self) -> None:
        """Learn from where on records may be missing in the store; those that are there are passed over."""
        chain = await self._stores.run(self.url, self._load)
        if chain.next > self._log_end:  # what came since is not in the store, whatever offsets it has
            logger.error(
                "the store %s has %s up to offset %d, and the log ends at %d: it has lost records that were stored; "
                "new ones with the same offsets go beside them",
                self.url, self.partition.tp, chain.next, self._log_end,
            )  # fmt: skip
            chain.next = self._log_end
        self._chain = chain
        self._sent_bytes = self.partition.appended_bytes - _bytes_from(self.partition, chain.next)
        self._due = (self._loop.time(), slice_start(self.spec, self._clock.now_ms()))
        self.partition.stored_end = chain.next
        self._reached(chain.next)

    def _load(self, store: ObjectStore) -> Frontier:
        chain = Frontier(store, self.spec, self._publisher, self._clock.now_ms, self._run_all)
        chain.load()
        return chain

    async def _send(self, reach: _Reach) -> None:
        """Store what a round covers; it ends earlier where there is enough for an object."""
        due = self._next_due()
        chain = self._chain
        if chain is None:
            raise AssertionError("how far the store is must be known before more is sent")
        offset, records, log_bytes = await self._collect(reach)
        if records:
            self.objects += await self._stores.run(self.url, lambda _: self._put(chain, records, offset))
        is_all = offset >= reach.sure
        self._sent_bytes = reach.appended_bytes if is_all else self._sent_bytes + log_bytes
        self._due = due if is_all else (self._loop.time(), due[1])
        self._reached(offset)
        self._succeeded()
        if self._is_save_due:
            await self._save()

    async def _collect(self, reach: _Reach) -> tuple[Offset, list[Record], int]:
        """Read the records of a round: where the next one begins, they, and their bytes in the log."""
        partition, offset = self.partition, self.frontier or 0
        if offset < partition.log.log_start:
            logger.warning(
                "%s: records from offset %d up to %d were removed from the log; if they are not in the store, they are "
                "in no reader's reach",
                partition.tp, offset, partition.log.log_start,
            )  # fmt: skip
            offset = partition.log.log_start
        records: list[Record] = []
        log_bytes = plain_bytes = 0
        while offset < reach.limit and plain_bytes < self.spec.slice_bytes:
            piece = await read_piece(partition, offset, _READ_BYTES, reach.limit)
            log_bytes += piece.size_bytes
            plain_bytes += piece.plain_bytes
            if not piece.size_bytes:
                offset = reach.limit  # compaction has removed all that was there
            elif piece.next_offset > reach.sure and (stop := _first_after(piece.records, reach)) is not None:
                records += piece.records[:stop]
                return piece.records[stop].offset, records, log_bytes
            else:
                records += piece.records
                offset = piece.next_offset
        return offset, records, log_bytes

    def _put(self, chain: Frontier, records: list[Record], end: Offset) -> int:
        """Send them, in a thread; say how many objects they became."""
        make = tuple.__new__
        return chain.put([make(Message, record) for record in records], end)

    def _run_all(self, jobs: list[Callable[[], None]]) -> None:
        self._stores.run_all([partial(self._unless_stopped, job) for job in jobs])

    def _unless_stopped(self, job: Callable[[], None]) -> None:
        if self._is_stopped:
            raise _StoppedError
        job()

    def _reached(self, offset: Offset) -> None:
        self.frontier = offset
        if offset >= self.partition.log_end:
            self._sent_bytes = self.partition.appended_bytes
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            future = waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    @property
    def _is_save_due(self) -> bool:
        return self.partition.stored_end != self.frontier and self._clock.now_ms() - self._saved_ms >= _CHECKPOINT_MS

    async def _save(self) -> None:
        """Note in the store how far it is: the next leader looks from there on, so the log is kept from there on."""
        chain = self._chain
        if chain is None:
            return
        self._saved_ms, frontier = self._clock.now_ms(), chain.next
        try:
            is_saved = await self._stores.run(self.url, lambda _: chain.save())
        except StoreError as error:
            logger.warning(
                "how far %s is stored is not noted; the next start looks for it: %s", self.partition.tp, error
            )
        else:
            self.partition.stored_end = frontier if is_saved else self.partition.stored_end


def _first_after(records: list[Record], reach: _Reach) -> int | None:
    """The first record that can wait for the slice it belongs to."""
    for index, record in enumerate(records):
        if record.offset >= reach.sure and record.timestamp >= reach.boundary_ms:
            return index
    return None


def _bytes_from(partition: Partition, offset: Offset) -> int:
    """The bytes of a log from an offset on, about."""
    size = 0
    for segment in partition.log.segments:
        span = segment.next_offset - segment.base_offset
        if span > 0 and segment.next_offset > offset:
            size += segment.size_bytes * min(segment.next_offset - offset, span) // span
    return size


def away_error(uploader: Uploader, seconds: float) -> PeerError:
    """What a publisher is told whose message is not in the store after so long."""
    reason = f" ({uploader.failure})" if uploader.failure else ""
    return PeerError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the store {uploader.url} has not answered for {max(seconds, uploader.away_seconds):.0f} s{reason}: the "
        "message is in the log and is stored when it does; if you publish it again it may be there twice",
    )
