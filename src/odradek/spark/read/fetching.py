"""Fetches one partition from whoever leads it, over restarts and changes of the leader. Runs on the client's loop.

Each call brings one answer or says why there will be none; what to do about lost records is decided by `ranges`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from odradek.client.cluster import NO_TOPIC_ID, Cluster
from odradek.client.errors import RequestError, UnknownTopicError, check, error_code
from odradek.client.fetched import AbortedTransaction
from odradek.client.fetcher import FETCH_BY_NAME_MAX
from odradek.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, bounds
from odradek.client.retry import retry
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch as fetch_api

CHANNEL = "spark-read"  # a connection apart: a fetch that waits for data holds up what is behind it
MAX_WAIT_MS = 500
UNKNOWN_TOPIC_GRACE_S = 3.0  # a broker that has just come back may not know all its topics yet


class ReplacedTopicError(Exception):
    """The topic was deleted, and another one has its name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker sent for an offset."""

    records: memoryview
    aborted: list[AbortedTransaction] | None  # None unless only what is committed was asked for
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The log does not have the offset that was asked for: it has those of [first, last)."""

    first: int
    last: int


class PartitionFetcher:
    """Asks for one partition, one request at a time."""

    def __init__(self, cluster: Cluster, partition: TopicPartition, *, read_committed: bool, timeout_ms: int) -> None:
        self._cluster = cluster
        self._partition = partition
        self._isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._timeout_ms = timeout_ms
        self._topic_id: bytes | None = None  # of the topic that has answered: offsets mean nothing in another
        self._is_stale = False  # whether what is known of the topic has led to a failure
        self._unknown_since: float | None = None

    async def fetch(self, offset: int, bytes_max: int) -> Answer | OutOfRange:
        """What is there from an offset on; waits a little if there is nothing yet."""

        async def attempt() -> Answer | OutOfRange:
            is_stale, self._is_stale = self._is_stale, True
            if is_stale or self._partition.topic not in self._cluster.topics:
                await self._cluster.refresh([self._partition.topic])
            topic_id = self._check_topic()
            answer = await self._ask(topic_id, offset, bytes_max)
            self._is_stale, self._topic_id = False, topic_id
            return answer

        what = f"fetching from partition {self._partition} at offset {offset}"
        return await retry(attempt, what=what, timeout_ms=self._timeout_ms)

    def _check_topic(self) -> bytes:
        """See that the topic is there, and that it is the one that has answered before; its id."""
        name = self._partition.topic
        info = self._cluster.topics.get(name)
        if info is None or info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            now = asyncio.get_running_loop().time()
            self._unknown_since = now if self._unknown_since is None else self._unknown_since
            raise UnknownTopicError(name, retriable=now - self._unknown_since < UNKNOWN_TOPIC_GRACE_S)
        self._unknown_since = None
        if self._topic_id not in (None, info.topic_id):
            raise ReplacedTopicError(name)
        return info.topic_id

    async def _ask(self, topic_id: bytes, offset: int, bytes_max: int) -> Answer | OutOfRange:
        response = await self._cluster.ask(
            self._cluster.leader(self._partition),
            self._request(topic_id, offset, bytes_max),
            fetch_api.Response,
            channel=CHANNEL,
            timeout_ms=MAX_WAIT_MS + self._cluster.timeouts.request_ms,
            version_max=FETCH_BY_NAME_MAX if topic_id == NO_TOPIC_ID else None,
        )
        what = f"fetching from partition {self._partition} at offset {offset}"
        check(response.error_code, what)
        for topic in response.responses:
            for answer in topic.partitions:
                if error_code(answer.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE:
                    first, last = await bounds(self._cluster, [self._partition])
                    return OutOfRange(first[self._partition], last[self._partition])
                check(answer.error_code, what)
                return self._answer(answer)
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, what, "the broker's answer does not speak of it")

    def _request(self, topic_id: bytes, offset: int, bytes_max: int) -> fetch_api.Request:
        partition = fetch_api.RequestPartition(
            partition=self._partition.partition, fetch_offset=offset, partition_max_bytes=bytes_max
        )
        return fetch_api.Request(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=self._isolation,
            session_id=0,
            session_epoch=-1,
            topics=[fetch_api.RequestTopic(topic=self._partition.topic, topic_id=topic_id, partitions=[partition])],
        )

    def _answer(self, answer: fetch_api.ResponsePartition) -> Answer:
        aborted = None
        if self._isolation == READ_COMMITTED:
            aborted = [
                AbortedTransaction(item.producer_id, item.first_offset) for item in answer.aborted_transactions or ()
            ]
        return Answer(memoryview(answer.records or b""), aborted, answer.high_watermark, answer.last_stable_offset)
