"""DescribeCluster (key 60): this broker, which is also its own controller."""

from __future__ import annotations

from odradek.apis.authorized import CLUSTER_OPERATIONS
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_cluster

VERSIONS = Versions(0, 2)
_BROKERS = 1


def handle(context: Context, request: describe_cluster.Request) -> describe_cluster.Response:
    """Describe the cluster; its controllers have no address of their own."""
    if request.endpoint_type != _BROKERS:
        return describe_cluster.Response(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker's address; ask for brokers",
            endpoint_type=_BROKERS,
        )
    broker = context.broker
    response = describe_cluster.Response(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[describe_cluster.ResponseBroker(broker_id=broker.node_id, host=context.host, port=context.port)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


API = Api(ApiKey.DESCRIBE_CLUSTER, VERSIONS, describe_cluster.Request, handle)
