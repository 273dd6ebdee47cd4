"""DeleteRecords (key 21): moves the start of a log up; -1 means up to the high watermark (KIP-107)."""

from __future__ import annotations

import asyncio

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import delete_records

VERSIONS = Versions(0, 2)
_HIGH_WATERMARK = -1


async def handle(context: Context, request: delete_records.Request) -> delete_records.Response:
    """Trim each partition; the new start is on stable storage before the answer leaves."""
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            answer = delete_records.ResponsePartition(partition_index=wanted.partition_index, low_watermark=-1)
            try:
                answer.low_watermark = await _trim(context, topic.name, wanted)
            except CLIENT_FAULTS as error:
                context.broker.heed(error)
                answer.error_code = peer_error(error).code
            partitions.append(answer)
        topics.append(delete_records.ResponseTopic(name=topic.name, partitions=partitions))
    return delete_records.Response(topics=topics)


async def _trim(context: Context, name: str, wanted: delete_records.RequestPartition) -> int:
    partition = context.broker.partition(name, wanted.partition_index)
    if partition.topic.is_internal:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} belongs to the broker")
    log = partition.log
    if log.config.compacts and not log.config.deletes:
        raise PeerError(ErrorCode.POLICY_VIOLATION, f"{name} is compacted: its records cannot be deleted by offset")
    offset = partition.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= partition.high_watermark:
        raise PeerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.tp} ends at {partition.high_watermark}")
    archive = partition.archive
    if archive is not None and archive.pieces and offset > partition.log_start:
        place = {"topic_id": partition.topic_id.hex(), "partition": partition.index}
        await context.broker.change(
            "forget-archived", {**place, "leader_epoch": partition.leader_epoch, "start": offset}
        )  # the objects go in the background
    if offset > log.log_start:
        removal = log.delete_records(offset)
        await asyncio.get_running_loop().run_in_executor(None, removal.run)
        partition.advanced()
    return partition.log_start


API = Api(ApiKey.DELETE_RECORDS, VERSIONS, delete_records.Request, handle)
