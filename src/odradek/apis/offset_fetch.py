"""OffsetFetch (key 9): how far groups have come, of chosen partitions or of all.

Waits only for those who ask for stable offsets (KIP-447) while a commit of the same group is being flushed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import NamedTuple

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.coordinator import Coordinator
from odradek.groups.offsets import CommittedOffset, GroupOffsets, registration
from odradek.model import TopicPartition
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import offset_fetch

VERSIONS = Versions(1, 9)

_GROUP_ERROR_SINCE = 2  # before, only partitions have errors
_BATCHED_SINCE = 8

_NOTHING = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_ms=-1)
_REGISTERED = registration(now_ms=-1)  # nothing committed, either: the other brokers tell it by its metadata


class _Topic(NamedTuple):
    """What is answered of one topic."""

    name: str
    offsets: Mapping[int, CommittedOffset]


def handle(context: Context, request: offset_fetch.Request) -> offset_fetch.Response | Awaitable[offset_fetch.Response]:
    """Answer at once, or when all commits under way are done."""
    if request.require_stable:
        is_batched = context.version >= _BATCHED_SINCE
        ids = [group.group_id for group in request.groups] if is_batched else [request.group_id]
        settling = [future for future in map(context.groups.offsets.settling, ids) if future is not None]
        if settling:
            return _answer_settled(context, request, settling)
    return _answer(context, request)


async def _answer_settled(
    context: Context, request: offset_fetch.Request, settling: list[asyncio.Future[ErrorCode]]
) -> offset_fetch.Response:
    await asyncio.wait(settling)
    return _answer(context, request)


def _answer(context: Context, request: offset_fetch.Request) -> offset_fetch.Response:
    if context.version < _BATCHED_SINCE:
        return _answer_one(context, request)
    return offset_fetch.Response(groups=[_answer_group(context.groups, group) for group in request.groups])


def _answer_group(groups: Coordinator, request: offset_fetch.RequestGroup) -> offset_fetch.ResponseGroup:
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    try:
        found = _find(groups, request.group_id, request.member_id, request.member_epoch, wanted)
    except PeerError as refused:
        return offset_fetch.ResponseGroup(group_id=request.group_id, error_code=refused.code)
    topics = [
        offset_fetch.ResponseGroupTopic(
            name=topic.name,
            partitions=[
                offset_fetch.ResponseGroupPartition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
                for index, committed in topic.offsets.items()
            ],
        )
        for topic in found
    ]
    return offset_fetch.ResponseGroup(group_id=request.group_id, topics=topics)


def _answer_one(context: Context, request: offset_fetch.Request) -> offset_fetch.Response:
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    error = ErrorCode.NONE
    try:
        found = _find(context.groups, request.group_id, None, -1, wanted)
    except PeerError as refused:
        error = refused.code
        if context.version >= _GROUP_ERROR_SINCE:
            return offset_fetch.Response(error_code=error)
        found = [_Topic(name, dict.fromkeys(indexes, _NOTHING)) for name, indexes in wanted or ()]
    topics = [
        offset_fetch.ResponseTopic(
            name=topic.name,
            partitions=[
                offset_fetch.ResponsePartition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=error,
                )
                for index, committed in topic.offsets.items()
            ],
        )
        for topic in found
    ]
    return offset_fetch.Response(topics=topics)


def _find(
    groups: Coordinator,
    group_id: str,
    member_id: str | None,
    member_epoch: int,
    wanted: Iterable[tuple[str, Iterable[int]]] | None,
) -> list[_Topic]:
    """Look up what is wanted, or all; what was never committed has offset -1, in an unknown group everything."""
    groups.check_served(group_id, may_be_nameless=True)
    group = groups.groups.get(group_id)
    if group is not None:
        group.check_fetch(member_id, member_epoch)
    offsets = groups.offsets.of(group_id) or GroupOffsets()
    if wanted is None:
        return [_Topic(name, committed) for name, committed in offsets.by_topic().items()]
    return [_Topic(name, {index: _look_up(offsets, name, index) for index in indexes}) for name, indexes in wanted]


def _look_up(offsets: GroupOffsets, topic: str, index: int) -> CommittedOffset:
    committed = offsets.get(topic, index)
    if committed is not None:
        return committed
    return _REGISTERED if offsets.is_registered(TopicPartition(topic, index)) else _NOTHING


API = Api(ApiKey.OFFSET_FETCH, VERSIONS, offset_fetch.Request, handle)
