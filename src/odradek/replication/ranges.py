"""When a leader does not have the offset that a follower asks for: find out which end is missing, and act on it.

Below the leader's start the copy begins again there. Beyond its end the copy is cut where the epochs part, which the
leader is asked for: its high watermark says nothing about that (KIP-101).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from odradek.client.connection import Connection
from odradek.model import Offset, TopicPartition
from odradek.replication.fitting import MisfitError
from odradek.replication.following import Following
from odradek.replication.taking import RefusedError, cut_where_epochs_part
from odradek.wire.messages import list_offsets, offset_for_leader_epoch

EARLIEST_LOCAL = -4  # where the leader's own log starts: what is archived need not be copied (KIP-405)
TIMEOUT_MS = 5_000

logger = logging.getLogger(__name__)


async def find_ranges(
    connection: Connection, node_id: int, followings: list[Following], is_current: Callable[[Following], bool]
) -> AsyncIterator[tuple[Following, Exception | None]]:
    """Bring each copy into the leader's range; tell what went wrong with which, None if nothing did."""
    starts = await _starts(connection, node_id, followings)
    beyond: list[Following] = []
    for following in followings:
        if not is_current(following):
            continue
        found = starts.get(following.replica.tp)
        if found is None or isinstance(found, RefusedError):
            yield following, found or MisfitError("the leader did not say where its log starts")
            continue
        try:
            if _begin_again(following, found):
                yield following, None
            else:
                beyond.append(following)
        except Exception as error:
            yield following, error
    if beyond:
        ends = await _ends(connection, node_id, beyond)
        for following in beyond:
            if is_current(following):
                yield following, _cut(following, ends.get(following.replica.tp))


def _begin_again(following: Following, start: Offset) -> bool:
    """Begin at the leader's start if the copy ends before it, or holds nothing that could be cut."""
    log = following.replica.log
    end = log.next_offset
    if end != following.asked_offset or end == start:
        return True  # it has changed since it was asked for: ask again
    if start < end and log.size_bytes:
        return False
    logger.warning("%s: the leader's log starts at %d, this one ends at %d: begins again", log.directory, start, end)
    following.replica.restart_at(start)
    return True


def _cut(following: Following, found: offset_for_leader_epoch.ResponsePartition | None) -> Exception | None:
    if found is None:
        return MisfitError("the leader did not say where its epochs end")
    if found.error_code:
        return RefusedError(found.error_code)
    if following.replica.log.next_offset != following.asked_offset:
        return None
    try:
        cut_where_epochs_part(following, found.leader_epoch, found.end_offset)
    except Exception as error:
        return error
    return None


async def _starts(
    connection: Connection, node_id: int, followings: list[Following]
) -> dict[TopicPartition, Offset | RefusedError]:
    request = list_offsets.Request(
        replica_id=node_id,
        topics=[
            list_offsets.RequestTopic(
                name=topic,
                partitions=[
                    list_offsets.RequestPartition(
                        partition_index=each.key[1], current_leader_epoch=each.leader_epoch, timestamp=EARLIEST_LOCAL
                    )
                    for each in group
                ],
            )
            for topic, group in _by_topic(followings)
        ],
        timeout_ms=TIMEOUT_MS,
    )
    response = await connection.request(request, list_offsets.Response, timeout_ms=TIMEOUT_MS)
    return {
        TopicPartition(topic.name, found.partition_index): RefusedError(found.error_code)
        if found.error_code or found.offset < 0
        else found.offset
        for topic in response.topics
        for found in topic.partitions
    }


async def _ends(
    connection: Connection, node_id: int, followings: list[Following]
) -> dict[TopicPartition, offset_for_leader_epoch.ResponsePartition]:
    request = offset_for_leader_epoch.Request(
        replica_id=node_id,
        topics=[
            offset_for_leader_epoch.RequestTopic(
                topic=topic,
                partitions=[
                    offset_for_leader_epoch.RequestPartition(
                        partition=each.key[1], current_leader_epoch=each.leader_epoch, leader_epoch=each.last_epoch
                    )
                    for each in group
                ],
            )
            for topic, group in _by_topic(followings)
        ],
    )
    response = await connection.request(request, offset_for_leader_epoch.Response, timeout_ms=TIMEOUT_MS)
    return {
        TopicPartition(topic.topic, found.partition): found for topic in response.topics for found in topic.partitions
    }


def _by_topic(followings: Iterable[Following]) -> Iterator[tuple[str, list[Following]]]:
    topics: dict[str, list[Following]] = {}
    for following in followings:
        topics.setdefault(following.replica.tp.topic, []).append(following)
    return iter(topics.items())
