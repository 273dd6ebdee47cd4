"""DescribeCluster (key 60): the brokers, without the topics (KIP-700).

Controllers can be asked for since version 1 (KIP-919), fenced brokers since 2 (KIP-1073).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class Request(Message, key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0):
    """Describe the cluster. Endpoint types: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


class ResponseBroker(Struct):
    """A node and where it listens."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)
    is_fenced: bool = boolean(since=2)


class Response(Message, key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0):
    """The cluster as this node sees it."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[ResponseBroker] = array(ResponseBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))
