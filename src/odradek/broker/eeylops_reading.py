"""Reading as Eeylops' door does it (seed 004): batches of values, or a stream of them that follows the head.

By offset, by time, or from a consumer's last commit. A range of time ends before the first value at or after its end,
so that what is given is always a run of the log without holes, and committing where it ends misses nothing. How a
partition is walked stands in `broker.value_cursor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from odradek.broker.archive_reading import find_offset
from odradek.broker.broker import Broker
from odradek.broker.consumers import Consumers, consumer_id_problem
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.stream_commits import StreamCommits
from odradek.broker.topics import Partition
from odradek.broker.value_cursor import NO_TIME, Batch, Range, ValueCursor
from odradek.model import Offset, TopicPartition
from odradek.wire.errors import ErrorCode, PeerError

BATCH_SIZE_DEFAULT, BATCH_SIZE_MAX = 100, 10_000  # values
BY_TIME_OR_COMMIT = -1  # instead of a start offset
_ANSWER_BYTES_MAX = 4 << 20  # gRPC's clients take no larger message if they are not told to
_ANSWER_BYTES_MORE = 1 << 10  # for what an answer has beside its values
_READ_BYTES_MIN, _READ_BYTES_MAX = 1 << 16, 1 << 18  # at once
_VALUE_BYTES = 1 << 10  # a guess, for how much to read at once
_COMMIT_SECONDS_MAX = 30.0  # of a stream's own
_LOOK_SECONDS = 10.0  # after which a stream that waits sees whether its broker still leads
_LOOK_MS_MIN = 100  # at the end of a range, while what was written is not safe yet
_SHARES = 2  # of a stream's bytes: what was read, and the answer that was made of it


class Bounds(Protocol):
    """What the door's settings say of answers; `edge.config.GrpcDoorConfig` is what there is."""

    @property
    def max_grpc_message_bytes(self) -> int:
        """No answer is larger; a value that has no room in one is refused."""

    @property
    def max_grpc_stream_bytes(self) -> int:
        """A stream holds no more for its reader, but for the record batch that it stands in."""


class ConsumeSpec(NamedTuple):
    """What to read, named as in the .proto."""

    consumer_id: str = ""
    batch_size: int = 0
    start_offset: Offset = 0
    start_timestamp: int = 0
    end_timestamp: int = 0
    auto_commit: bool = False
    resume: bool = False


class EeylopsReading:
    """Reads partitions of one broker. What is refused is refused by PeerError."""

    def __init__(self, broker: Broker, consumers: Consumers, bounds: Bounds) -> None:
        self._broker = broker
        self._consumers = consumers
        self._stream_bytes = bounds.max_grpc_stream_bytes
        self._message_bytes = bounds.max_grpc_message_bytes
        self._answer_bytes = min(bounds.max_grpc_message_bytes, _ANSWER_BYTES_MAX) - _ANSWER_BYTES_MORE
        self._commits: set[StreamCommits] = set()  # of the streams that commit, until all is done

    # Once.

    async def consume(self, tp: TopicPartition, spec: ConsumeSpec, *, follower: bool, timeout_s: float) -> Batch:
        """Read what there is from the start on; nothing is waited for but the disk and the commit."""
        spec = _checked(spec)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._consume(tp, spec, timeout_s, follower=follower)
        except TimeoutError:
            raise PeerError(ErrorCode.REQUEST_TIMED_OUT, f"{tp} was not read in {timeout_s:.1f} s") from None
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error

    async def _consume(self, tp: TopicPartition, spec: ConsumeSpec, timeout_s: float, *, follower: bool) -> Batch:
        partition = self._find(tp, follower=follower)
        start, times = await self._start(partition, spec, timeout_s)
        read_bytes = min(max(spec.batch_size * _VALUE_BYTES, _READ_BYTES_MIN), _READ_BYTES_MAX)
        cursor = ValueCursor(self._broker, partition, start, read_bytes, times)
        batch = await cursor.take(spec.batch_size, self._answer_bytes)
        self._check_size(partition, batch)  # before anything is committed: the answer must arrive
        if spec.auto_commit:
            await self._commit(partition, spec.consumer_id, batch, timeout_s)
        return batch

    async def _commit(self, partition: Partition, consumer_id: str, batch: Batch, timeout_s: float) -> None:
        tp, topic_id = partition.tp, partition.topic_id
        if not batch.values:  # whoever polls at the end need not write the same each time
            committed = await self._consumers.last_committed(consumer_id, tp, timeout_s, sync=False, topic_id=topic_id)
            if committed == batch.next_offset:
                return
        await self._consumers.commit(consumer_id, tp, batch.next_offset, timeout_s, topic_id=topic_id)

    # As a stream.

    async def subscribe(self, tp: TopicPartition, spec: ConsumeSpec, *, follower: bool) -> AsyncGenerator[Batch, None]:
        """Read what there is and what comes, until end_timestamp or until the iterator is closed.

        It is over when a value at or after end_timestamp has come, or when there is no value left and the clock is at
        end_timestamp. When the next batch is asked for, the values of the one before are gone and, with auto_commit,
        committed. A batch without values says where it goes on after retention has been faster.
        """
        spec = _checked(spec)
        commits: StreamCommits | None = None
        try:
            partition = self._find(tp, follower=follower)
            start, times = await self._start(partition, spec, _COMMIT_SECONDS_MAX)
            if spec.auto_commit:
                commits = await self._begin_commits(partition, spec.consumer_id)
            cursor = ValueCursor(
                self._broker, partition, start, min(_READ_BYTES_MAX, self._stream_bytes // _SHARES), times
            )
            while True:
                batch = await self._next(cursor, partition, spec, follower=follower)
                if batch is None:
                    break
                yield batch
                batch.values.clear()  # whoever asks for more has done with them: a stream that waits holds no values
                if commits is not None:
                    commits.note(batch.next_offset)
            if commits is not None:
                await commits.settle()
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error
        finally:
            if commits is not None:
                commits.let_go()

    async def _next(
        self, cursor: ValueCursor, partition: Partition, spec: ConsumeSpec, *, follower: bool
    ) -> Batch | None:
        """What a stream gives next, as soon as there is something; None if it is over."""
        answer_bytes = min(self._answer_bytes, self._stream_bytes // _SHARES)
        while not cursor.is_over:
            self._check(partition, cursor.offset, follower=follower)
            seen = partition.high_watermark
            batch = await cursor.take(spec.batch_size, answer_bytes)
            if batch.values or cursor.has_lost:
                cursor.has_lost = False
                self._check_size(partition, batch)
                return batch
            if cursor.is_over or self._is_past(partition, cursor.offset, spec.end_timestamp):
                break
            await self._wait(partition, seen, spec.end_timestamp)
        return None

    def _check_size(self, partition: Partition, batch: Batch) -> None:
        """Refuse a value that no answer has room for; such a one is alone."""
        if batch.values and len(batch.values[0][2]) + _ANSWER_BYTES_MORE > self._message_bytes:
            offset, _, value = batch.values[0]
            raise PeerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the value at offset {offset} of topic {partition.tp.topic!r}, partition {partition.index}, has "
                f"{len(value)} bytes: more than max.grpc.message.bytes = {self._message_bytes} lets through; start "
                f"behind it, at {batch.next_offset}, or set it higher",
            )

    def _is_past(self, partition: Partition, offset: Offset, end_timestamp: int) -> bool:
        """Whether the time is over and everything was given; values with an earlier time are not waited for."""
        is_time = end_timestamp != NO_TIME and self._broker.clock.now_ms() >= end_timestamp
        return is_time and offset >= partition.log_end

    async def _wait(self, partition: Partition, seen: Offset, end_timestamp: int) -> None:
        """Wait until more can be read than was seen, or something else has changed that a stream must know of."""
        if partition.high_watermark != seen:
            return
        seconds = _LOOK_SECONDS
        if end_timestamp != NO_TIME:
            left_ms = end_timestamp - self._broker.clock.now_ms()
            seconds = min(seconds, max(left_ms, _LOOK_MS_MIN) / 1000)
        woken = asyncio.Event()
        partition.wake_on_advance(woken.set)
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            return
        finally:
            partition.forget(woken.set)

    async def _begin_commits(self, partition: Partition, consumer_id: str) -> StreamCommits:
        tp, topic_id = partition.tp, partition.topic_id
        # It has registered, or is told now that it has not.
        await self._consumers.last_committed(consumer_id, tp, _COMMIT_SECONDS_MAX, sync=False, topic_id=topic_id)

        async def commit(offset: Offset) -> None:
            await self._consumers.commit(consumer_id, tp, offset, _COMMIT_SECONDS_MAX, topic_id=topic_id)

        commits = StreamCommits(commit, self._commits.discard)
        self._commits.add(commits)
        return commits

    # Where.

    def _find(self, tp: TopicPartition, *, follower: bool) -> Partition:
        return self._broker.replica(*tp) if follower else self._broker.partition(*tp)

    def _check(self, partition: Partition, offset: Offset, *, follower: bool) -> None:
        """See that a stream still reads what it began with."""
        topic = self._broker.metadata.image.topics.get(partition.tp.topic)
        if topic is None or topic.id != partition.topic_id:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {partition.tp.topic!r} was deleted")
        if self._find(partition.tp, follower=follower) is not partition:
            raise partition.not_led("this replica was made anew")
        if offset > partition.log_end and partition.is_leader:
            raise _beyond_end(partition, offset)

    async def _start(self, partition: Partition, spec: ConsumeSpec, timeout_s: float) -> tuple[Offset, Range]:
        """Where to begin, and which times are wanted from there on."""
        times = Range(NO_TIME, spec.end_timestamp)
        offset = spec.start_offset
        if offset == BY_TIME_OR_COMMIT:
            if not spec.resume:
                return await self._start_by_time(partition, spec)
            offset = await self._consumers.last_committed(
                spec.consumer_id, partition.tp, timeout_s, sync=True, topic_id=partition.topic_id
            )
            if offset < 0:
                return partition.log_start, times
        if offset > partition.log_end and partition.is_leader:  # a follower may only be late
            raise _beyond_end(partition, offset)
        return offset, times

    async def _start_by_time(self, partition: Partition, spec: ConsumeSpec) -> tuple[Offset, Range]:
        since, until = spec.start_timestamp, spec.end_timestamp
        if since == NO_TIME:
            return partition.log_start, Range(NO_TIME, until)
        while partition.is_leader and not partition.is_settled:  # what all replicas have is not known yet (KIP-207)
            await self._wait(partition, partition.high_watermark, NO_TIME)
            self._check(partition, 0, follower=False)
        found = await find_offset(self._broker, partition, since)
        end = partition.high_watermark
        return (end, Range(since, until)) if found is None else (min(found.offset, end), Range(since, until))


def _checked(spec: ConsumeSpec) -> ConsumeSpec:
    """Refuse what cannot be meant; say how many values are wanted."""
    problem = None
    if spec.batch_size < 0:
        problem = f"batch_size is 0 (for {BATCH_SIZE_DEFAULT}) or more, not {spec.batch_size}"
    elif spec.start_offset < BY_TIME_OR_COMMIT:
        problem = f"start_offset is 0 or more, or -1 to start by time or by the last commit, not {spec.start_offset}"
    elif min(spec.start_timestamp, spec.end_timestamp) < 0:
        problem = "a timestamp is milliseconds since 1970 and not negative"
    elif spec.start_offset == BY_TIME_OR_COMMIT and not spec.resume and _is_reversed(spec):
        problem = f"end_timestamp {spec.end_timestamp} is before start_timestamp {spec.start_timestamp}"
    elif spec.consumer_id or spec.auto_commit or (spec.resume and spec.start_offset == BY_TIME_OR_COMMIT):
        problem = consumer_id_problem(spec.consumer_id)
    if problem is not None:
        raise PeerError(ErrorCode.INVALID_REQUEST, problem)
    return spec._replace(batch_size=min(spec.batch_size or BATCH_SIZE_DEFAULT, BATCH_SIZE_MAX))


def _is_reversed(spec: ConsumeSpec) -> bool:
    return NO_TIME < spec.end_timestamp < spec.start_timestamp


def _beyond_end(partition: Partition, offset: Offset) -> PeerError:
    topic, index = partition.tp
    return PeerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is beyond the end of topic {topic!r}, partition {index}: start at one from "
        f"{partition.log_start} to {partition.log_end}, which is the next value's",
    )
