"""Fetches ahead for a consumer: while one answer is being consumed, the next is under way, up to a bound of bytes.

One request at a time to each broker, full fetches without a session (KIP-227 is not needed), topic ids where the broker
has them (KIP-516). Driven by wake-ups like the sender. Where to start is told by the consumer; an offset that the
log no longer has goes back to it too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from odradek.client.cluster import NO_TOPIC_ID, Cluster
from odradek.client.errors import ClientError, RequestError, error_code
from odradek.client.fetched import AbortedTransaction, Fetched
from odradek.client.offsets import READ_COMMITTED
from odradek.client.retry import is_retriable, pause_ms
from odradek.model import TopicPartition
from odradek.records.errors import RecordError
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch

FETCH_BY_NAME_MAX = 12  # the last version that names topics; later ones want their ids
FAULT_PAUSE_S = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How much to fetch, and how long a broker may wait for data."""

    isolation: int
    max_wait_ms: int
    min_bytes: int
    fetch_bytes: int
    partition_bytes: int
    buffer_bytes: int


class PartitionState:
    """One partition that is being consumed."""

    __slots__ = (
        "attempts", "end", "failing_since", "fetch_offset", "high_watermark", "is_done", "position", "retry_at",
        "sought",
    )  # fmt: skip

    def __init__(self, position: int) -> None:
        self.position = position  # the offset of the next record to hand out
        self.fetch_offset = position  # >= position: what lies between is buffered
        self.high_watermark = -1  # as of the last answer; -1 before it
        self.end: int | None = None  # where reading shall stop
        self.is_done = False  # it has stopped there
        self.sought = 0  # how often the position was set: what was fetched before is worth nothing
        self.attempts = 0  # that failed since the last success
        self.failing_since: float | None = None
        self.retry_at = 0.0


class Chunk:
    """An answer for one partition that waits to be consumed."""

    __slots__ = ("fetched", "sought", "state")

    def __init__(self, state: PartitionState, fetched: Fetched) -> None:
        self.state = state
        self.sought = state.sought
        self.fetched = fetched


class Fetcher:
    """Keeps answers ready for the assigned partitions. Used on one event loop."""

    def __init__(
        self, cluster: Cluster, settings: FetchSettings, out_of_range: Callable[[TopicPartition], None]
    ) -> None:
        """`out_of_range` is told of a partition whose offset the log does not have; it is not fetched meanwhile."""
        self.states: dict[TopicPartition, PartitionState] = {}
        self.arrived = asyncio.Event()  # set when there is something for the consumer to look at
        self._cluster = cluster
        self._settings = settings
        self._out_of_range = out_of_range
        self._channel = cluster.new_channel("fetch")
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[Chunk] = deque()
        self._buffered_bytes = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by node: at most one request each
        self._refresher: asyncio.Task[None] | None = None
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: ClientError | None = None

    # Called by the consumer.

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions as well, or from another position."""
        for partition, position in positions.items():
            state = self.states.get(partition)
            if state is None:
                self.states[partition] = PartitionState(position)
            else:
                state.position = state.fetch_offset = position
                state.sought += 1
                state.attempts, state.failing_since, state.retry_at = 0, None, 0.0
                state.is_done = False
        self._drop_worthless()
        self.wake()

    def finish(self, state: PartitionState) -> None:
        """A partition has come to its end; it stays assigned."""
        state.is_done = True
        state.sought += 1
        self._drop_worthless()

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no longer, and forget what is buffered of them."""
        for partition in partitions:
            state = self.states.pop(partition, None)
            if state is not None:
                state.sought += 1
        self._drop_worthless()

    def next_chunk(self) -> Chunk | None:
        """The next answer to consume, if there is one; its bytes are free for the next fetch."""
        if not self._chunks:
            self.arrived.clear()
            error, self._error = self._error, None
            if error is not None:
                raise error
            return None
        chunk = self._chunks.popleft()
        self._buffered_bytes -= chunk.fetched.size_bytes
        self.wake()
        return chunk

    def wake(self) -> None:
        """Look soon whether something can be fetched."""
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._pump)

    async def close(self) -> None:
        """Stop and forget everything."""
        for handle in (self._scheduled, self._timer):
            if handle is not None:
                handle.cancel()
        tasks = [*self._tasks.values(), *([self._refresher] if self._refresher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._chunks.clear()
        await self._cluster.pool.close_channel(self._channel)

    def _drop_worthless(self) -> None:
        self._chunks = deque(chunk for chunk in self._chunks if chunk.sought == chunk.state.sought)
        self._buffered_bytes = sum(chunk.fetched.size_bytes for chunk in self._chunks)

    # Fetching.

    def _pump(self) -> None:
        """Ask every broker that is not being asked already for what it leads."""
        self._scheduled = None
        room = self._settings.buffer_bytes - self._buffered_bytes
        if room < self._settings.buffer_bytes // 2:
            return  # many small fetches cost more than a few large ones
        now = self._loop.time()
        wake_at: float | None = None
        by_node: dict[int, dict[TopicPartition, PartitionState]] = {}
        for partition, state in self.states.items():
            if state.is_done or state.fetch_offset < 0:
                continue  # nothing more is wanted, or its offset is being looked up
            if state.retry_at > now:
                wake_at = state.retry_at if wake_at is None else min(wake_at, state.retry_at)
                continue
            try:
                by_node.setdefault(self._cluster.leader(partition), {})[partition] = state
            except RequestError as error:
                self._failed(partition, state, error)
        for node_id, states in by_node.items():
            if node_id not in self._tasks:
                task = self._tasks[node_id] = self._loop.create_task(self._fetch(node_id, states, room))
                task.add_done_callback(partial(self._done, node_id))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if wake_at is None else self._loop.call_at(wake_at, self.wake)

    def _done(self, node_id: int, task: asyncio.Task[None]) -> None:
        del self._tasks[node_id]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("a fetch from node %d failed", node_id, exc_info=error)
            self._surface(ClientError(f"a fetch from node {node_id} failed within the client: {error!r}"))
            self._timer = self._loop.call_later(FAULT_PAUSE_S, self.wake)
        else:
            self.wake()

    async def _fetch(self, node_id: int, states: dict[TopicPartition, PartitionState], room: int) -> None:
        asked = {partition: (state, state.fetch_offset, state.sought) for partition, state in states.items()}
        request, names = self._request(states, room)
        try:
            response = await self._cluster.ask(
                node_id,
                request,
                fetch.Response,
                channel=self._channel,
                timeout_ms=self._settings.max_wait_ms + self._cluster.timeouts.request_ms,
                version_max=FETCH_BY_NAME_MAX if NO_TOPIC_ID in names else None,
            )
            if response.error_code:
                raise RequestError(response.error_code, f"fetching from node {node_id}")
        except ClientError as error:
            for partition, (state, _, sought) in asked.items():
                if state.sought == sought:
                    self._failed(partition, state, error)
            return
        for topic in response.responses:
            name = topic.topic or names.get(bytes(topic.topic_id), "")
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                if partition in asked:
                    state, offset, sought = asked[partition]
                    if state.sought == sought:
                        self._answered(partition, state, offset, answer)
        # A broker fills its answer from the front: who was first is last the next time.
        for partition in asked:
            if partition in self.states:
                self.states[partition] = self.states.pop(partition)

    def _request(
        self, states: dict[TopicPartition, PartitionState], room: int
    ) -> tuple[fetch.Request, dict[bytes, str]]:
        """Build the request; also return the names of its topics by id, which the answer may use."""
        settings = self._settings
        topics: dict[str, fetch.RequestTopic] = {}
        for (name, index), state in states.items():
            if name not in topics:
                topics[name] = fetch.RequestTopic(topic=name, topic_id=self._cluster.topic_id(name), partitions=[])
            topics[name].partitions.append(
                fetch.RequestPartition(
                    partition=index, fetch_offset=state.fetch_offset, partition_max_bytes=settings.partition_bytes
                )
            )
        request = fetch.Request(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=min(settings.fetch_bytes, room),
            isolation_level=settings.isolation,
            session_id=0,
            session_epoch=-1,
            topics=list(topics.values()),
        )
        return request, {topic.topic_id: name for name, topic in topics.items()}

    def _answered(
        self, partition: TopicPartition, state: PartitionState, offset: int, answer: fetch.ResponsePartition
    ) -> None:
        code = error_code(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            state.fetch_offset = -1
            self._out_of_range(partition)
            return
        if code is not ErrorCode.NONE:
            self._failed(partition, state, RequestError(answer.error_code, f"fetching from partition {partition}"))
            return
        state.attempts, state.failing_since = 0, None
        state.high_watermark = answer.high_watermark
        if not answer.records:
            return
        aborted = None
        if self._settings.isolation == READ_COMMITTED:
            aborted = [
                AbortedTransaction(item.producer_id, item.first_offset) for item in answer.aborted_transactions or ()
            ]
        try:
            fetched = Fetched(partition, memoryview(answer.records), offset, aborted)
        except RecordError as error:
            self._surface(ClientError(f"what partition {partition} holds at offset {offset} cannot be read: {error}"))
            state.retry_at = self._loop.time() + FAULT_PAUSE_S
            return
        state.fetch_offset = fetched.next_offset
        self._chunks.append(Chunk(state, fetched))
        self._buffered_bytes += fetched.size_bytes
        self.arrived.set()

    # Trouble.

    def _failed(self, partition: TopicPartition, state: PartitionState, error: ClientError) -> None:
        """Try again soon; when it has failed for too long, or for good, the consumer hears of it."""
        now = self._loop.time()
        if state.failing_since is None:
            state.failing_since = now
        state.retry_at = now + pause_ms(state.attempts) / 1000
        state.attempts += 1
        too_long = now - state.failing_since > self._cluster.timeouts.total_ms / 1000
        if too_long or not is_retriable(error):
            state.failing_since = None
            self._surface(error)
        logger.debug("fetching from %s failed: %s", partition, error)
        if self._refresher is None:
            self._refresher = self._loop.create_task(self._refresh())
        self.wake()

    def _surface(self, error: ClientError) -> None:
        self._error = error
        self.arrived.set()

    async def _refresh(self) -> None:
        """Ask who leads what, for all topics that are consumed."""
        try:
            await self._cluster.refresh({partition.topic for partition in self.states})
        except ClientError as error:
            logger.debug("metadata could not be refreshed: %s", error)
        finally:
            self._refresher = None
