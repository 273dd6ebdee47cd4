"""AlterPartitionReassignments (key 45): partitions move to other brokers, or stop moving (KIP-455, KIP-860)."""

from __future__ import annotations

from odradek.apis.clustered import Outcome, call_each, call_one
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.controller.controller import Controller
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import alter_partition_reassignments as messages

VERSIONS = Versions(0, 1)
# Errors that say nothing of a single partition: the same would be said of each.
_OF_ALL = frozenset({ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})


async def handle(context: Context, request: messages.Request) -> messages.Response:
    """Start or stop each move; one that is refused does not hold up the others."""
    metadata = context.broker.metadata
    wanted = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    found = [
        None if request.allow_replication_factor_change else _changed_factor(metadata, name, each)
        for name, each in wanted
    ]
    asking = [number for number, outcome in enumerate(found) if outcome is None]
    moves: list[dict[str, object]] = [
        {"topic": name, "partition": each.partition_index, "replicas": each.replicas}
        for name, each in (wanted[number] for number in asking)
    ]
    for number, outcome in zip(asking, await _move(metadata, moves, request.timeout_ms), strict=True):
        found[number] = outcome
    topics: dict[str, messages.ResponseTopic] = {}
    for (name, each), known in zip(wanted, found, strict=True):
        assert known is not None
        topic = topics.setdefault(name, messages.ResponseTopic(name=name, partitions=[]))
        topic.partitions.append(
            messages.ResponsePartition(
                partition_index=each.partition_index, error_code=known.code, error_message=known.message
            )
        )
    return messages.Response(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=list(topics.values())
    )


async def _move(metadata: Controller, moves: list[dict[str, object]], timeout_ms: int) -> list[Outcome]:
    """Ask for all moves at once; if one is refused, so are all, and each is asked for alone."""
    if not moves:
        return []
    together = await call_one(metadata, "reassign", {"partitions": moves}, timeout_ms)
    if together.code in _OF_ALL or len(moves) == 1:
        return [together] * len(moves)
    return await call_each(metadata, "reassign", ({"partitions": [move]} for move in moves), timeout_ms)


def _changed_factor(metadata: Controller, name: str, wanted: messages.RequestPartition) -> Outcome | None:
    """What to say to a move that changes the number of replicas where that is not allowed."""
    topic = metadata.image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(wanted.partition_index)
    if partition is None or wanted.replicas is None:
        return None
    before = len(set(partition.replicas) - set(partition.adding))
    if len(wanted.replicas) == before:
        return None
    return Outcome(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{name}-{wanted.partition_index} has {before} replicas, and their number must not change by this request",
    )


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, VERSIONS, messages.Request, handle)
