"""Produce (key 0). Answers when the records are as safe as the topic's `flush` setting asks; acks=0 gets no answer.

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
from odradek.broker.topics import OFFSETS_TOPIC, Topic
from odradek.log.errors import LogError, LogStoppedError
from odradek.records.errors import KeylessRecordsError
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import produce

VERSIONS = Versions(0, 12)
_FIRST_WITH_BATCHES = 3
_ALL = -1
_ACKS = (0, 1, _ALL)
_REPLICAS = 1  # this broker stands alone

logger = logging.getLogger(__name__)


def handle(context: Context, request: produce.Request) -> produce.Response | asyncio.Future[produce.Response] | None:
    """Append each partition's batch; wait for the flush where the topic asks for one."""
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
    return _when_flushed(context, response, waiting) if waiting else response


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
    partition = None if topic is None else topic.partitions.get(sent.index)
    if partition is None:
        partition = broker.partition(name, sent.index)
    if name == OFFSETS_TOPIC:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker only")
    if acks == _ALL and partition.topic.min_insync_replicas > _REPLICAS:
        needed = partition.topic.min_insync_replicas
        raise PeerError(ErrorCode.NOT_ENOUGH_REPLICAS, f"min.insync.replicas is {needed}; there is 1 replica")
    if sent.records is None:
        raise PeerError(ErrorCode.INVALID_RECORD, "there are no records")
    data = memoryview(sent.records)
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
        return None
    if acks == 0:
        broker.flusher.request(log)
        return None
    return broker.flushed(partition, last + 1)


def _when_flushed(
    context: Context,
    response: produce.Response,
    waiting: list[tuple[produce.ResponsePartition, asyncio.Future[None]]],
) -> asyncio.Future[produce.Response]:
    future: asyncio.Future[produce.Response] = asyncio.get_running_loop().create_future()
    left = len(waiting)

    def one_done(answer: produce.ResponsePartition, flushed: asyncio.Future[None]) -> None:
        nonlocal left
        error = flushed.exception()
        if error is not None:
            assert isinstance(error, LogError)
            _explain(context, answer, error)
        left -= 1
        if left == 0 and not future.done():
            future.set_result(response)

    for answer, flushed in waiting:
        flushed.add_done_callback(partial(one_done, answer))
    return future


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
