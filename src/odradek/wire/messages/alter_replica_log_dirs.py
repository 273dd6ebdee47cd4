"""AlterReplicaLogDirs (key 34): move partitions between the log directories of a broker (KIP-113)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string


class RequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


class RequestDir(Struct):
    """A directory and what shall be in it."""

    path: str = string()
    topics: list[RequestTopic] = array(RequestTopic)


class Request(Message, key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2):
    """Bring these partitions into these directories."""

    dirs: list[RequestDir] = array(RequestDir)


class ResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    topic_name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2):
    """The outcome, partition by partition."""

    throttle_time_ms: int = int32()
    results: list[ResponseTopic] = array(ResponseTopic)
