"""ElectLeaders (key 43): make partitions elect their leader anew (KIP-183).

Unclean elections since version 1 (KIP-460).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string


class RequestTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class Request(Message, key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2):
    """Elect leaders for these partitions; for all if null."""

    election_type: int = int8(since=1)
    topic_partitions: list[RequestTopic] | None = array(RequestTopic, nullable=0)
    timeout_ms: int = int32(default=60000)


class ResponsePartition(Struct):
    """The outcome for one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class ResponseTopic(Struct):
    """The outcome for one topic."""

    topic: str = string()
    partition_result: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2):
    """The outcome, partition by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ResponseTopic] = array(ResponseTopic)
