"""A leader that speaks Fetch over loopback, with logs of its own, sessions and long polls; tests may forge its answers.

And the follower's side under test: copies on a disk in memory, a flusher, fetchers.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeAlias

from odradek.disk.memory import MemoryDisk
from odradek.log.flusher import GroupFlusher
from odradek.log.log import PartitionLog
from odradek.model import TopicPartition
from odradek.replication.config import ReplicationConfig
from odradek.replication.fetcher import ReplicaFetchers
from odradek.wire.api import ApiKey, response_header_version
from odradek.wire.errors import ErrorCode
from odradek.wire.headers import decode_request_header, encode_response_header
from odradek.wire.messages import api_versions, fetch, list_offsets, offset_for_leader_epoch
from odradek.wire.schema import Message
from tests.log.support import LogOnDisk, batch

TOPIC, TOPIC_ID = "t", bytes(range(16))
LEADER, FOLLOWER = 1, 2
BROKER_EPOCH = 31
EPOCH = 5  # of the leader
WAIT_MS = 400
Key: TypeAlias = tuple[bytes, int]
MODULES: dict[int, Any] = {
    int(module.Request.api_key): module for module in (api_versions, fetch, list_offsets, offset_for_leader_epoch)
}


class Led:
    """A partition of the leader."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.epoch = EPOCH
        self.high_watermark = 0
        self.acknowledged: list[int] = []  # every offset that a follower said it has flushed to


def answer_to(asked: fetch.RequestPartition, led: Led | None) -> fetch.ResponsePartition:
    """What a leader answers to a follower that asks for one partition."""
    answer = fetch.ResponsePartition(partition_index=asked.partition, aborted_transactions=None, records=b"")
    if led is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        return answer
    log, offset = led.log, asked.fetch_offset
    answer.high_watermark, answer.log_start_offset = led.high_watermark, log.log_start
    if asked.current_leader_epoch != led.epoch:
        newer = asked.current_leader_epoch > led.epoch
        answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH
        return answer
    if asked.last_fetched_epoch >= 0:
        end = log.epochs.end_of(asked.last_fetched_epoch, log.next_offset)
        if end.epoch >= 0 and (end.epoch < asked.last_fetched_epoch or end.end_offset < offset):
            answer.diverging_epoch = fetch.ResponseDivergingEpoch(epoch=end.epoch, end_offset=end.end_offset)
            return answer
    if not log.log_start <= offset <= log.next_offset:
        answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return answer
    if not led.acknowledged or led.acknowledged[-1] != offset:
        led.acknowledged.append(offset)
    chunk = log.read(offset, asked.partition_max_bytes)
    assert chunk is not None
    answer.records = bytes(chunk.data)
    return answer


class Leader:
    """A broker that only replicates."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.led: dict[Key, Led] = {}
        self.fetches: list[fetch.Request] = []
        self.answers: list[fetch.Response] = []
        self.versions: set[tuple[int, int]] = set()
        self.forge: Callable[[fetch.Request, fetch.Response], None] | None = None
        self.gives_sessions = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.connections = 0
        self.port = 0
        self._sessions: dict[int, dict[Key, fetch.RequestPartition]] = {}
        self._told: dict[tuple[int, Key], tuple[int, int]] = {}
        self._epochs: dict[int, int] = {}
        self._moved = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    def lead(self, index: int = 0, **settings: object) -> Led:
        """Begin to lead a partition."""
        led = Led(LogOnDisk(self.disk, f"leader/{TOPIC}-{index}", **settings).log)
        self.led[TOPIC_ID, index] = led
        return led

    def append(self, *values: bytes, index: int = 0, epoch: int | None = None) -> None:
        """Write one batch of records."""
        led = self.led[TOPIC_ID, index]
        led.log.append(batch(*values), led.epoch if epoch is None else epoch)
        self.move()

    def move(self) -> None:
        """Wake the fetches that wait."""
        self._moved.set()
        self._moved = asyncio.Event()

    @property
    def has_read_records(self) -> bool:
        """Whether the last answer, which may not have left yet, has records."""
        last = self.answers[-1].responses if self.answers else []
        return any(len(each.records or b"") for topic in last for each in topic.partitions)

    def forget_sessions(self) -> None:
        """As after a restart."""
        self._sessions.clear()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        self.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    (length,) = struct.unpack(">i", await reader.readexactly(4))
                    header, at = decode_request_header(frame := await reader.readexactly(length))
                    version = header.api_version
                    self.versions.add((header.api_key, version))
                    answer = await self._answer(MODULES[header.api_key].Request.decode(frame, version, at))
                    await self.may_answer.wait()
                    flexible = response_header_version(header.api_key, version) > 0
                    body = encode_response_header(header.correlation_id, flexible) + answer.encode(version)
                    writer.write(struct.pack(">i", len(body)) + body)
                    await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, request: Any) -> Message:
        if isinstance(request, fetch.Request):
            return await self._fetch(request)
        if isinstance(request, list_offsets.Request):
            return self._list_offsets(request)
        if isinstance(request, offset_for_leader_epoch.Request):
            return self._epoch_ends(request)
        ranges = {key: module.Request.versions for key, module in MODULES.items()} | {int(ApiKey.FETCH): (4, 17)}
        return api_versions.Response(
            api_keys=[
                api_versions.ResponseApiKey(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in ranges.items()
            ]
        )

    async def _fetch(self, request: fetch.Request) -> fetch.Response:
        self.fetches.append(request)
        named = {(topic.topic_id, each.partition): each for topic in request.topics for each in topic.partitions}
        if request.session_epoch == 0:
            session_id = len(self._epochs) + 1 if self.gives_sessions else 0
            wanted = named
            self._sessions[session_id] = wanted
            self._epochs[session_id] = 1
        else:
            session_id = request.session_id
            if session_id not in self._sessions:
                return fetch.Response(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            assert request.session_epoch == self._epochs[session_id], "the session's epoch"
            self._epochs[session_id] += 1
            wanted = self._sessions[session_id]
            for forgotten in request.forgotten_topics_data:
                for number in forgotten.partitions:
                    del wanted[forgotten.topic_id, number]
                    self._told.pop((session_id, (forgotten.topic_id, number)), None)
            wanted.update(named)
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            moved = self._moved
            response = self._read(session_id, wanted, is_full=request.session_epoch == 0)
            if self.forge is not None:
                self.forge(request, response)
            urgent = any(
                len(each.records or b"") or each.error_code or each.diverging_epoch.end_offset >= 0
                for topic in response.responses
                for each in topic.partitions
            )
            if urgent or response.error_code:
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await moved.wait()
            except TimeoutError:
                break
        for topic in response.responses:
            for each in topic.partitions:
                self._told[session_id, (topic.topic_id, each.partition_index)] = (
                    each.high_watermark, each.log_start_offset,
                )  # fmt: skip
        self.answers.append(response)
        return response

    def _read(self, session_id: int, wanted: dict[Key, fetch.RequestPartition], *, is_full: bool) -> fetch.Response:
        response = fetch.Response(session_id=session_id)
        for key, asked in wanted.items():
            answer = self._read_one(key, asked)
            told = self._told.get((session_id, key))
            is_news = len(answer.records or b"") or answer.error_code or answer.diverging_epoch.end_offset >= 0
            if is_full or is_news or told != (answer.high_watermark, answer.log_start_offset):
                response.responses.append(fetch.ResponseTopic(topic_id=key[0], partitions=[answer]))
        return response

    def _read_one(self, key: Key, asked: fetch.RequestPartition) -> fetch.ResponsePartition:
        return answer_to(asked, self.led.get(key))

    def _list_offsets(self, request: list_offsets.Request) -> list_offsets.Response:
        topic = request.topics[0]
        assert request.replica_id == FOLLOWER
        return list_offsets.Response(
            topics=[
                list_offsets.ResponseTopic(
                    name=topic.name,
                    partitions=[
                        list_offsets.ResponsePartition(
                            partition_index=each.partition_index,
                            offset=self.led[TOPIC_ID, each.partition_index].log.log_start,
                        )
                        for each in topic.partitions
                        if each.timestamp == -4
                    ],
                )
            ]
        )

    def _epoch_ends(self, request: offset_for_leader_epoch.Request) -> offset_for_leader_epoch.Response:
        topic, found = request.topics[0], []
        for each in topic.partitions:
            log = self.led[TOPIC_ID, each.partition].log
            end = log.epochs.end_of(each.leader_epoch, log.next_offset)
            found.append(
                offset_for_leader_epoch.ResponsePartition(
                    partition=each.partition, leader_epoch=end.epoch, end_offset=end.end_offset
                )
            )
        topics = [offset_for_leader_epoch.ResponseTopic(topic=topic.topic, partitions=found)]
        return offset_for_leader_epoch.Response(topics=topics)


class Copy:
    """A partition that follows."""

    def __init__(self, log: PartitionLog, index: int = 0) -> None:
        self.log = log
        self.tp = TopicPartition(TOPIC, index)
        self.topic_id = TOPIC_ID
        self.leader_epoch = EPOCH
        self.is_adding = False
        self.high_watermark = 0
        self.done: list[str] = []  # what was done to it, in order

    def replicated(self, data: memoryview, high_watermark: int, log_start: int) -> None:
        appended = self.log.append_replicated(data)
        self.done.append(f"append {appended.base_offset}-{appended.last_offset}")
        self.advanced_to(min(high_watermark, self.log.next_offset))

    def cut(self, offset: int) -> None:
        self.log.truncate(offset)
        self.done.append(f"cut {offset}")

    def restart_at(self, offset: int) -> None:
        self.log.start_over(offset)
        self.done.append(f"restart {offset}")

    def advanced_to(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark


class Follower:
    """A broker that follows, without anything around it."""

    def __init__(self, disk: MemoryDisk, flusher: GroupFlusher, config: ReplicationConfig) -> None:
        self.disk = disk
        self.flusher = flusher
        self.failures: list[Exception] = []
        self.fetchers = ReplicaFetchers(
            config,
            FOLLOWER,
            flusher,
            client_id="broker-2",
            broker_epoch=lambda: BROKER_EPOCH,
            failed=self.failures.append,
        )

    def copy(self, index: int = 0, **settings: object) -> Copy:
        """A copy that has nothing, or what its directory holds."""
        return Copy(LogOnDisk(self.disk, f"follower/{TOPIC}-{index}", **settings).log, index)

    def follow(self, copy: Copy, leader: Leader) -> None:
        self.fetchers.follow(copy, LEADER, leader.address)


def config(**changes: int) -> ReplicationConfig:
    """Settings with short times."""
    values = {
        "replica_lag_time_max_ms": 10_000,
        "replica_fetch_max_bytes": 1 << 20,
        "replica_fetch_response_max_bytes": 10 << 20,
        "replica_fetch_wait_max_ms": WAIT_MS,
        "replication_throttle_bytes": 0,
    }
    return ReplicationConfig(**{**values, **changes})


@asynccontextmanager
async def cluster(disk: MemoryDisk | None = None, **changes: int) -> AsyncIterator[tuple[Leader, Follower]]:
    """A leader and a follower, both up."""
    flusher = GroupFlusher(2)
    follower = Follower(disk or MemoryDisk(), flusher, config(**changes))
    async with Leader() as leader:
        try:
            yield leader, follower
        finally:
            await follower.fetchers.close()
            await flusher.close()
