"""Produce (key 0). Answers when the records are as safe as `acks` and the topic's `flush` setting ask; acks=0 gets no
answer. With acks=all every replica in sync has them, and there are at least min.insync.replicas of these.

Versions 0 to 2 are served only to say that their message format is not: librdkafka 2.0 to 2.3 stops compressing when
they are missing from ApiVersions. Transactions are not open here, so a transactional batch is refused.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.broker import Broker
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.intake import Allowance, check_produced
from odradek.broker.topics import Partition, Topic
from odradek.log.errors import LogError, LogStoppedError
from odradek.model import OFFSETS_TOPIC
from odradek.records.errors import KeylessRecordsError
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import produce

VERSIONS = Versions(0, 12)
_FIRST_WITH_BATCHES = 3
_ALL = -1
_ACKS = (0, 1, _ALL)

logger = logging.getLogger(__name__)


def handle(context: Context, request: produce.Request) -> produce.Response | asyncio.Future[produce.Response] | None:
    """Append each partition's batch; wait for the flush and for the replicas where they are asked for."""
    refusal = _refusal(context.version, request)
    config = context.broker.config
    allowed = Allowance(config.request_decompressed_max_bytes, config.request_records_max)
    waiting: list[tuple[produce.ResponsePartition, asyncio.Future[None]]] = []
    topics = []
    for wanted in request.topic_data:
        topic = context.broker.topics.get(wanted.name)
        partitions = []
        for sent in wanted.partition_data:
            answer = produce.ResponsePartition(index=sent.index, base_offset=-1)
            partitions.append(answer)
            try:
                if refusal is not None:
                    raise refusal
                flushed = _append(context.broker, topic, wanted.name, sent, answer, request.acks, allowed)
            except CLIENT_FAULTS as error:
                _explain(context, answer, error)
            else:
                if flushed is not None:
                    waiting.append((answer, flushed))
        topics.append(produce.ResponseTopic(name=wanted.name, partition_responses=partitions))
    if request.acks == 0:
        return None
    response = produce.Response(responses=topics)
    if not waiting:
        return response
    waits_for_others = request.acks == _ALL and len(context.broker.metadata.image.brokers) > 1
    return _when_safe(context, response, waiting, request.timeout_ms if waits_for_others else None)


def _refusal(version: int, request: produce.Request) -> PeerError | None:
    """What is wrong with the request as a whole."""
    if version < _FIRST_WITH_BATCHES:
        return PeerError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "only record batches (Produce 3 or newer) are taken")
    if request.acks not in _ACKS:
        return PeerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {request.acks}")
    if request.transactional_id is not None:
        return PeerError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    return None


def _append(
    broker: Broker,
    topic: Topic | None,
    name: str,
    sent: produce.RequestPartition,
    answer: produce.ResponsePartition,
    acks: int,
    allowed: Allowance,
) -> asyncio.Future[None] | None:
    """Write one batch and fill in the answer; a future if it must wait for the disk."""
    try:
        partition = _led(broker, topic, name, sent.index, acks)
    except PeerError as error:
        if acks == _ALL:
            broker.refusals.note(name, sent.index, sent.records, error, broker.monotonic_ms())
        raise
    if sent.records is None:
        raise PeerError(ErrorCode.INVALID_RECORD, "there are no records")
    data = memoryview(sent.records)
    if acks == _ALL and broker.refusals:
        broker.refusals.check(partition, data, broker.monotonic_ms())
    log = partition.log
    check_produced(data, log.config, allowed)
    try:
        base, last, append_time_ms, _ = partition.append(data)
    except LogStoppedError as error:
        broker.heed(error)
        raise
    broker.written.add(log)
    answer.base_offset = base
    answer.log_append_time_ms = append_time_ms
    answer.log_start_offset = log.log_start
    if log.safe_offset > last:
        partition.advanced()
        if acks != _ALL or partition.high_watermark > last:
            return None
    if acks == _ALL:
        return broker.committed(partition, last + 1)
    if acks == 0:
        broker.flusher.request(log)
        return None
    return broker.flushed(partition, last + 1)


def _led(broker: Broker, topic: Topic | None, name: str, index: int, acks: int) -> Partition:
    """The partition, if this broker may write to it now."""
    partition = None if topic is None else topic.partitions.get(index)
    if partition is None or not partition.is_leader or broker.is_fenced:
        partition = broker.partition(name, index)
    if name == OFFSETS_TOPIC:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker only")
    if acks == _ALL:
        partition.check_in_sync()
    return partition


def _when_safe(
    context: Context,
    response: produce.Response,
    waiting: list[tuple[produce.ResponsePartition, asyncio.Future[None]]],
    timeout_ms: int | None,
) -> asyncio.Future[produce.Response]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[produce.Response] = loop.create_future()
    left = len(waiting)

    def one_done(answer: produce.ResponsePartition, flushed: asyncio.Future[None]) -> None:
        nonlocal left
        if future.done():
            flushed.exception()  # it is looked at, or asyncio would complain
            return
        error = flushed.exception()
        if error is not None:
            assert isinstance(error, LogError | PeerError)
            _explain(context, answer, error)
        left -= 1
        if left == 0:
            if timer is not None:
                timer.cancel()
            future.set_result(response)

    def give_up() -> None:
        """Say that nobody knows: the records are in the log, and may yet be replicated."""
        if not future.done():
            for answer, safe in waiting:
                error = safe.exception() if safe.done() else _too_few_replicas()
                if isinstance(error, LogError | PeerError):  # perhaps in this very turn: nobody has been told yet
                    _explain(context, answer, error)
            future.set_result(response)

    timer = None if timeout_ms is None else loop.call_later(max(timeout_ms, 0) / 1000, give_up)
    for answer, flushed in waiting:
        flushed.add_done_callback(partial(one_done, answer))
    return future


def _too_few_replicas() -> PeerError:
    return PeerError(
        ErrorCode.REQUEST_TIMED_OUT, "too few replicas have the records, in the time that the client gives"
    )


def _explain(context: Context, answer: produce.ResponsePartition, error: Exception) -> None:
    told = peer_error(error)
    answer.error_code = told.code
    answer.base_offset = -1
    answer.error_message = told.message
    if isinstance(error, KeylessRecordsError):  # so that the client can send the others again (KIP-467)
        answer.record_errors = [produce.ResponseRecordError(batch_index=index) for index in error.indexes]
    if told.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        logger.info("client %r: %s", context.client_id, told.message)


API = Api(ApiKey.PRODUCE, VERSIONS, produce.Request, handle)
