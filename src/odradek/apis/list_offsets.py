"""ListOffsets (key 2): the first and next offsets, and offsets by time.

Of a topic that is archived (KIP-405) the first offset on the disk (-4) differs from the first of all (-2), and the last
that was archived (-5, KIP-1005) and the first that was not (-6, KIP-1023) are told, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from odradek.apis.context import Context
from odradek.apis.leader_epoch import check_leader_epoch
from odradek.apis.registry import Api, Versions
from odradek.broker.archive_reading import find_offset
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition
from odradek.log.segment import TimestampOffset
from odradek.records.header import NO_TIMESTAMP
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import list_offsets

VERSIONS = Versions(1, 11)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_AT_ONCE = {LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD}
_NONE = -1


def handle(context: Context, request: list_offsets.Request) -> list_offsets.Response | Awaitable[list_offsets.Response]:
    """Look up each partition; by time it may take the disk or the archive, so that is done aside."""
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
            if wanted.timestamp in _AT_ONCE:
                partitions.append(_look_up(context, topic.name, wanted, request.isolation_level))
            else:
                partitions.append(await _search(context, topic.name, wanted, request.isolation_level))
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
        end = _end(partition, wanted.timestamp, committed_only=isolation_level == 1)
        answer.offset = _offset(partition, wanted.timestamp, end)
        if answer.offset >= 0:
            answer.leader_epoch = partition.leader_epoch
    except CLIENT_FAULTS as error:
        answer.error_code = peer_error(error).code
    return answer


async def _search(
    context: Context, name: str, wanted: list_offsets.RequestPartition, isolation_level: int
) -> list_offsets.ResponsePartition:
    """Find a record by its time."""
    answer = list_offsets.ResponsePartition(partition_index=wanted.partition_index)
    try:
        partition = context.broker.partition(name, wanted.partition_index)
        check_leader_epoch(wanted.current_leader_epoch, partition.leader_epoch)
        end = _end(partition, wanted.timestamp, committed_only=isolation_level == 1)
        if wanted.timestamp == MAX_TIMESTAMP:
            found = await _newest(context, partition)
        elif wanted.timestamp < 0:
            raise PeerError(ErrorCode.UNSUPPORTED_VERSION, f"there is no special timestamp {wanted.timestamp}")
        else:
            found = await find_offset(context.broker, partition, wanted.timestamp)
        if found is not None and found.offset < end:
            answer.timestamp, answer.offset = found.timestamp, found.offset
            answer.leader_epoch = partition.leader_epoch
    except CLIENT_FAULTS as error:
        answer.error_code = peer_error(error).code
    return answer


async def _newest(context: Context, partition: Partition) -> TimestampOffset | None:
    """The first of the records with the largest timestamp, in the archive or on the disk."""
    found = partition.log.newest_timestamp()
    pieces = () if partition.archive is None else partition.archive.pieces
    largest = max((piece.max_timestamp for piece in pieces), default=NO_TIMESTAMP)
    if largest != NO_TIMESTAMP and (found is None or largest >= found.timestamp):
        return await find_offset(context.broker, partition, largest)
    return found


def _end(partition: Partition, timestamp: int, *, committed_only: bool) -> int:
    """How far the partition may be told of; a new leader that does not know it yet says so."""
    if not partition.is_settled and timestamp not in (EARLIEST, EARLIEST_LOCAL):
        raise PeerError(
            ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader does not know yet what all replicas have (KIP-207)"
        )
    return partition.last_stable_offset if committed_only else partition.high_watermark


def _offset(partition: Partition, timestamp: int, end: int) -> int:
    """What one of the special timestamps stands for; -1 for what there is not."""
    archive, local_start = partition.archive, partition.log.log_start
    if timestamp == LATEST:
        return end
    if timestamp == EARLIEST:
        return partition.log_start
    if timestamp == EARLIEST_LOCAL:
        return local_start
    if timestamp == LATEST_TIERED:
        return archive.end - 1 if archive is not None and archive.pieces else _NONE
    if not partition.topic.is_archived:
        return _NONE
    return local_start if archive is None else max(archive.end, local_start)


API = Api(ApiKey.LIST_OFFSETS, VERSIONS, list_offsets.Request, handle)
