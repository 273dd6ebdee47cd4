"""AlterReplicaLogDirs (key 34): there is one data directory, so a partition can only stay where it is."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import alter_replica_log_dirs as messages

VERSIONS = Versions(1, 2)


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Agree to the directory that partitions are in, and refuse any other."""
    results = [
        messages.ResponseTopic(
            topic_name=topic.name,
            partitions=[
                messages.ResponsePartition(
                    partition_index=index, error_code=_outcome(context, wanted.path, topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for wanted in request.dirs
        for topic in wanted.topics
    ]
    return messages.Response(results=results)


def _outcome(context: Context, path: str, name: str, index: int) -> ErrorCode:
    try:
        context.broker.partition(name, index)
    except PeerError as error:
        return error.code
    return ErrorCode.NONE if path == context.broker.store.directory else ErrorCode.LOG_DIR_NOT_FOUND


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, VERSIONS, messages.Request, handle)
