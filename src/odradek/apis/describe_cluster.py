"""DescribeCluster (key 60): the brokers, the active controller, and on request those that are fenced (KIP-1073)."""

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
    response = describe_cluster.Response(
        cluster_id=context.broker.cluster_id,
        controller_id=context.broker.metadata.quorum.leader_id,
        brokers=_brokers(context, with_fenced=request.include_fenced_brokers),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _brokers(context: Context, *, with_fenced: bool) -> list[describe_cluster.ResponseBroker]:
    """The registered brokers that clients can reach; at least the one that was asked."""
    own, found = context.broker.node_id, []
    for broker_id, image in sorted(context.broker.metadata.image.brokers.items()):
        address = (context.host, context.port) if broker_id == own else image.kafka
        if address is not None and (with_fenced or not image.fenced):
            found.append(_broker(broker_id, address, image.rack, is_fenced=image.fenced))
    return found or [_broker(own, (context.host, context.port), None, is_fenced=True)]


def _broker(
    broker_id: int, address: tuple[str, int], rack: str | None, *, is_fenced: bool
) -> describe_cluster.ResponseBroker:
    host, port = address
    return describe_cluster.ResponseBroker(broker_id=broker_id, host=host, port=port, rack=rack, is_fenced=is_fenced)


API = Api(ApiKey.DESCRIBE_CLUSTER, VERSIONS, describe_cluster.Request, handle)
