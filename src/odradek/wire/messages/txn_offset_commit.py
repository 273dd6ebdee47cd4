"""TxnOffsetCommit (key 28): a group's positions, which count only if the transaction commits (KIP-98).

The group's generation is checked since version 3 (KIP-447); version 5 needs no AddOffsetsToTxn before it (KIP-890).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string


class RequestPartition(Struct):
    """The position in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = string(nullable=0)


class RequestTopic(Struct):
    """The positions in one topic."""

    name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), flexible=3):
    """Store these positions as part of the transaction."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    topics: list[RequestTopic] = array(RequestTopic)


class ResponsePartition(Struct):
    """Whether one position was stored."""

    partition_index: int = int32()
    error_code: int = int16()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), flexible=3):
    """The outcome, partition by partition."""

    throttle_time_ms: int = int32()
    topics: list[ResponseTopic] = array(ResponseTopic)
