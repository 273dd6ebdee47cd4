"""OffsetCommit (key 8): store how far a group has come; answered when that is on stable storage."""

from __future__ import annotations

from types import MappingProxyType

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.offsets import NO_EXPIRY, CommittedOffset
from odradek.model import TopicPartition
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import offset_commit
from odradek.wire.messages.offset_commit import ResponsePartition

_TIME_MAX = 2**63 - 1
VERSIONS = Versions(2, 9)

_MEMBER_EPOCHS_SINCE = 9  # KIP-848
_DEFAULT_RETENTION = -1

# What clients of versions before 9 know instead.
_OLD_ERRORS = MappingProxyType(
    {
        ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.UNSUPPORTED_VERSION,
    }
)


async def handle(context: Context, request: offset_commit.Request) -> offset_commit.Response:
    """Store what can be stored; each partition has an error of its own."""
    commits: dict[TopicPartition, CommittedOffset] = {}
    accepted: list[ResponsePartition] = []
    topics = [
        offset_commit.ResponseTopic(name=topic.name, partitions=_partitions(context, request, topic, commits, accepted))
        for topic in request.topics
    ]
    if commits:
        error = await _commit(context, request, commits)
        for partition in accepted:
            partition.error_code = error
    return offset_commit.Response(topics=topics)


def _partitions(
    context: Context,
    request: offset_commit.Request,
    topic: offset_commit.RequestTopic,
    commits: dict[TopicPartition, CommittedOffset],
    accepted: list[ResponsePartition],
) -> list[ResponsePartition]:
    """Sort out a topic's partitions: what is to be committed goes into `commits`, its answer into `accepted`."""
    known = context.broker.metadata.image.topics.get(topic.name)  # wherever its partitions are
    metadata_max = context.groups.config.offset_metadata_max_bytes
    now_ms = context.groups.now_ms()
    retention_ms = request.retention_time_ms
    expire_ms = NO_EXPIRY if retention_ms == _DEFAULT_RETENTION else min(now_ms + retention_ms, _TIME_MAX)
    answers = []
    for partition in topic.partitions:
        index, metadata = partition.partition_index, partition.committed_metadata or ""
        answer = ResponsePartition(partition_index=index)
        answers.append(answer)
        if known is None or index not in known.partitions:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif metadata and len(metadata.encode()) > metadata_max:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            accepted.append(answer)
            commits[TopicPartition(topic.name, index)] = CommittedOffset(
                partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, expire_ms
            )
    return answers


async def _commit(
    context: Context, request: offset_commit.Request, commits: dict[TopicPartition, CommittedOffset]
) -> ErrorCode:
    try:
        context.groups.check_served(request.group_id, may_be_nameless=True)
        return await context.groups.offsets.commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            commits,
        )
    except PeerError as refused:
        if context.version < _MEMBER_EPOCHS_SINCE:
            return _OLD_ERRORS.get(refused.code, refused.code)
        return refused.code


API = Api(ApiKey.OFFSET_COMMIT, VERSIONS, offset_commit.Request, handle)
