"""What a broker does on its own: checkpoints, retention, compaction. It runs beside requests and never holds them up.

Retention acts by the timer, and soon after a log has begun a new segment (`roll_expiry.py`).

On the loop it works in slices of a few milliseconds; whatever waits for the disk runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter

from odradek.broker.broker import Broker
from odradek.broker.roll_expiry import RollExpiry
from odradek.broker.topics import Partition
from odradek.disk.errors import DiskError
from odradek.log.compaction import CompactionPlan
from odradek.log.errors import DamagedLogError, LogDeletedError, LogStoppedError
from odradek.records.errors import RecordError

_SLICE_SECONDS = 0.002

logger = logging.getLogger(__name__)


class Housekeeping:
    """The background work of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="housekeeping")
        self._tasks: list[asyncio.Task[None]] = []
        self._slice_end = 0.0
        self._uncleanable: set[Partition] = set()  # their compaction failed; said once, not tried again

    def start(self) -> None:
        """Begin the rounds."""
        config, store = self._broker.config, self._broker.store.config
        rounds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (store.log_checkpoint_interval_ms, self.checkpoint),
            (config.log_retention_check_interval_ms, self.expire),
            (config.log_cleaner_backoff_ms, self.compact),
        ]
        self._tasks = [asyncio.create_task(self._repeat(*each)) for each in rounds]
        self._tasks.append(asyncio.create_task(self._expire_rolled(RollExpiry(self._broker))))

    async def close(self) -> None:
        """Stop after what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=True)

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self._guarded(work)

    async def checkpoint(self) -> None:
        """Write out what makes the next start after a crash short, for the logs that changed."""
        while self._broker.written:
            log = self._broker.written.pop()
            if log.stopped is None:
                log.checkpoint()
            await self._breathe()
        self._broker.watermarks.save(self._broker.hosting.partitions())

    async def expire(self) -> None:
        """Close segments that are old enough, and let go of what retention no longer keeps."""
        for partition in self._partitions():
            await self._expire_one(partition, self._thread)
            await self._breathe()

    async def _expire_one(self, partition: Partition, thread: ThreadPoolExecutor) -> None:
        log, store = partition.log, self._broker.store
        if log.stopped is not None:
            return
        segments = len(log.segments)
        removal = store.expire(partition.tp, partition.droppable_end)
        if removal is not None:
            await self._in_thread(removal.run, thread=thread)
            logger.info("%s begins at offset %d now on this disk", partition.tp, log.log_start)
            partition.advanced()
        elif len(log.segments) != segments:
            self._broker.flusher.request(log)  # retention and compaction touch only what is flushed

    async def _expire_rolled(self, rolls: RollExpiry) -> None:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="roll-expiry") as thread:  # compaction takes its time
            try:
                while True:
                    for partition in await rolls.due():
                        await self._guarded(partial(self._expire_one, partition, thread))
                        await self._breathe()
            finally:
                rolls.close()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (LogStoppedError, DiskError) as error:
            self._broker.heed(error)
        except Exception:
            logger.exception("a bug in background work; it is tried again")

    async def compact(self) -> None:
        """Clean the compacted partitions that have enough to clean."""
        for partition in self._partitions():
            if not partition.log.config.compacts or partition in self._uncleanable or partition.log.stopped is not None:
                continue
            plan = self._broker.store.plan_compaction(partition.tp, partition.last_stable_offset)
            if plan is not None:
                await self._clean(partition, plan)
            await self._breathe()

    async def _clean(self, partition: Partition, plan: CompactionPlan) -> None:
        try:
            await self._in_thread(plan.build, on_cancel=partial(setattr, plan, "cancelled", True))
        except (DamagedLogError, RecordError) as error:
            plan.drop(partition.log)
            self._uncleanable.add(partition)
            logger.error("%s is not compacted any more: %s", partition.tp, error)
        except BaseException as error:
            plan.drop(partition.log)
            if isinstance(error, Exception) and isinstance(partition.log.stopped, LogDeletedError):
                return  # its topic was deleted meanwhile, and its files with it
            raise
        else:
            if plan.install(partition.log):
                logger.info("%s is compacted", partition.tp)

    def _partitions(self) -> list[Partition]:
        """Those that are there now; one that goes meanwhile has a stopped log."""
        return [partition for topic in self._broker.topics.values() for partition in topic.partitions.values()]

    async def _in_thread(
        self,
        work: Callable[[], object],
        on_cancel: Callable[[], None] | None = None,
        thread: ThreadPoolExecutor | None = None,
    ) -> None:
        """Wait for a thread; also when cancelled, since what it works on must not be touched before it ends."""
        future = asyncio.get_running_loop().run_in_executor(thread or self._thread, work)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            if on_cancel is not None:
                on_cancel()
            await asyncio.wait([future])
            raise

    async def _breathe(self) -> None:
        if perf_counter() > self._slice_end:
            await asyncio.sleep(0)
            self._slice_end = perf_counter() + _SLICE_SECONDS
