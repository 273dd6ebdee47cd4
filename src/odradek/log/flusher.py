"""Group flush: one fdatasync covers all that arrived while the last one ran.

Threads wait for the disk, the event loop does all the rest. Each log has at most one flush under way; different
logs flush side by side. A flush that fails stops its log, tells whoever asked, and is never tried again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from odradek.log.errors import LogDeletedError, LogError, LogStoppedError
from odradek.log.flushing import FlushJob
from odradek.log.log import PartitionLog
from odradek.model import Offset

Failed = Callable[[PartitionLog, LogStoppedError], None]
Flushed = Callable[[PartitionLog], None]


class _Waiter(NamedTuple):
    """Somebody who wants to know when all below an offset is safe."""

    offset: Offset
    cuts: int  # of the log, when it was asked
    future: asyncio.Future[None]

    def fail(self, error: LogError) -> None:
        """Tell that it never will be, or that nobody knows."""
        if not self.future.done():
            self.future.set_exception(error)


def _cut(log: PartitionLog) -> LogError:
    return LogError(f"{log.directory} was cut before these records were flushed")


class GroupFlusher:
    """Flushes logs on demand. Made and used on one event loop."""

    def __init__(self, threads: int, on_failure: Failed | None = None, on_flushed: Flushed | None = None) -> None:
        """Tell `on_flushed` after each flush that went well, and before those who wait for it go on."""
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._on_flushed = on_flushed
        self._busy: set[PartitionLog] = set()  # a flush is scheduled or under way
        self._again: set[PartitionLog] = set()  # asked for while one was under way, which may not cover it
        self._waiting: dict[PartitionLog, deque[_Waiter]] = {}
        self._leaving: dict[PartitionLog, list[asyncio.Future[None]]] = {}  # who waits for a log's last flush
        self._idle = asyncio.Event()
        self._idle.set()
        self._jobs: SimpleQueue[tuple[PartitionLog, FlushJob] | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=f"flush-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def flushed(self, log: PartitionLog, offset: Offset) -> asyncio.Future[None]:
        """A future that is done when all below `offset` is on stable storage, or fails if it never will be."""
        future = self._loop.create_future()
        if log.flushed_offset >= offset:
            future.set_result(None)
        elif log.stopped is not None:
            future.set_exception(LogStoppedError(log.directory, log.stopped))
        else:
            self._waiting.setdefault(log, deque()).append(_Waiter(offset, log.cuts, future))
            self.request(log)
        return future

    def request(self, log: PartitionLog) -> None:
        """See that what is in the log now will be flushed soon."""
        if log in self._busy:
            self._again.add(log)
        else:
            self._busy.add(log)
            self._idle.clear()
            # At the end of this turn of the loop, so that all that arrived in it shares the flush.
            self._loop.call_soon(self._begin, log)

    def _begin(self, log: PartitionLog) -> None:
        self._again.discard(log)
        try:
            job = log.begin_flush()
        except LogStoppedError as error:
            self._fail(log, error)
            return
        if job is not None:
            self._jobs.put((log, job))
            return
        # Somebody flushed it already, or cut off what was waited for.
        self._answer(log)
        for waiter in self._waiting.get(log, ()):
            waiter.fail(_cut(log))
        self._rest(log)

    def _work(self) -> None:
        while (next_job := self._jobs.get()) is not None:
            log, job = next_job
            failure: Exception | None = None
            try:
                job.run()
            except Exception as error:  # whatever it was, the bytes are in doubt, and the owner must hear of it
                failure = error
            self._loop.call_soon_threadsafe(self._done, log, job, failure)

    def _done(self, log: PartitionLog, job: FlushJob, failure: Exception | None) -> None:
        try:
            log.finish_flush(job, failure)
        except LogStoppedError as error:
            self._fail(log, error)
            return
        if self._on_flushed is not None:
            self._on_flushed(log)
        if self._answer(log) or log in self._again:
            self._begin(log)
        else:
            self._rest(log)

    def _answer(self, log: PartitionLog) -> bool:
        """Tell those whose records are safe; say whether others still wait."""
        waiting = self._waiting.get(log)
        while waiting and (waiting[0].offset <= log.flushed_offset or waiting[0].cuts != log.cuts):
            waiter = waiting.popleft()
            if waiter.cuts != log.cuts:  # at this offset other records may stand by now
                waiter.fail(_cut(log))
            elif not waiter.future.done():
                waiter.future.set_result(None)
        return bool(waiting)

    def _rest(self, log: PartitionLog) -> None:
        self._waiting.pop(log, None)
        self._again.discard(log)
        self._busy.discard(log)
        for future in self._leaving.pop(log, ()):
            if not future.done():
                future.set_result(None)
        if not self._busy:
            self._idle.set()

    def _fail(self, log: PartitionLog, error: LogStoppedError) -> None:
        for waiter in self._waiting.get(log, ()):
            waiter.fail(error)
        self._rest(log)
        if self._on_failure is not None and not isinstance(error.cause, LogDeletedError):
            self._on_failure(log, error)

    async def rested(self, log: PartitionLog) -> None:
        """Wait until no flush of a log is asked for or under way; for one to which nobody appends any more."""
        while log in self._busy:
            future = self._loop.create_future()
            self._leaving.setdefault(log, []).append(future)
            await future

    async def idle(self) -> None:
        """Wait until no flush is asked for or under way."""
        while self._busy:
            await self._idle.wait()

    async def close(self) -> None:
        """Wait for the flushes under way, then end the threads."""
        await self.idle()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
