"""Fetch (key 1): long polling, bounded answers, sessions (KIP-227), topic ids from version 13 on (KIP-516).

Records leave as they lie in the log. What is not in the page cache is read by a thread; the loop never waits. A broker
that fetches as a replica gets also what is not committed yet, and what it asks for tells how far it has flushed; one
whose log is another's is told where the two part (KIP-595). A consumer is sent to a replica in its own rack (KIP-392).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

from odradek.apis.context import Context
from odradek.apis.fetching import FetchRound, Reader, Reading, WaitingFetch
from odradek.apis.registry import Api, Versions
from odradek.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, PartitionKey, Wanted
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import fetch

VERSIONS = Versions(4, 17)
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_FROM_FOLLOWERS = 11  # older consumers do not know that followers can be read from
_CONSUMER = -1
_PARTITIONS_MAX = 50_000  # more would hold up everybody else for too long
_WAIT_MAX_MS = 300_000  # a client that is gone without a word does not keep its place for longer


def handle(context: Context, request: fetch.Request) -> fetch.Response | Awaitable[fetch.Response]:
    """Read now if that is enough or nothing may be waited for; otherwise wait for more."""
    try:
        session, wanted = _wanted(context, request)
    except PeerError as error:
        return fetch.Response(error_code=error.code)
    max_bytes = context.door.room.bound(min(request.max_bytes, context.broker.config.fetch_max_bytes))
    request.min_bytes = min(request.min_bytes, max_bytes)  # more would never come
    round_ = FetchRound(
        broker=context.broker, reader=_reader(context, request), max_bytes=max_bytes, refusal=_refusal(context, request)
    )
    round_.add(wanted)
    round_.read()
    if round_.needs_disk:
        return _read_cold(request, session, round_)
    if request.max_wait_ms <= 0 or round_.is_enough(request.min_bytes):
        return _response(session, round_)
    return _wait(request, session, round_)


async def _read_cold(request: fetch.Request, session: FetchSession | None, round_: FetchRound) -> fetch.Response:
    await round_.read_from_disk()
    if request.max_wait_ms <= 0 or round_.is_enough(request.min_bytes):
        return _response(session, round_)
    return await _wait(request, session, round_)


def _wait(request: fetch.Request, session: FetchSession | None, round_: FetchRound) -> asyncio.Future[fetch.Response]:
    def respond() -> fetch.Response:
        return _response(session, round_)

    wait_ms = min(request.max_wait_ms, _WAIT_MAX_MS)
    return WaitingFetch(round_, request.min_bytes, wait_ms / 1000, respond).future


def _reader(context: Context, request: fetch.Request) -> Reader:
    state = request.replica_state
    replica_id = state.replica_id if state.replica_id >= 0 else request.replica_id
    return Reader(
        replica_id=max(replica_id, _CONSUMER),
        replica_epoch=state.replica_epoch,
        committed_only=request.isolation_level == 1,
        rack=request.rack_id,
        from_followers=context.version >= _FIRST_FROM_FOLLOWERS,
    )


def _refusal(context: Context, request: fetch.Request) -> PeerError | None:
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    if replica_id < 0:
        return None
    is_known = replica_id != context.broker.node_id and replica_id in context.broker.metadata.image.brokers
    if not is_known or not context.door.is_broker(context.client_id):
        return PeerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers of this cluster fetch as replicas")
    return None


# Which partitions.


def _wanted(context: Context, request: fetch.Request) -> tuple[FetchSession | None, dict[PartitionKey, Wanted]]:
    """The partitions to read: those of the request, or those of its session."""
    by_id = context.version >= _FIRST_WITH_TOPIC_IDS
    if sum(len(topic.partitions) for topic in request.topics) > _PARTITIONS_MAX:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"more than {_PARTITIONS_MAX} partitions in one fetch")
    named = {
        (topic.topic_id if by_id else topic.topic, partition.partition): Wanted(
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.log_start_offset,
            partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    sessions, now_ms = context.door.sessions, context.broker.clock.now_ms()
    if request.session_epoch == FINAL_EPOCH:
        if request.session_id != NO_SESSION:
            sessions.end(request.session_id)
        return None, named
    if request.session_epoch == INITIAL_EPOCH:
        sessions.end(request.session_id)
        return (sessions.begin(now_ms, named) if named else None), named
    session = sessions.go_on(request.session_id, request.session_epoch, now_ms, named, _forgotten(request, by_id))
    return session, session.wanted


def _forgotten(request: fetch.Request, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id if by_id else topic.topic), index


# The answer.


def _response(session: FetchSession | None, round_: FetchRound) -> fetch.Response:
    topics: dict[str | bytes, fetch.ResponseTopic] = {}
    is_incremental = session is not None and session.epoch > INITIAL_EPOCH + 1
    with_records = []
    for reading in round_.readings:
        if session is not None and not _is_news(session, reading) and is_incremental:
            continue
        topic_key, index = reading.key
        topic = topics.get(topic_key)
        if topic is None:
            topic = topics[topic_key] = (
                fetch.ResponseTopic(topic_id=topic_key)
                if isinstance(topic_key, bytes)
                else fetch.ResponseTopic(topic=topic_key)
            )
        if reading.size_bytes:
            with_records.append(reading.key)
        topic.partitions.append(_response_partition(index, reading))
    if session is not None:
        session.read_last(with_records)
    return fetch.Response(session_id=NO_SESSION if session is None else session.id, responses=list(topics.values()))


def _is_news(session: FetchSession, reading: Reading) -> bool:
    """Whether a session's client must hear of a partition; takes note that it does."""
    told = session.told.get(reading.key)
    now = (reading.high_watermark, reading.log_start)
    session.told[reading.key] = now
    return told != now or bool(reading.size_bytes) or reading.error is not None or reading.has_news


def _response_partition(index: int, reading: Reading) -> fetch.ResponsePartition:
    if reading.error is not None:
        return fetch.ResponsePartition(
            partition_index=index,
            error_code=reading.error.code,
            high_watermark=reading.high_watermark,
            log_start_offset=reading.log_start,
            aborted_transactions=None,
            records=b"",
        )
    answer = fetch.ResponsePartition(
        partition_index=index,
        high_watermark=reading.high_watermark,
        last_stable_offset=reading.last_stable,
        log_start_offset=reading.log_start,
        aborted_transactions=None,
        records=reading.data,
    )
    if reading.diverging is not None:
        epoch, end = reading.diverging
        answer.diverging_epoch = fetch.ResponseDivergingEpoch(epoch=epoch, end_offset=end)
    if reading.nearer >= 0:
        answer.preferred_read_replica = reading.nearer
    return answer


API = Api(ApiKey.FETCH, VERSIONS, fetch.Request, handle)
