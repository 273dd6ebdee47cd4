"""Produce (key 0): record batches to append, and where they landed.

Versions 0 to 2 carry message sets of an older format: they are described so that they can be answered with an error.
Records stay undecoded here. KIP-98 (3), KIP-467 (8), KIP-951 (10), KIP-890 (12), KIP-516 (13).
"""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, records, string, struct, uuid


class RequestPartition(Struct):
    """The batches for one partition."""

    index: int = int32()
    records: ReadBuffer | None = records(nullable=0)


class RequestTopic(Struct):
    """A topic's partitions: by name up to version 12, then by id."""

    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_data: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.PRODUCE, versions=(0, 13), flexible=9):
    """Append these batches; with acks = 0 nobody waits for the answer."""

    transactional_id: str | None = string(since=3, nullable=3, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[RequestTopic] = array(RequestTopic)


class ResponseRecordError(Struct):
    """One record of a batch that was refused, by its place in the batch."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable=0, default=None)


class ResponseLeader(Struct):
    """Who leads the partition now, when it is not the broker that was asked."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class ResponsePartition(Struct):
    """The offset the first record got, or why there is none."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(since=2, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[ResponseRecordError] = array(ResponseRecordError, since=8)
    error_message: str | None = string(since=8, nullable=8, default=None)
    current_leader: ResponseLeader = struct(ResponseLeader, since=10, tag=0)


class ResponseTopic(Struct):
    """The outcome for a topic's partitions."""

    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_responses: list[ResponsePartition] = array(ResponsePartition)


class ResponseNodeEndpoint(Struct):
    """Where a new leader listens."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)


class Response(Message, key=ApiKey.PRODUCE, versions=(0, 13), flexible=9):
    """What became of each partition's batches."""

    responses: list[ResponseTopic] = array(ResponseTopic)
    throttle_time_ms: int = int32(since=1)
    node_endpoints: list[ResponseNodeEndpoint] = array(ResponseNodeEndpoint, since=10, tag=0)
