"""ListOffsets (key 2): the first and next offsets, and offsets by time.

Nothing is tiered here, so the local log start (-4) is the first offset, and nothing was uploaded (-5, -6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from odradek.apis.context import Context
from odradek.apis.leader_epoch import check_leader_epoch
from odradek.apis.registry import Api, Versions
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import list_offsets

VERSIONS = Versions(1, 11)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_AT_ONCE = {LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD}
_NONE = -1


def handle(context: Context, request: list_offsets.Request) -> list_offsets.Response | Awaitable[list_offsets.Response]:
    """Look up each partition; by time it may take the disk, so that is done aside."""
    if all(p.timestamp in _AT_ONCE for topic in request.topics for p in topic.partitions):
        return _respond(context, request)
    return _respond_slowly(context, request)


def _respond(context: Context, request: list_offsets.Request) -> list_offsets.Response:
    topics = [
        list_offsets.ResponseTopic(
            name=topic.name,
            partitions=[_look_up(context, topic.name, wanted, request.isolation_level) for wanted in topic.partitions],
        )
        for topic in request.topics
    ]
    return list_offsets.Response(topics=topics)


async def _respond_slowly(context: Context, request: list_offsets.Request) -> list_offsets.Response:
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            partitions.append(_look_up(context, topic.name, wanted, request.isolation_level))
            await asyncio.sleep(0)  # each look-up reads a little; others go in between
        topics.append(list_offsets.ResponseTopic(name=topic.name, partitions=partitions))
    return list_offsets.Response(topics=topics)


def _look_up(
    context: Context, name: str, wanted: list_offsets.RequestPartition, isolation_level: int
) -> list_offsets.ResponsePartition:
    answer = list_offsets.ResponsePartition(partition_index=wanted.partition_index)
    try:
        partition = context.broker.partition(name, wanted.partition_index)
        check_leader_epoch(wanted.current_leader_epoch, partition.leader_epoch)
        answer.timestamp, answer.offset = _offset(partition, wanted.timestamp, committed_only=isolation_level == 1)
        if answer.offset >= 0:
            answer.leader_epoch = partition.leader_epoch
    except CLIENT_FAULTS as error:
        answer.error_code = peer_error(error).code
    return answer


def _offset(partition: Partition, timestamp: int, *, committed_only: bool) -> tuple[int, int]:
    """The timestamp and offset found; -1 for what there is not."""
    end = partition.last_stable_offset if committed_only else partition.high_watermark
    if not partition.is_settled and timestamp not in (EARLIEST, EARLIEST_LOCAL):
        raise PeerError(
            ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader does not know yet what all replicas have (KIP-207)"
        )
    if timestamp == LATEST:
        return _NONE, end
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _NONE, partition.log_start
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NONE, _NONE
    if timestamp == MAX_TIMESTAMP:
        found = partition.log.newest_timestamp()
    elif timestamp < 0:
        raise PeerError(ErrorCode.UNSUPPORTED_VERSION, f"there is no special timestamp {timestamp}")
    else:
        found = partition.log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        return _NONE, _NONE
    return found.timestamp, found.offset


API = Api(ApiKey.LIST_OFFSETS, VERSIONS, list_offsets.Request, handle)
