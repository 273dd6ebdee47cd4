"""Consuming: `async for record in consumer`, or `poll` for many at once; alone, or as a member of a group.

Delivery is at least once when offsets are committed after the work is done: a position is behind what was handed out.
Rebalances happen within a poll (or the next step of `async for`), so that the revoked can be committed before.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

from odradek.client.cluster import Cluster
from odradek.client.commits import Commits, CommittedOffset
from odradek.client.coordinators import Coordinators
from odradek.client.cursor import Cursor
from odradek.client.errors import ClientError, RequestError
from odradek.client.fetched import ConsumerRecord
from odradek.client.fetcher import Fetcher, FetchSettings, PartitionState
from odradek.client.group_membership import GroupSettings, Membership
from odradek.client.offsets import READ_COMMITTED, look_up, resolve
from odradek.client.start import EARLIEST, LATEST, Start, StartLike, parse_start
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode

Listener: TypeAlias = Callable[[list[TopicPartition]], Awaitable[None] | None]

MAX_RECORDS = 500
POLL_TIMEOUT_MS = 1_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What to consume and how; see Client.consumer."""

    topics: tuple[str, ...]  # all their partitions, or the group's share of them
    partitions: Mapping[TopicPartition, Start]  # given instead of topics, each with its start
    start: Start
    reset: Start | None  # where to go on when an offset is gone; None: raise the error
    follow: bool
    auto_commit_ms: int | None
    commit_on_close: bool
    fetch: FetchSettings
    group: GroupSettings | None
    on_assign: Listener | None
    on_revoke: Listener | None


class Consumer:
    """Made by Client.consumer(); use it with `async with`, or call start() and close()."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._fetcher = Fetcher(cluster, settings.fetch, self._out_of_range)
        self._cursor = Cursor(self._fetcher)
        self._gone: set[TopicPartition] = set()  # partitions whose offset the log does not have
        coordinators = Coordinators(cluster)
        self._commits = Commits(cluster, coordinators)
        self._membership: Membership | None = None
        if settings.group is not None and settings.topics:
            self._membership = Membership(cluster, coordinators, settings.group, settings.topics, self._interrupt)
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._commit_timer: asyncio.TimerHandle | None = None
        self._commit_at = self._loop.time() + (settings.auto_commit_ms or 0) / 1000
        self._interrupted = True  # the next step of `async for` must look at more than the batch at hand
        self._started = False
        self._closed = False

    async def start(self) -> None:
        """Find the partitions and where to begin; a group is joined by the first poll."""
        if self._started:
            return
        if self._membership is None:
            starts = dict(self._settings.partitions)
            for name in self._settings.topics:
                topic = await self._cluster.topic(name)
                starts |= {TopicPartition(name, index): self._settings.start for index in topic.partitions}
            await self._begin(starts)
            if self._settings.topics and self._settings.follow:
                self._watcher = self._loop.create_task(self._watch_topics())
        self._started = True

    async def _watch_topics(self) -> None:
        """Without a group: take up partitions that topics get later, from their first record on."""
        topics = self._settings.topics
        while True:
            await asyncio.sleep(self._cluster.timeouts.metadata_age_ms / 1000)
            try:
                await self._cluster.refresh(topics)
                known = [self._cluster.topics[name] for name in topics if name in self._cluster.topics]
                there = [TopicPartition(info.name, index) for info in known for index in info.partitions]
                new = [partition for partition in there if partition not in self._fetcher.states]
                await self._begin(dict.fromkeys(new, Start(timestamp=EARLIEST)))
            except ClientError as error:
                logger.info("looking for new partitions: %s", error)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Records.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        while True:
            if not self._interrupted:
                record = self._cursor.next()
                if record is not None:
                    return record
            if self._closed or self._is_finished():
                raise StopAsyncIteration
            await self._attend(self._loop.time() + POLL_TIMEOUT_MS / 1000)
            record = self._cursor.next()
            if record is not None:
                return record
            if not self._cursor.load():
                await self._wait(self._loop.time() + POLL_TIMEOUT_MS / 1000)

    async def poll(self, max_records: int = MAX_RECORDS, timeout_ms: float = POLL_TIMEOUT_MS) -> list[ConsumerRecord]:
        """Return what is there, up to `max_records`; wait up to `timeout_ms` for the first record."""
        if self._closed or not self._started:
            raise ClientError("the consumer is not open: use it within `async with client.consumer(...) as consumer:`")
        deadline = self._loop.time() + timeout_ms / 1000
        while True:
            await self._attend(deadline)
            records = self._cursor.take(max_records)
            if records or self._is_finished() or self._loop.time() >= deadline:
                return records
            await self._wait(deadline)

    async def _wait(self, deadline: float) -> None:
        """Wait until there is something to look at, or the time is over."""
        if self._needs_attention() or self._is_finished():
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._fetcher.arrived.wait()
        except TimeoutError:
            pass

    def _is_finished(self) -> bool:
        """Whether everything up to the ends has been read, for a consumer that does not follow."""
        if self._settings.follow or self._joining is not None or self._needs_attention():
            return False
        return self._started and all(state.is_done for state in self._fetcher.states.values())

    # What a poll has to see to.

    def _interrupt(self) -> None:
        self._interrupted = True
        self._fetcher.arrived.set()

    def _needs_attention(self) -> bool:
        needs_join = self._membership is not None and self._membership.needs_join
        return needs_join or bool(self._gone)

    async def _attend(self, deadline: float) -> None:
        """See to the group, to offsets that are gone, and to the automatic commit."""
        self._interrupted = False
        if self._membership is not None:
            await self._follow_group(self._membership, deadline)
        if self._gone:
            await self._reset_positions()
        if self._settings.auto_commit_ms is not None and self._loop.time() >= self._commit_at:
            self._commit_soon(self._settings.auto_commit_ms)

    def _commit_soon(self, interval_ms: int) -> None:
        """Commit in the background what was handed out before this poll."""
        self._commit_at = self._loop.time() + interval_ms / 1000
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        self._commit_timer = self._loop.call_at(self._commit_at, self._interrupt)
        if self._fetcher.states and (self._committing is None or self._committing.done()):
            self._committing = self._loop.create_task(self._commit_quietly(self.positions()))

    async def _commit_quietly(self, positions: dict[TopicPartition, int]) -> None:
        try:
            await self.commit(positions)
        except ClientError as error:
            logger.warning("automatic commit: %s", error)

    async def _follow_group(self, membership: Membership, deadline: float) -> None:
        membership.polled()
        if self._joining is None:
            if not membership.needs_join:
                return
            await self._revoke(membership)
            self._joining = self._loop.create_task(membership.join())
        await asyncio.wait([self._joining], timeout=max(0.0, deadline - self._loop.time()))
        if not self._joining.done():
            self._interrupted = True
            return
        task, self._joining = self._joining, None
        partitions = task.result()
        try:
            await self._begin(dict.fromkeys(partitions, self._settings.start))
            if self._settings.on_assign is not None:
                await _tell(self._settings.on_assign, partitions)
        except BaseException:
            membership.request_join()
            raise

    async def _revoke(self, membership: Membership) -> None:
        partitions = list(self._fetcher.states)
        if not partitions:
            return
        if self._settings.on_revoke is not None:
            await _tell(self._settings.on_revoke, partitions)
        if self._settings.auto_commit_ms is not None and membership.member.generation >= 0:
            await self._commit_quietly(self.positions())
        self._fetcher.unassign(partitions)
        self._gone.clear()

    async def _begin(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Find the positions of new partitions: what the group committed, or else the start; and fetch from there."""
        committed = await self._committed(starts)
        positions = {partition: info.offset for partition, info in committed.items()}
        missing = {partition: start for partition, start in starts.items() if partition not in positions}
        positions |= await resolve(self._cluster, missing, isolation=self._settings.fetch.isolation)
        ends: dict[TopicPartition, int] = {}
        if not self._settings.follow:
            ends = await self._ends(starts)
        self._fetcher.assign(positions)
        for partition, end in ends.items():
            state = self._fetcher.states[partition]
            state.end = end
            if state.position >= end:
                self._fetcher.finish(state)

    def _out_of_range(self, partition: TopicPartition) -> None:
        self._gone.add(partition)
        self._interrupt()

    async def _reset_positions(self) -> None:
        gone = [partition for partition in self._gone if partition in self._fetcher.states]
        reset = self._settings.reset
        if reset is None and gone:
            position = self._fetcher.states[gone[0]].position
            self._gone.discard(gone[0])
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, f"reading partition {gone[0]} at offset {position}")
        if reset is not None:
            starts = dict.fromkeys(gone, reset)
            positions = await resolve(self._cluster, starts, isolation=self._settings.fetch.isolation)
            for partition, position in positions.items():
                before = self._fetcher.states[partition].position
                logger.warning("offset %d of %s is gone: going on at %d", before, partition, position)
            self._fetcher.assign(positions)
        self._gone.difference_update(gone)

    # Positions.

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are being consumed."""
        return frozenset(self._fetcher.states)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that will be handed out."""
        return self._state(partition).position

    def positions(self) -> dict[TopicPartition, int]:
        """The offsets of the next records, by partition."""
        return {partition: state.position for partition, state in self._fetcher.states.items()}

    async def seek(self, partition: TopicPartition, to: StartLike) -> None:
        """Go on elsewhere: an offset, "start", "end", "-10", "@milliseconds" ... as for `start`."""
        self._state(partition)
        starts = {partition: parse_start(to)}
        positions = await resolve(self._cluster, starts, isolation=self._settings.fetch.isolation)
        self._gone.discard(partition)
        self._fetcher.assign(positions)

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._fetcher.states.get(partition)
        if state is None:
            raise ClientError(f"partition {partition} is not assigned to this consumer")
        return state

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """The offsets behind the last records of the assigned partitions, asked for now."""
        return await self._ends(self._fetcher.states)

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        isolation = self._settings.fetch.isolation
        infos = await look_up(self._cluster, dict.fromkeys(partitions, LATEST), isolation=isolation)
        return {partition: info.offset for partition, info in infos.items()}

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie between the positions and the ends, asked for now."""
        ends = await self.end_offsets()
        positions = self.positions()
        return {key: max(0, end - positions[key]) for key, end in ends.items() if key in positions}

    def known_lag(self) -> dict[TopicPartition, int]:
        """The same as of the last fetches, without asking; partitions that were not fetched yet are left out."""
        states = self._fetcher.states
        return {
            key: max(0, state.high_watermark - state.position)
            for key, state in states.items()
            if state.high_watermark >= 0
        }

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Store how far the group has come: the positions, or what is given."""
        group = self._group()
        given = self.positions() if offsets is None else offsets
        member = None if self._membership is None else self._membership.member
        channel = "" if self._membership is None else self._membership.channel
        committed = {key: CommittedOffset(value) if isinstance(value, int) else value for key, value in given.items()}
        await self._commits.commit(group, committed, member=member, channel=channel)

    async def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed in the assigned partitions."""
        self._group()
        return await self._committed(self._fetcher.states)

    async def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        if self._settings.group is None or not partitions:
            return {}
        stable = self._settings.fetch.isolation == READ_COMMITTED
        return await self._commits.fetch(self._settings.group.group, partitions, stable=stable)

    def _group(self) -> str:
        if self._settings.group is None:
            raise ClientError("a consumer without a group has nothing to commit to: give it one with `group=`")
        return self._settings.group.group

    # Ending.

    async def close(self) -> None:
        """Commit if that was asked for, leave the group, stop fetching."""
        if self._closed:
            return
        self._closed = True
        settings = self._settings
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        tasks = [task for task in (self._watcher, self._joining, self._committing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if settings.on_revoke is not None and self._membership is not None and self._fetcher.states:
                await _tell(settings.on_revoke, list(self._fetcher.states))
            if (settings.commit_on_close or settings.auto_commit_ms is not None) and self._fetcher.states:
                await self.commit()
        finally:
            if self._membership is not None:
                await self._membership.close()
            await self._fetcher.close()


async def _tell(listener: Listener, partitions: list[TopicPartition]) -> None:
    told = listener(partitions)
    if inspect.isawaitable(told):
        await told
