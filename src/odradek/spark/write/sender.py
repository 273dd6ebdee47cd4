"""Sends prepared batches to the leaders of their partitions: many partitions a request, one batch a partition.

Numbers and seals each batch just before it goes. Over lost connections and new leaders it sends the same batch with the
same numbers again, which a broker recognises. It does not decide what a broken sequence means: that is the sink's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from odradek.client.cluster import NO_TOPIC_ID, Cluster
from odradek.client.errors import ClientError, RequestError, TimedOutError, error_code
from odradek.client.retry import is_retriable, pause_ms
from odradek.client.sender import PRODUCE_BY_NAME_MAX, SEQUENCE_LOST, TOO_LARGE
from odradek.model import TopicPartition
from odradek.records.buffers import WriteBuffer
from odradek.records.build import build_batch
from odradek.records.compression import Codec, codec_from_id
from odradek.records.header import SEQUENCE_MAX, read_header
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord, Record
from odradek.spark.errors import SparkError
from odradek.spark.write.encode import stamp
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import produce

REQUEST_BYTES_MAX = 8 * 1024 * 1024
REQUEST_RECORDS_MAX = 500_000  # Odradek's own bound is a million
ACKS_ALL = -1
CHANNEL = "spark-write"


class WriteError(SparkError):
    """Rows could not be written to a topic."""


class BrokenSequenceError(Exception):
    """A partition does not take the next batch of this producer: somebody else has written with its numbers."""

    def __init__(self, partition: TopicPartition, code: ErrorCode, message: str | None) -> None:
        super().__init__(f"partition {partition} refused a batch: {message or code.message} ({code.name})")
        self.partition = partition


class Prepared:
    """A batch on its way."""

    __slots__ = ("count", "data")

    def __init__(self, count: int, data: WriteBuffer) -> None:
        self.count = count
        self.data = data

    def split(self, at: int) -> list[Prepared]:
        """The same records in two batches."""
        records = parse_batch(self.data)
        codec = codec_from_id(read_header(self.data).codec)
        return [rebuilt(part, codec) for part in (records[:at], records[at:])]


def rebuilt(records: list[Record], codec: Codec) -> Prepared:
    """Put records that were parsed into a batch of their own."""
    again = [NewRecord(record.value, record.key, record.timestamp, record.headers) for record in records]
    return Prepared(len(records), build_batch(again, codec=codec))


@dataclass(slots=True)
class Lane:
    """The batches of one partition, and the number that its next record gets."""

    partition: TopicPartition
    batches: Iterator[Prepared]
    sequence: int = 0
    ahead: list[Prepared] = field(default_factory=list)  # the next ones, last first; the last is perhaps under way

    def next(self) -> Prepared | None:
        """The batch to send now, if there is one."""
        if not self.ahead:
            following = next(self.batches, None)
            if following is not None:
                self.ahead.append(following)
        return self.ahead[-1] if self.ahead else None


class Supervisor(Protocol):
    """Who says whether sending goes on."""

    async def check(self) -> None:
        """Raise if somebody else has taken over; asked before every request but the first."""

    async def landed(self, partition: TopicPartition, batch: Prepared, offset: int, is_last: bool) -> None:
        """Take note of a batch that was acknowledged, its offset, and whether it is the last of its partition."""


class BatchSender:
    """One producer id and epoch, and all it has to send. Runs on the client's loop."""

    def __init__(self, cluster: Cluster, producer_id: int, epoch: int, supervisor: Supervisor) -> None:
        self._cluster = cluster
        self._producer_id = producer_id
        self._epoch = epoch
        self._supervisor = supervisor
        self._loop = asyncio.get_running_loop()
        self._failures = 0  # since something was acknowledged
        self._progress_at = self._loop.time()
        self._trouble: ClientError | None = None  # with the last requests, that is worth another try
        self._stale: set[str] = set()  # topics whose leaders must be asked for

    async def send(self, lanes: list[Lane]) -> None:
        """Send everything; returns when all is acknowledged by all replicas in sync."""
        open_ = [lane for lane in lanes if lane.next() is not None]
        while open_:
            try:
                by_node = await self._by_leader(open_)
            except ClientError as error:
                await self._pause(error)
                continue
            await self._send_round(by_node)
            # Those that were served go to the end, so that none starves.
            served = {id(lane) for chosen in by_node.values() for lane in chosen}
            open_.sort(key=lambda lane: id(lane) in served)
            open_ = [lane for lane in open_ if lane.next() is not None]
            if open_:
                await self._supervisor.check()

    async def _send_round(self, by_node: dict[int, list[Lane]]) -> None:
        """Send one request to each node, and wait a little if not all went well."""
        self._trouble = None
        requests = (self._ask(node, chosen) for node, chosen in by_node.items())
        # All of them are waited for, even if one fails: nothing is under way when this returns.
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            if outcome is not None:
                raise outcome
        if self._trouble is not None:
            await self._pause(self._trouble)

    async def _by_leader(self, lanes: list[Lane]) -> dict[int, list[Lane]]:
        """Choose what goes into the next request to each node."""
        if self._stale:
            await self._cluster.refresh(self._stale)
            self._stale.clear()
        chosen: dict[int, list[Lane]] = {}
        room: dict[int, tuple[int, int]] = {}
        for lane in lanes:
            batch = lane.next()
            assert batch is not None, "a lane is open while it has a batch"
            try:
                node = self._cluster.leader(lane.partition)
            except RequestError:
                self._stale.add(lane.partition.topic)
                raise
            size, records = room.get(node, (0, 0))
            size, records = size + len(batch.data), records + batch.count
            if node in chosen and (size > REQUEST_BYTES_MAX or records > REQUEST_RECORDS_MAX):
                continue
            room[node] = (size, records)
            chosen.setdefault(node, []).append(lane)
        return chosen

    async def _ask(self, node: int, lanes: list[Lane]) -> None:
        """Send one request and act on its answer."""
        for lane in lanes:
            stamp(lane.ahead[-1].data, self._producer_id, self._epoch, lane.sequence)
        request, names = self._request(lanes)
        version_max = PRODUCE_BY_NAME_MAX if NO_TOPIC_ID in names else None
        try:
            response = await self._cluster.ask(
                node, request, produce.Response, channel=CHANNEL, version_max=version_max
            )
        except ClientError as error:
            if not is_retriable(error):
                raise WriteError(f"writing to {_named(lanes)}: {error}") from error
            self._stale.update(lane.partition.topic for lane in lanes)
            self._trouble = error
            return
        await self._answered({lane.partition: lane for lane in lanes}, response, names)

    def _request(self, lanes: list[Lane]) -> tuple[produce.Request, dict[bytes, str]]:
        """Build the request; also return the names of its topics by id, which the answer may use."""
        topics: dict[str, produce.RequestTopic] = {}
        for lane in lanes:
            name, index = lane.partition
            if name not in topics:
                topics[name] = produce.RequestTopic(name=name, topic_id=self._cluster.topic_id(name), partition_data=[])
            topics[name].partition_data.append(produce.RequestPartition(index=index, records=lane.ahead[-1].data))
        request = produce.Request(
            acks=ACKS_ALL, timeout_ms=self._cluster.timeouts.request_ms, topic_data=list(topics.values())
        )
        return request, {topic.topic_id: name for name, topic in topics.items()}

    async def _answered(
        self, lanes: dict[TopicPartition, Lane], response: produce.Response, names: dict[bytes, str]
    ) -> None:
        for topic in response.responses:
            name = topic.name or names.get(bytes(topic.topic_id), "")
            for answer in topic.partition_responses:
                lane = lanes.pop(TopicPartition(name, answer.index), None)
                if lane is not None:
                    await self._settle(lane, answer)
        if lanes:
            self._trouble = TimedOutError(f"the broker's answer says nothing about {_named(list(lanes.values()))}")

    async def _settle(self, lane: Lane, answer: produce.ResponsePartition) -> None:
        batch = lane.ahead[-1]
        code = error_code(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.ahead.pop()
            lane.sequence = (lane.sequence + batch.count) & SEQUENCE_MAX
            self._failures, self._progress_at = 0, self._loop.time()
            await self._supervisor.landed(lane.partition, batch, answer.base_offset, lane.next() is None)
        elif code in SEQUENCE_LOST:
            raise BrokenSequenceError(lane.partition, code, answer.error_message)
        elif code in TOO_LARGE:
            self._split(lane, batch, answer)
        else:
            error = RequestError(answer.error_code, f"writing to partition {lane.partition}", answer.error_message)
            if not code.retriable:
                raise WriteError(str(error)) from error
            self._stale.add(lane.partition.topic)
            self._trouble = error

    def _split(self, lane: Lane, batch: Prepared, answer: produce.ResponsePartition) -> None:
        topic, partition = lane.partition
        if batch.count == 1:
            raise WriteError(
                f"a row for partition {partition} of topic {topic} is too large: as a record it takes"
                f" {len(batch.data)} bytes. {answer.error_message or 'The broker takes less'}."
                " Raise max.message.bytes of the topic, compress, or split the row"
            )
        lane.ahead[-1:] = reversed(batch.split(batch.count // 2))

    async def _pause(self, error: ClientError) -> None:
        """Wait before the next try; give up when nothing has been acknowledged for too long."""
        timeout_ms = self._cluster.timeouts.total_ms
        if not is_retriable(error) or self._loop.time() - self._progress_at > timeout_ms / 1000:
            raise WriteError(f"nothing could be written for {timeout_ms / 1000:g} s: {error}") from error
        await asyncio.sleep(pause_ms(self._failures) / 1000)
        self._failures += 1


def _named(lanes: list[Lane]) -> str:
    return "partition " + ", ".join(str(lane.partition) for lane in lanes)
