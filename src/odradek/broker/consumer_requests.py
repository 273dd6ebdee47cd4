"""What one broker asks another about Eeylops' consumers, in Kafka's requests: to commit, how far, where the end is.

Each asks once, of whoever is at the other end of the connection; whom to ask, and when again, is `broker.consumers`'.
"""

from __future__ import annotations

from odradek.client.connection import Connection
from odradek.client.errors import error_code
from odradek.groups.group import NO_GENERATION
from odradek.groups.offsets import EEYLOPS, NO_OFFSET, CommittedOffset
from odradek.model import Offset, TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import list_offsets, offset_commit, offset_fetch

_ANSWER_TIMEOUT_MS = 10_000  # then the connection is given up
_BY_NAME_MAX = 9  # the last version of OffsetCommit and OffsetFetch that names topics
_LATEST = -1  # the timestamp that stands for the end of a partition


async def commit_at(
    connection: Connection, consumer_id: str, tp: TopicPartition, committed: CommittedOffset
) -> ErrorCode:
    """Store a commit or a registration; says how that ended."""
    partition = offset_commit.RequestPartition(
        partition_index=tp.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )
    request = offset_commit.Request(
        group_id=consumer_id,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        topics=[offset_commit.RequestTopic(name=tp.topic, partitions=[partition])],
    )
    response = await connection.request(
        request, offset_commit.Response, timeout_ms=_ANSWER_TIMEOUT_MS, version_max=_BY_NAME_MAX
    )
    return error_code(response.topics[0].partitions[0].error_code)


async def committed_at(connection: Connection, consumer_id: str, tp: TopicPartition, *, sync: bool) -> Offset | None:
    """How far a consumer is: -1 if it has only registered, None if it has not."""
    topic = offset_fetch.RequestGroupTopic(name=tp.topic, partition_indexes=[tp.partition])
    request = offset_fetch.Request(
        groups=[offset_fetch.RequestGroup(group_id=consumer_id, topics=[topic])], require_stable=sync
    )
    response = await connection.request(
        request, offset_fetch.Response, timeout_ms=_ANSWER_TIMEOUT_MS, version_max=_BY_NAME_MAX
    )
    group = response.groups[0]
    _check_answer(group.error_code)
    found = group.topics[0].partitions[0]
    _check_answer(found.error_code)
    return None if found.committed_offset == NO_OFFSET and found.metadata != EEYLOPS else found.committed_offset


async def end_at(connection: Connection, tp: TopicPartition) -> Offset:
    """The offset behind the last record that can be read."""
    partition = list_offsets.RequestPartition(partition_index=tp.partition, timestamp=_LATEST)
    topic = list_offsets.RequestTopic(name=tp.topic, partitions=[partition])
    request = list_offsets.Request(replica_id=-1, topics=[topic])
    response = await connection.request(request, list_offsets.Response, timeout_ms=_ANSWER_TIMEOUT_MS)
    found = response.topics[0].partitions[0]
    _check_answer(found.error_code)
    return found.offset


def _check_answer(number: int) -> None:
    if number != ErrorCode.NONE:
        raise PeerError(error_code(number))
