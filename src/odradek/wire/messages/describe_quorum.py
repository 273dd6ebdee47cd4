"""DescribeQuorum (key 55): the state of the metadata quorum (KIP-595).

Times of the last fetch since version 1 (KIP-836); directory ids and the voters' listeners since 2 (KIP-853).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string, uint16, uuid


class RequestPartition(Struct):
    """One partition."""

    partition_index: int = int32()


class RequestTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    """Describe the quorums of these partitions."""

    topics: list[RequestTopic] = array(RequestTopic)


class ResponseReplica(Struct):
    """How far one voter or observer has come."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1)
    last_caught_up_timestamp: int = int64(since=1, default=-1)


class ResponsePartition(Struct):
    """The quorum of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ResponseReplica] = array(ResponseReplica)
    observers: list[ResponseReplica] = array(ResponseReplica)


class ResponseTopic(Struct):
    """The quorums of one topic."""

    topic_name: str = string()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class ResponseListener(Struct):
    """One address of a node."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class ResponseNode(Struct):
    """A node of the quorum and where it listens."""

    node_id: int = int32()
    listeners: list[ResponseListener] = array(ResponseListener)


class Response(Message, key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    """The quorums asked for."""

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, default=None)
    topics: list[ResponseTopic] = array(ResponseTopic)
    nodes: list[ResponseNode] = array(ResponseNode, since=2)
