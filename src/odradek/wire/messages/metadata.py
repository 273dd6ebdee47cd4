"""Metadata (key 3): the brokers, the topics and who leads their partitions.

A null list of topics asks for all of them, an empty one for none (in version 0 an empty one asks for all). Topic ids
since version 10 (KIP-516); an error for the whole request since 13 (KIP-1102).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, string, uuid


class RequestTopic(Struct):
    """One topic, by name or (from version 12 on) by id with a null name."""

    topic_id: bytes = uuid(since=10)
    name: str | None = string(nullable=10)


class Request(Message, key=ApiKey.METADATA, versions=(0, 13), flexible=9):
    """Describe these topics and the cluster."""

    topics: list[RequestTopic] | None = array(RequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class ResponseBroker(Struct):
    """A broker and where it listens."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable=1, default=None)


class ResponsePartition(Struct):
    """Leader and replicas of one partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5)


class ResponseTopic(Struct):
    """One topic and its partitions."""

    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: bytes = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: list[ResponsePartition] = array(ResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-(2**31))


class Response(Message, key=ApiKey.METADATA, versions=(0, 13), flexible=9):
    """The cluster as this broker sees it."""

    throttle_time_ms: int = int32(since=3)
    brokers: list[ResponseBroker] = array(ResponseBroker)
    cluster_id: str | None = string(since=2, nullable=2, default=None)
    controller_id: int = int32(since=1, default=-1)
    topics: list[ResponseTopic] = array(ResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-(2**31))
    error_code: int = int16(since=13)
