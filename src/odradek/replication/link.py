"""One leader that this broker follows in many partitions: one task, one connection, one request at a time.

A position is told to the leader only when all before it is safe here, since the leader counts it as flushed: the one
place that makes sure is `_make_safe`. After each wait the partition is looked up again: it may have another leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from odradek.client.address import Address
from odradek.client.connection import Connection
from odradek.client.errors import ClientError, RequestError
from odradek.disk.errors import DiskError
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.flusher import GroupFlusher
from odradek.records.errors import RecordError
from odradek.replication.config import ReplicationConfig
from odradek.replication.fitting import MisfitError
from odradek.replication.following import Following, PartitionKey
from odradek.replication.ranges import find_ranges
from odradek.replication.session import FollowerSession
from odradek.replication.taking import TRANSIENT, OutOfRangeError, RefusedError, is_disk_failure, take
from odradek.replication.throttle import Throttle
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch

VERSION_MAX = 17
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
ANSWER_MS_MIN = 2_000  # that a leader gets beyond the time it may wait
HURRY_PAUSE_S, HURRY_PARTITIONS_MAX = 0.2, 1_000  # how often, and with how many partitions to name again
TURN_BYTES = 1 << 20  # appended before others get their turn on the loop

SESSION_LOST = frozenset({
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
})  # fmt: skip
FAULTS = (LogError, DiskError, RecordError, MisfitError, RefusedError)  # of one partition: the others go on

logger = logging.getLogger(__name__)


class Connect(Protocol):
    """How a connection is made; see odradek.client.connection."""

    def __call__(self, address: Address, client_id: str, *, timeout_ms: int) -> Coroutine[Any, Any, Connection]:
        """Open a connection or raise a ClientError."""


@dataclass(slots=True)
class Shared:
    """What all links of a broker have in common."""

    config: ReplicationConfig
    node_id: int
    client_id: str
    broker_epoch: Callable[[], int]
    flusher: GroupFlusher
    connect: Connect
    failed: Callable[[Exception], None]
    throttle: Throttle


def pause_s(attempts: int) -> float:
    """How long to wait after so many failures."""
    return min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** min(attempts, 16))


class LeaderLink:
    """Follows one leader."""

    def __init__(self, leader_id: int, address: Address, shared: Shared) -> None:
        self.leader_id = leader_id
        self.address = address
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._followings: dict[PartitionKey, Following] = {}
        self._session = FollowerSession()
        self._paused: dict[PartitionKey, tuple[float, Following]] = {}  # until when
        self._starts: dict[PartitionKey, tuple[int, Following]] = {}  # the leader's log start, to be followed
        self._removals: set[asyncio.Future[None]] = set()
        self._news = asyncio.Event()  # a partition has been added
        self._attempts = 0  # to reach the leader, since it last answered
        self._parked: Connection | None = None  # while an answer is awaited
        self._hurried_at = 0.0
        self._closing: asyncio.Task[None] | None = None
        self._task = self._loop.create_task(self._run(), name=f"replicate from {leader_id}")

    # Called by the owner.

    def __len__(self) -> int:
        return len(self._followings)

    def add(self, following: Following) -> None:
        """Follow one more partition."""
        self._followings[following.key] = following
        self._want(following)
        self._news.set()
        if self._parked is not None:
            self._hurry(self._parked)

    def _hurry(self, parked: Connection) -> None:
        """Break off a request that may wait long: a new leader needs to hear from its followers at once."""
        now = self._loop.time()
        if len(self._session.known) <= HURRY_PARTITIONS_MAX and now - self._hurried_at > HURRY_PAUSE_S:
            self._hurried_at, self._parked = now, None
            self._closing = self._loop.create_task(parked.close())

    def remove(self, following: Following) -> None:
        """Follow a partition no longer: from now on nothing touches it."""
        key = following.key
        if self._followings.get(key) is following:
            del self._followings[key]
            self._paused.pop(key, None)
            self._starts.pop(key, None)
            self._session.forget(key)

    def stop(self) -> asyncio.Task[None]:
        """End; the task that comes back is done soon."""
        self._followings.clear()
        self._task.cancel()
        return self._task

    # The task.

    async def _run(self) -> None:
        try:
            while True:
                await self._ready()
                await self._follow_once()
                self._session.restart()
                if self._closing is not None:  # on purpose, to begin again at once
                    await self._closing
                    self._closing = None
                    continue
                await asyncio.sleep(pause_s(self._attempts))
                self._attempts += 1
        finally:
            left = {*self._removals, *([self._closing] if self._closing else [])}
            if left:
                await asyncio.wait(left)

    async def _follow_once(self) -> None:
        """Connect and fetch until something breaks."""
        shared, connection = self._shared, None
        try:
            connection = await shared.connect(self.address, shared.client_id, timeout_ms=self._answer_ms)
            while True:
                await self._ready()
                await self._round(connection)
        except ClientError as error:
            level = logging.DEBUG if self._attempts or self._closing else logging.WARNING
            logger.log(level, "cannot follow broker %d: %s", self.leader_id, error)
        except Exception:  # the others' copies must not end with one bug; it is tried again, slowly
            logger.exception("following broker %d failed", self.leader_id)
            self._attempts = max(self._attempts, 5)
        finally:
            if connection is not None:
                await connection.close()

    async def _ready(self) -> None:
        """Wait until there is something to ask for."""
        while True:
            self._revive()
            if not self._session.is_empty:
                return
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_due()):
                    await self._news.wait()

    async def _round(self, connection: Connection) -> None:
        """Ask once for everything, and take in what comes."""
        await self._make_safe()
        self._follow_starts()
        if self._session.is_empty:
            return
        request = self._session.request(self._shared.config)
        self._complete(request)
        self._parked = connection
        try:
            response = await connection.request(
                request, fetch.Response, timeout_ms=request.max_wait_ms + self._answer_ms, version_max=VERSION_MAX
            )
        finally:
            self._parked = None
        if response.error_code in SESSION_LOST and request.session_epoch:
            self._session.restart()
            return
        if response.error_code:
            raise RequestError(response.error_code, f"fetching from broker {self.leader_id} as a replica")
        self._session.answered(response.session_id)
        self._attempts = 0
        await self._take(connection, response)
        if not self._session.is_kept:
            self._session.restart()

    def _complete(self, request: fetch.Request) -> None:
        config, until_due = self._shared.config, self._until_due()
        request.replica_state = fetch.RequestReplicaState(
            replica_id=self._shared.node_id, replica_epoch=self._shared.broker_epoch()
        )
        wait_ms = config.replica_fetch_wait_max_ms
        request.max_wait_ms = wait_ms if until_due is None else min(wait_ms, int(until_due * 1000) + 1)
        request.min_bytes = 1
        request.max_bytes = config.replica_fetch_response_max_bytes

    @property
    def _answer_ms(self) -> int:
        return max(ANSWER_MS_MIN, self._shared.config.replica_lag_time_max_ms // 2)

    async def _take(self, connection: Connection, response: fetch.Response) -> None:
        out_of_range: list[Following] = []
        turn_bytes = 0
        for topic in response.responses:
            for answer in topic.partitions:
                following = self._session.known.get((topic.topic_id, answer.partition_index))
                if following is None or not self._is_current(following):
                    self._drop_outdated(following)
                    continue
                try:
                    self._take_one(following, answer)
                except OutOfRangeError:
                    out_of_range.append(following)
                except Exception as error:  # whatever it is, the other partitions go on
                    self._trouble(following, error)
                turn_bytes += len(answer.records or b"")
                if turn_bytes >= TURN_BYTES:
                    turn_bytes = 0
                    await asyncio.sleep(0)
        if out_of_range:
            async for following, fault in find_ranges(connection, self._shared.node_id, out_of_range, self._is_current):
                if not self._is_current(following):
                    continue
                if fault is None:
                    self._want(following)
                else:
                    self._trouble(following, fault)

    def _take_one(self, following: Following, answer: fetch.ResponsePartition) -> None:
        if take(following, answer):
            if following.replica.is_adding:
                self._shared.throttle.take(len(answer.records or b""), self._loop.time())
            self._want(following)
        following.attempts = 0
        if answer.log_start_offset > following.replica.log.log_start:
            self._starts[following.key] = (answer.log_start_offset, following)

    def _is_current(self, following: Following) -> bool:
        return self._followings.get(following.key) is following and following.is_of_now

    def _drop_outdated(self, following: Following | None) -> None:
        """Ask no more for a partition that has another leader by now; its owner is about to say which."""
        if following is not None and self._followings.get(following.key) is following:
            self._session.forget(following.key)

    # Asking, and not asking.

    def _want(self, following: Following) -> None:
        wait = self._shared.throttle.wait_s(self._loop.time()) if following.replica.is_adding else 0.0
        if wait:
            self._pause(following, wait)
        else:
            self._session.want(following)

    def _pause(self, following: Following, seconds: float) -> None:
        """Leave a partition out for a while: in the session its error would be the answer to every request."""
        self._session.forget(following.key)
        self._paused[following.key] = (self._loop.time() + seconds, following)

    def _revive(self) -> None:
        if self._paused:
            now = self._loop.time()
            for key, (due, following) in list(self._paused.items()):
                if due <= now:
                    del self._paused[key]
                    self._want(following)

    def _until_due(self) -> float | None:
        """How long until the next partition is to be asked for again; None if there is no such."""
        if not self._paused:
            return None
        return max(0.0, min(due for due, _ in self._paused.values()) - self._loop.time())

    def _trouble(self, following: Following, error: Exception) -> None:
        """Something is wrong with one partition: leave it out for a while, or for good if its log is done for."""
        following.is_prepared = False
        tp = following.replica.tp
        if is_disk_failure(error):
            self.remove(following)
            self._shared.failed(error)
        elif isinstance(error, LogStoppedError):
            self.remove(following)  # closed or deleted: whoever did that knows
        else:
            expected = isinstance(error, RefusedError) and error.code in TRANSIENT
            level = logging.DEBUG if expected or following.attempts else logging.WARNING
            bug = None if isinstance(error, FAULTS) else error
            logger.log(level, "%s does not follow broker %d for now: %s", tp, self.leader_id, error, exc_info=bug)
            self._pause(following, pause_s(following.attempts))
            following.attempts += 1

    # Safe first.

    async def _make_safe(self) -> None:
        """Flush what was appended, all logs side by side; what cannot be flushed is not asked for."""
        while True:
            waiting: list[tuple[Following, asyncio.Future[None]]] = []
            for following in list(self._session.changed.values()):
                if not self._is_current(following):
                    self._session.forget(following.key)
                    continue
                try:
                    following.prepare()
                    if not following.is_safe:
                        log = following.replica.log
                        waiting.append((following, self._shared.flusher.flushed(log, log.next_offset)))
                except FAULTS as error:
                    self._trouble(following, error)
            if not waiting:
                return
            results = await asyncio.gather(*(future for _, future in waiting), return_exceptions=True)
            for (following, _), result in zip(waiting, results, strict=True):
                if isinstance(result, Exception) and self._is_current(following):
                    self._trouble(following, result)

    def _follow_starts(self) -> None:
        """Let go of what the leader has deleted, once that takes no flush here; the files go in a thread."""
        for key, (start, following) in list(self._starts.items()):
            log = following.replica.log
            offset = min(start, log.next_offset)
            if not following.is_of_now or offset <= log.log_start:
                del self._starts[key]
            elif offset > log.flushed_offset:
                self._shared.flusher.request(log)
            else:
                del self._starts[key]
                try:
                    removal = log.delete_records(offset)
                except FAULTS as error:
                    self._trouble(following, error)
                    continue
                future = self._loop.run_in_executor(None, removal.run)
                self._removals.add(future)
                future.add_done_callback(self._removed)

    def _removed(self, future: asyncio.Future[None]) -> None:
        self._removals.discard(future)
        error = None if future.cancelled() else future.exception()
        if isinstance(error, DiskError | LogError):
            self._shared.failed(error)
        elif error is not None:
            logger.error("removing old segments failed", exc_info=error)
