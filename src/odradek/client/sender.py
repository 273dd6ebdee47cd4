"""Sends a producer's batches to the leaders of their partitions, several requests at a time, and acts on the answers.

Driven by wake-ups, not by a task of its own: something to send, an answer, a timer. What is numbered and retried how
is decided in accumulator; who leads what is known by cluster.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from odradek.client.accumulator import IN_FLIGHT_MAX, Batch, PartitionQueue
from odradek.client.cluster import NO_TOPIC_ID, Cluster
from odradek.client.errors import ClientError, RequestError, TimedOutError, error_code
from odradek.client.retry import is_retriable, pause_ms
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import produce

PRODUCE_BY_NAME_MAX = 12  # the last version that names topics; later ones want their ids
METADATA_PAUSE_S = 0.1
REQUEST_TIMEOUT_MS_MIN = 1_000
NEVER = math.inf  # not before something else happens: an answer, a leader, a record

MAYBE_APPENDED = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
SEQUENCE_LOST = frozenset({
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH,
})  # fmt: skip
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer works; see Client.producer."""

    acks: int
    codec: Codec
    linger_s: float
    batch_bytes: int
    request_bytes_max: int
    buffer_bytes: int
    delivery_timeout_ms: int
    idempotent: bool


class _Sent(NamedTuple):
    """A batch in a request, and where it came from."""

    queue: PartitionQueue
    batch: Batch


class _NodeState:
    """What is under way to one broker."""

    __slots__ = ("answers", "failures", "in_flight", "muted_until")

    def __init__(self) -> None:
        self.in_flight = 0
        self.answers = False  # the connection works: until then one request is enough, and keeps the order
        self.failures = 0
        self.muted_until = 0.0

    def has_place(self) -> bool:
        """Whether one more request may be sent."""
        return self.in_flight < (IN_FLIGHT_MAX if self.answers else 1)


class Sender:
    """The batches of all partitions of one producer."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, freed: Callable[[int], None]) -> None:
        """`freed` is told of the bytes that are settled."""
        self.hurry = 0  # how many callers want everything out now: no lingering
        self._cluster = cluster
        self._settings = settings
        self._freed = freed
        self._channel = cluster.new_channel("produce")
        self._loop = asyncio.get_running_loop()
        self._active: dict[PartitionQueue, None] = {}  # queues with something in them, the longest unserved first
        self._nodes: dict[int, _NodeState] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stale: set[str] = set()  # topics whose leaders must be asked for
        self._refresher: asyncio.Task[None] | None = None
        self._refreshed_at = self._loop.time()
        self._trouble: ClientError | None = None  # the last reason why something could not even be sent

    # Called by the producer.

    def activate(self, queue: PartitionQueue) -> None:
        """There is something new in a queue."""
        self._active[queue] = None
        self.wake()

    def wake(self) -> None:
        """Look soon whether something can be sent."""
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._pump)

    def unsettled(self) -> list[Batch]:
        """All batches whose outcome is open."""
        return [batch for queue in self._active for batch in (*queue.in_flight, *queue.retries, *queue.waiting)]

    async def close(self) -> None:
        """Stop; what is not settled fails."""
        for handle in (self._scheduled, self._timer):
            if handle is not None:
                handle.cancel()
        tasks = [*self._tasks, *([self._refresher] if self._refresher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closed = self._trouble or ClientError("the producer was closed before the record was sent")
        for batch in [batch for queue in self._active for batch in queue.clear()]:
            self._failed(batch, batch.last_error or closed)
        await self._cluster.pool.close_channel(self._channel)

    # Sending.

    def _pump(self) -> None:
        """Send what can be sent now, and set the timer for what can be later."""
        self._scheduled = None
        now = self._loop.time()
        wake_at = NEVER
        if now - self._refreshed_at > self._cluster.timeouts.metadata_age_ms / 1000:
            self._refreshed_at = now
            for queue in self._active:
                self._need_metadata(queue.partition.topic)
        requests: dict[int, list[_Sent]] = {}
        sizes: dict[int, int] = {}
        for queue in list(self._active):
            wake_at = min(wake_at, self._expire(queue, now))
            send_at, node_id = self._place(queue, now)
            if send_at > now:
                wake_at = min(wake_at, send_at)
            elif sizes.get(node_id, 0) < self._settings.request_bytes_max:
                batch = self._take(queue)
                if batch is not None and batch.data is not None:
                    sizes[node_id] = sizes.get(node_id, 0) + len(batch.data)
                    requests.setdefault(node_id, []).append(_Sent(queue, batch))
        for node_id, sent in requests.items():
            self._start(node_id, sent)
        if requests:
            self.wake()  # the same partitions may have more, for the next request
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(wake_at, self.wake) if wake_at < NEVER else None

    def _expire(self, queue: PartitionQueue, now: float) -> float:
        """Fail what is too old; return when there will be something again."""
        for batch in queue.expire(now):
            ms = self._settings.delivery_timeout_ms
            slow = TimedOutError(f"records for partition {queue.partition} were not acknowledged within {ms} ms")
            self._failed(batch, batch.last_error or self._trouble or slow)
        if queue.is_idle:
            del self._active[queue]
        return min((batch.deadline for batch in (*queue.retries, *queue.waiting)), default=NEVER)

    def _place(self, queue: PartitionQueue, now: float) -> tuple[float, int]:
        """When, and to which node, the queue's next batch can be sent; never, if something has to happen first."""
        send_at = queue.next_at(self._settings.linger_s, self.hurry > 0)
        if send_at is None:
            return NEVER, -1
        if send_at > now:
            return send_at, -1
        try:
            node_id = self._cluster.leader(queue.partition)
        except RequestError as error:
            self._trouble = error
            self._need_metadata(queue.partition.topic)
            return NEVER, -1
        node = self._nodes.setdefault(node_id, _NodeState())
        return (max(send_at, node.muted_until), node_id) if node.has_place() else (NEVER, node_id)

    def _take(self, queue: PartitionQueue) -> Batch | None:
        # Served queues go to the end, so that none of them starves.
        del self._active[queue]
        self._active[queue] = None
        try:
            return queue.take()
        except Exception as error:
            logger.exception("a batch for %s cannot be built", queue.partition)
            self._abandon(queue, ClientError(f"a batch for partition {queue.partition} cannot be built: {error}"))
            return None

    def _start(self, node_id: int, sent: list[_Sent]) -> None:
        self._nodes[node_id].in_flight += 1
        task = self._loop.create_task(self._send(node_id, sent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, node_id: int, sent: list[_Sent]) -> None:
        node = self._nodes[node_id]
        is_out = False
        try:
            connection = await self._cluster.connection(node_id, self._channel)
            request, names = self._request(sent)
            is_out = True
            if self._settings.acks == 0:
                connection.send_only(request)
                await connection.drained()
                self._unasked(sent)
            else:
                version_max = PRODUCE_BY_NAME_MAX if NO_TOPIC_ID in names else None
                response = await connection.request(
                    request, produce.Response, timeout_ms=self._request_timeout_ms(sent), version_max=version_max
                )
                self._answered(sent, response, names)
            node.answers, node.failures, self._trouble = True, 0, None
        except ClientError as error:
            node.answers = False
            node.muted_until = self._loop.time() + pause_ms(node.failures) / 1000
            node.failures += 1
            self._unanswered(sent, error, fate_unknown=is_out)
        except Exception as error:
            logger.exception("a produce request to node %d failed", node_id)
            for queue in dict.fromkeys(item.queue for item in sent):
                self._abandon(queue, ClientError(f"producing to {queue.partition} failed within the client: {error!r}"))
        finally:
            node.in_flight -= 1
            self.wake()

    def _request(self, sent: list[_Sent]) -> tuple[produce.Request, dict[bytes, str]]:
        """Build the request; also return the names of its topics by id, which the answer may use."""
        topics: dict[str, produce.RequestTopic] = {}
        for queue, batch in sent:
            name, index = queue.partition
            if name not in topics:
                topics[name] = produce.RequestTopic(name=name, topic_id=self._cluster.topic_id(name), partition_data=[])
            topics[name].partition_data.append(produce.RequestPartition(index=index, records=batch.data))
        request = produce.Request(
            transactional_id=None,
            acks=self._settings.acks,
            timeout_ms=self._cluster.timeouts.request_ms,
            topic_data=list(topics.values()),
        )
        return request, {topic.topic_id: name for name, topic in topics.items()}

    def _request_timeout_ms(self, sent: list[_Sent]) -> int:
        """No longer than the oldest batch has, but long enough to hear a broker that is there."""
        left_ms = int((min(item.batch.deadline for item in sent) - self._loop.time()) * 1000)
        return max(REQUEST_TIMEOUT_MS_MIN, min(self._cluster.timeouts.request_ms, left_ms))

    # What became of it.

    def _unasked(self, sent: list[_Sent]) -> None:
        for queue, batch in sent:
            if batch in queue.in_flight:
                queue.acked(batch)
                self._settled(queue, batch, -1, -1)

    def _unanswered(self, sent: list[_Sent], error: ClientError, *, fate_unknown: bool) -> None:
        """The connection could not be made, or broke, or the broker was silent."""
        self._trouble = error
        now = self._loop.time()
        for queue, batch in sent:
            if batch not in queue.in_flight:
                continue
            batch.last_error = error
            if is_retriable(error) and now < batch.deadline:
                queue.again(batch, now + pause_ms(batch.attempts - 1) / 1000, fate_unknown=fate_unknown)
                self._need_metadata(queue.partition.topic)
            else:
                batch.fate_unknown = batch.fate_unknown or fate_unknown
                queue.dropped(batch)
                self._failed(batch, error)

    def _answered(self, sent: list[_Sent], response: produce.Response, names: dict[bytes, str]) -> None:
        open_ = {item.queue.partition: item for item in sent}
        for topic in response.responses:
            name = topic.name or names.get(bytes(topic.topic_id), "")
            for answer in topic.partition_responses:
                item = open_.pop(TopicPartition(name, answer.index), None)
                if item is None or item.batch not in item.queue.in_flight:
                    continue
                if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    item.queue.acked(item.batch)
                    self._settled(item.queue, item.batch, answer.base_offset, answer.log_append_time_ms)
                else:
                    self._refused(item.queue, item.batch, answer)
        if open_:
            missing = ", ".join(str(partition) for partition in open_)
            error = TimedOutError(f"the broker's answer says nothing about partition {missing}")
            self._unanswered(list(open_.values()), error, fate_unknown=True)

    def _refused(self, queue: PartitionQueue, batch: Batch, answer: produce.ResponsePartition) -> None:
        code = error_code(answer.error_code)
        now = self._loop.time()
        what = f"producing to partition {queue.partition}"
        error = batch.last_error = RequestError(answer.error_code, what, answer.error_message)
        if code in SEQUENCE_LOST and self._settings.idempotent:
            logger.info("%s: %s at sequence %d, epoch %d", what, code.name, batch.sequence, batch.epoch)
            if queue.out_of_order(batch, now):
                return
        elif code in TOO_LARGE and len(batch.records) > 1:
            queue.split(batch, now)
            return
        elif code.retriable and now < batch.deadline:
            queue.again(batch, now + pause_ms(batch.attempts - 1) / 1000, fate_unknown=code in MAYBE_APPENDED)
            self._need_metadata(queue.partition.topic)
            return
        queue.dropped(batch)
        by_index: dict[int, ClientError] = {
            item.batch_index: RequestError(code, what, item.batch_index_error_message or answer.error_message)
            for item in answer.record_errors
        }
        self._failed(batch, error, by_index)

    def _settled(self, queue: PartitionQueue, batch: Batch, base_offset: int, log_append_time: int) -> None:
        batch.settle(queue.partition, base_offset, log_append_time)
        self._freed(batch.size_bytes)

    def _failed(self, batch: Batch, error: ClientError, by_index: dict[int, ClientError] | None = None) -> None:
        batch.fail(error, by_index)
        self._freed(batch.size_bytes)

    def _abandon(self, queue: PartitionQueue, error: ClientError) -> None:
        for batch in queue.clear():
            self._failed(batch, error)
        self._active.pop(queue, None)

    # Finding leaders.

    def _need_metadata(self, topic: str) -> None:
        self._stale.add(topic)
        if self._refresher is None:
            self._refresher = self._loop.create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            while self._stale:
                topics, self._stale = self._stale, set()
                try:
                    await self._cluster.refresh(topics, create=True)
                except ClientError as error:
                    self._trouble = error
                    self._stale |= topics
                self.wake()
                await asyncio.sleep(METADATA_PAUSE_S)
        finally:
            self._refresher = None
