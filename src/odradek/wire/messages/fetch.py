"""Fetch (key 1): record batches from given offsets on.

Records stay undecoded here. Sessions since version 7 (KIP-227), the nearest replica since 11 (KIP-392), topic ids since
13 (KIP-516), new leaders since 16 (KIP-951); the replica's own fields are for followers (KIP-903, KIP-853, KIP-1166).
"""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, int64, records, string, struct, uuid


class RequestReplicaState(Struct):
    """The follower that fetches; a consumer leaves it at -1."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class RequestPartition(Struct):
    """Where to read in one partition, and how much at most."""

    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, tag=0)
    high_watermark: int = int64(since=18, default=2**63 - 1, tag=1)


class RequestTopic(Struct):
    """A topic's partitions: by name up to version 12, then by id."""

    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[RequestPartition] = array(RequestPartition)


class RequestForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[int] = array(int32)


class Request(Message, key=ApiKey.FETCH, versions=(4, 18), flexible=12):
    """Read from these partitions, waiting a while for min_bytes."""

    cluster_id: str | None = string(since=12, nullable=12, default=None, tag=0)
    replica_id: int = int32(until=14, default=-1)
    replica_state: RequestReplicaState = struct(RequestReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(since=7, default=-1)
    topics: list[RequestTopic] = array(RequestTopic)
    forgotten_topics_data: list[RequestForgottenTopic] = array(RequestForgottenTopic, since=7)
    rack_id: str = string(since=11)


class ResponseDivergingEpoch(Struct):
    """Where the log of the follower parts from the leader's."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class ResponseLeader(Struct):
    """Who leads the partition now, when it is not the broker that was asked."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class ResponseSnapshotId(Struct):
    """The snapshot to fetch instead, in a log of the quorum."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class ResponseAbortedTransaction(Struct):
    """A producer's aborted transaction within the range read."""

    producer_id: int = int64()
    first_offset: int = int64()


class ResponsePartition(Struct):
    """Batches of one partition, and its offsets at that moment."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    diverging_epoch: ResponseDivergingEpoch = struct(ResponseDivergingEpoch, since=12, tag=0)
    current_leader: ResponseLeader = struct(ResponseLeader, since=12, tag=1)
    snapshot_id: ResponseSnapshotId = struct(ResponseSnapshotId, since=12, tag=2)
    aborted_transactions: list[ResponseAbortedTransaction] | None = array(ResponseAbortedTransaction, nullable=0)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: ReadBuffer | None = records(nullable=0)


class ResponseTopic(Struct):
    """What was read of a topic."""

    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[ResponsePartition] = array(ResponsePartition)


class ResponseNodeEndpoint(Struct):
    """Where a new leader listens."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)


class Response(Message, key=ApiKey.FETCH, versions=(4, 18), flexible=12):
    """Batches, partition by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[ResponseTopic] = array(ResponseTopic)
    node_endpoints: list[ResponseNodeEndpoint] = array(ResponseNodeEndpoint, since=16, tag=0)
